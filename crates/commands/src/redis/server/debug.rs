//! DEBUG, as far as test suites use it.

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Value};

use crate::core::glob::{Weight, matches};
use crate::core::work::{KEY_NS, STORE_NS, copying_ns};
use crate::redis::call::bounded;
use crate::redis::call::{Call, Flow, KEY_BYTES_MAX, integer, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::keys::digest::{Digest, Hash, Hashing, digest_of};
use crate::redis::keys::survey::{Digesting, Goal};
use crate::redis::reply::{
    put_array, put_bulk, put_double, put_head, put_integer, put_map, put_null, put_set, put_simple,
};
use crate::redis::row::flag::{ADMIN, LOADING, NOSCRIPT, STALE, TAKES_ALL, WEIGHTLESS};
use crate::redis::row::{Command, Keys, NO_KEYS, Weighs};
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;

/// Bytes of a message of DEBUG ERROR that are replied, at most.
const ERROR_BYTES_MAX: usize = 4 << 10;

const RULES: u64 = ADMIN | NOSCRIPT | LOADING | STALE | TAKES_ALL;
const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

pub(crate) const ROWS: &[Definition] = &[
    Command::args("debug|sleep", 3, RULES | WEIGHTLESS, NO_KEYS, sleep)
        .doc("1.0.0", "seconds", "Answers later.")
        .doubles(&["seconds"]),
    Command::args("debug|error", 3, RULES | WEIGHTLESS, NO_KEYS, |_, mut args| {
        Err(Fail::with(crate::redis::fail::shown(next(&mut args)?, ERROR_BYTES_MAX)))
    })
    .doc("1.0.0", "message", "Answers this error."),
    Command::args("debug|set-active-expire", 3, RULES | WEIGHTLESS, NO_KEYS, accept).doc(
        "1.0.0",
        "0|1",
        "Accepted: what has expired is taken out in any case.",
    ),
    Command::args("debug|object", 3, RULES | WEIGHTLESS, SECOND, object).doc(
        "1.0.0",
        "key",
        "A value's internals.",
    ),
    Command::args("debug|protocol", 3, RULES | WEIGHTLESS, NO_KEYS, protocol).doc(
        "6.0.0",
        "type",
        "A reply of the type.",
    ),
    Command::args("debug|populate", -3, RULES, NO_KEYS, populate).weighs(Weighs::Populate).doc(
        "1.0.0",
        "count [prefix] [size]",
        "Sets so many keys.",
    ),
    Command::args("debug|digest", 2, RULES, NO_KEYS, digest).weighs(Weighs::Everything).doc(
        "1.0.0",
        "",
        "A hash of all keys and values.",
    ),
    Command::args("debug|digest-value", -2, RULES, NO_KEYS, digest_value).weighs(Weighs::ReadAll).doc(
        "5.0.0",
        "[key [key ...]]",
        "Hashes of values.",
    ),
    Command::args("debug|reload", -2, RULES | WEIGHTLESS, NO_KEYS, accept).doc(
        "1.0.0",
        "",
        "Accepted: there is no file.",
    ),
    Command::args("debug|loadaof", 2, RULES | WEIGHTLESS, NO_KEYS, accept).doc(
        "1.0.0",
        "",
        "Accepted: there is no file.",
    ),
    Command::args("debug|jmap", 2, RULES | WEIGHTLESS, NO_KEYS, accept).doc("1.0.0", "", "Accepted."),
    Command::args("debug|quicklist-packed-threshold", 3, RULES | WEIGHTLESS, NO_KEYS, accept).doc(
        "7.0.0",
        "size",
        "Accepted.",
    ),
    Command::args("debug|stringmatch-len", 4, RULES, NO_KEYS, |call, mut args| {
        let (n, pattern) = (integer(next(&mut args)?)?, bounded(next(&mut args)?)?);
        let bytes = n.clamp(0, MATCHED_BYTES_MAX) as usize;
        call.spend(Weight::of(pattern).with_reading_ns(1, bytes as u64));
        let text = vec![b'a'; bytes];
        let _ = matches(pattern, &text);
        call.ok()
    })
    .weighs(Weighs::Match)
    .doc("1.0.0", "len pattern", "Matches a pattern with a long text."),
    Command::args("debug|help", 2, LOADING | STALE | TAKES_ALL | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "debug")
    })
    .doc("1.0.0", "", "What DEBUG can do."),
];

/// Bytes of the text that DEBUG STRINGMATCH-LEN makes, at most: as many as a key may have. The dearest pattern takes some 4 ms
/// with it.
pub(crate) const MATCHED_BYTES_MAX: i64 = KEY_BYTES_MAX as i64;

fn accept(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    call.ok()
}

/// Longest sleep, in seconds.
const SLEEP_S_MAX: f64 = 60.0;

fn sleep(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let seconds = std::str::from_utf8(next(&mut args)?).ok().and_then(|text| text.parse::<f64>().ok());
    let seconds = seconds.ok_or(Fail::NOT_A_FLOAT)?;
    let ms = (seconds.clamp(0.0, SLEEP_S_MAX) * 1000.0) as u64;
    if !call.cx.guard.in_transaction() {
        call.flow = Flow::Sleep { ms, says: !call.client.replies.is_silent() };
        return Ok(());
    }
    // No command sleeps while keys are held: the client's next command waits for all sleeps of EXEC.
    call.flow = Flow::Sleep { ms: call.flow.sleep_ms() + ms, says: false };
    call.ok()
}

fn object(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let key = call.key(next(&mut args)?);
    let Some(item) = call.cx.guard.peek(&key).hit() else { return Err(Fail::NO_SUCH_KEY) };
    call.cx.room.work().spend(crate::redis::keys::object::encoding_ns(&item));
    let text = format!(
        "Value at:0x{:x} refcount:1 encoding:{} serializedlength:{} lru:0 lru_seconds_idle:{}",
        item.cas(),
        crate::redis::keys::object::encoding(&item),
        item.value_bytes() + 1,
        item.idle_s()
    );
    put_simple(call.out, &text);
    Ok(())
}

fn protocol(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let kind = next(&mut args)?;
    let resp3 = call.client.resp3;
    let out = &mut *call.out;
    match kind.to_ascii_lowercase().as_slice() {
        b"string" => put_bulk(out, b"Hello World"),
        b"integer" => put_integer(out, 12345),
        b"double" => put_double(out, resp3, 3141.0 / 1000.0),
        b"null" => put_null(out, resp3),
        b"array" => {
            put_array(out, 3);
            (0..3).for_each(|n| put_integer(out, n));
        }
        b"set" => {
            put_set(out, resp3, 3);
            (0..3).for_each(|n| put_integer(out, n));
        }
        b"map" => {
            put_map(out, resp3, 3);
            for n in 0..3 {
                put_integer(out, n);
                put_boolean(out, resp3, n == 1);
            }
        }
        b"attrib" => {
            if resp3 {
                put_head(out, b'|', 1);
                put_bulk(out, b"key-popularity");
                put_array(out, 2);
                put_bulk(out, b"key:123");
                put_integer(out, 90);
            }
            put_bulk(out, b"Some real reply following the attribute");
        }
        b"push" if resp3 => {
            put_head(out, b'>', 2);
            put_bulk(out, b"server-cpu-usage");
            put_integer(out, 42);
        }
        b"push" => return Err(Fail::of("ERR RESP2 is not supported by this command")),
        b"true" => put_boolean(out, resp3, true),
        b"false" => put_boolean(out, resp3, false),
        b"verbatim" => crate::redis::reply::put_verbatim(out, resp3, "This is a verbatim\nstring"),
        b"bignum" => {
            let digits = "1234567999999999999999999999999999999";
            if resp3 {
                out.put(format!("({digits}\r\n").as_bytes());
            } else {
                put_bulk(out, digits.as_bytes());
            }
        }
        _ => {
            return Err(Fail::of(
                "ERR Wrong protocol type name. Please use one of the following: string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

fn put_boolean(out: &mut crate::core::output::Output, resp3: bool, holds: bool) {
    match (resp3, holds) {
        (true, true) => out.put(b"#t\r\n"),
        (true, false) => out.put(b"#f\r\n"),
        (false, holds) => put_integer(out, i64::from(holds)),
    }
}

/// Bytes of a colon and a key's number.
const COUNT_BYTES_MAX: usize = 16;
/// How many keys DEBUG POPULATE sets, at most.
const POPULATE_MAX: i64 = 10_000_000;

fn populate(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let count = integer(next(&mut args)?)?;
    if !(0..=POPULATE_MAX).contains(&count) {
        return Err(Fail::NOT_AN_INTEGER);
    }
    let prefix = args.next().unwrap_or(b"key");
    let size = match args.next() {
        Some(size) => Some(usize::try_from(integer(size)?).map_err(|_| Fail::NOT_AN_INTEGER)?),
        None => None,
    };
    if size.is_some_and(|size| size as u64 > call.value_bytes_max()) {
        return Err(Fail::TOO_LONG);
    }
    if prefix.len() + COUNT_BYTES_MAX > KEY_BYTES_MAX {
        return Err(Fail::KEY_TOO_LONG);
    }
    let held = Heap::keep(call, prefix.len() + size.unwrap_or(0))?;
    call.work(Populating { n: 0, count, prefix: prefix.into(), size, _held: held })
}

/// A DEBUG POPULATE, which sets keys in steps.
#[derive(Debug)]
struct Populating {
    n: i64,
    count: i64,
    prefix: Box<[u8]>,
    size: Option<usize>,
    _held: Heap,
}

impl Job for Populating {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let mut value = Vec::new();
        while self.n < self.count && ns < ns_max {
            let name = [&self.prefix, &b":"[..], self.n.to_string().as_bytes()].concat();
            value.clear();
            value.extend_from_slice(format!("value:{}", self.n).as_bytes());
            value.resize(self.size.unwrap_or(value.len()), 0);
            let key = call.key(&name);
            let _ = call.store(&key, &value, &Attributes::default(), Expect::Absent)?;
            self.n += 1;
            ns += STORE_NS + 2 * copying_ns((name.len() + value.len()) as u64);
            ns += call.cx.guard.take_beside_ns();
        }
        call.spend(ns);
        if self.n < self.count {
            return Ok(Step::More);
        }
        call.ok()?;
        Ok(Step::Done)
    }
}

fn digest(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let digesting = Digesting::new(call);
    call.survey(Goal::Digest(digesting), 0)
}

fn digest_value(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let mark = call.out.mark();
    call.array(args.len());
    if call.cx.guard.in_transaction() {
        return call.in_pieces(mark, args, |call, args| {
            let piece = call.piece();
            for name in args {
                let mut ns = 0;
                let mut begun = begin_value(call, name, &mut ns);
                while let Some(mut hashing) = begun {
                    begun = go_on_with_value(call, &mut hashing, &mut ns).then_some(hashing);
                }
                if !call.goes_on(piece) {
                    return;
                }
            }
        });
    }
    let kept = Kept::new(call, args).inspect_err(|_| call.out.rewind(mark))?;
    call.go_on_with(Values { kept, under_way: None });
    Ok(())
}

/// Replies the digest of a key's value, or begins to hash a large one.
fn begin_value(call: &mut Call<'_, '_, '_>, name: &[u8], ns: &mut u64) -> Option<Hashing> {
    let key = call.key(name);
    let (mut digest, now) = (Digest::default(), call.cx.now());
    *ns += KEY_NS;
    if let Some(item) = call.cx.guard.peek(&key).hit() {
        let mut hash = Hash::of(&[]);
        match item.value() {
            Value::Whole(bytes) => {
                hash.eat(bytes);
                *ns += bytes.len() as u64;
            }
            Value::Pieces(value) => return Some(Hashing::new(hash, value.pin())),
            Value::Collection(collection) => {
                let collection = collection.elements_at(now);
                hash.eat(&digest_of(&collection).to_le_bytes());
                *ns += collection.len() as u64 * KEY_NS;
            }
        }
        digest.add(hash.end());
    }
    put_bulk(call.out, digest.text().as_bytes());
    None
}

/// Hashes some more of a value, and replies its digest at the end; true if it goes on.
fn go_on_with_value(call: &mut Call<'_, '_, '_>, hashing: &mut Hashing, ns: &mut u64) -> bool {
    let Some(hash) = hashing.step(ns) else { return true };
    let mut digest = Digest::default();
    digest.add(hash);
    put_bulk(call.out, digest.text().as_bytes());
    false
}

/// A DEBUG DIGEST-VALUE: each value as it is when its turn comes.
#[derive(Debug)]
struct Values {
    kept: Kept,
    under_way: Option<Hashing>,
}

impl Job for Values {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let step = loop {
            if ns >= ns_max {
                break Step::More;
            }
            if let Some(hashing) = &mut self.under_way {
                if !go_on_with_value(call, hashing, &mut ns) {
                    self.under_way = None;
                }
                continue;
            }
            if self.kept.left() == 0 {
                break Step::Done;
            }
            if call.out.is_full() {
                break Step::Full;
            }
            let begun = |words: &mut Args<'_>| begin_value(call, words.next().unwrap_or_default(), &mut ns);
            self.under_way = self.kept.take(begun);
        };
        call.spend(ns);
        Ok(step)
    }

    fn held_bytes(&self) -> u64 {
        self.kept.held_bytes()
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
