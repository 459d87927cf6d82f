//! memcached's commands: the reply and the remaining value of each are written out; on keys that are too long the commands are
//! refused and change nothing.

use super::{KEY_BYTES, VALUE_BYTES, answered, key, shown, value};
use larder_commands::memcached::table::{CLASSIC, META, Run};
use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::pattern::{Captures, Match, Pattern};
use larder_testkit::talk::encode;

/// The longest key of the text protocols.
const TEXT_KEY_BYTES: usize = 250;
/// The longest line, except of a get.
const LINE_BYTES: usize = 2048;

/// A command on the item that `set {k} 5 0` has stored, its reply as a transcript writes it, and the value afterwards. `{k}`
/// stands for the key as the command names it, `{v}` for the value and `{l}` for its length, `{w}` for another value and `{m}`
/// for its length; `{n}` for the number that `Count` leaves.
struct Form {
    sent: &'static str,
    reply: &'static str,
    left: Left,
}

/// The value after a command.
#[derive(Clone, Copy)]
enum Left {
    Same,
    Nothing,
    /// The other value.
    Other,
    Both,
    OtherFirst,
    /// The number after this addition; the old value and an error if it is no number.
    Count(i64),
}

const fn form(sent: &'static str, reply: &'static str, left: Left) -> Form {
    Form { sent, reply, left }
}

const FORMS: &[Form] = &[
    form("get {k}", "VALUE {k} 5 {l}\\r\\n{v}\\r\\nEND", Left::Same),
    form("get {k} none {k}", "VALUE {k} 5 {l}\\r\\n{v}\\r\\nVALUE {k} 5 {l}\\r\\n{v}\\r\\nEND", Left::Same),
    form("gets {k}", "VALUE {k} 5 {l} $_\\r\\n{v}\\r\\nEND", Left::Same),
    form("gat 100 {k}", "VALUE {k} 5 {l}\\r\\n{v}\\r\\nEND", Left::Same),
    form("gats 0 {k}", "VALUE {k} 5 {l} $_\\r\\n{v}\\r\\nEND", Left::Same),
    form("set {k} 5 100 {m}\r\n{w}", "STORED", Left::Other),
    form("add {k} 5 0 {m}\r\n{w}", "NOT_STORED", Left::Same),
    form("replace {k} 5 0 {m}\r\n{w}", "STORED", Left::Other),
    form("append {k} 0 0 {m}\r\n{w}", "STORED", Left::Both),
    form("append {k} 0 0 0\r\n", "STORED", Left::Same),
    form("prepend {k} 0 0 {m}\r\n{w}", "STORED", Left::OtherFirst),
    form("cas {k} 5 0 {m} 9\r\n{w}", "EXISTS", Left::Same),
    form("delete {k}", "DELETED", Left::Nothing),
    form("incr {k} 3", "{n}", Left::Count(3)),
    form("decr {k} 3", "{n}", Left::Count(-3)),
    form("touch {k} 100", "TOUCHED", Left::Same),
    form("mg {k}", "HD", Left::Same),
    form("mg {k} v", "VA {l}\\r\\n{v}", Left::Same),
    form("mg {k} s t f c v k", "VA {l} s{l} t-1 f5 c$_ k{k}\\r\\n{v}", Left::Same),
    form("mg {k} E7 R30 T100 h l u v q", "VA {l} h0 l0\\r\\n{v}", Left::Same),
    form("mg {k} v N30 O1", "VA {l} O1\\r\\n{v}", Left::Same),
    form("ms {k} {m} F5\r\n{w}", "HD", Left::Other),
    form("ms {k} {m} F5 T100 c s k\r\n{w}", "HD c$_ s{m} k{k}", Left::Other),
    form("ms {k} {m} ME\r\n{w}", "NS", Left::Same),
    form("ms {k} {m} MR F5\r\n{w}", "HD", Left::Other),
    form("ms {k} {m} MA\r\n{w}", "HD", Left::Both),
    form("ms {k} {m} MP\r\n{w}", "HD", Left::OtherFirst),
    form("ms {k} {m} C9\r\n{w}", "EX", Left::Same),
    form("md {k}", "HD", Left::Nothing),
    form("md {k} C9", "EX", Left::Same),
    form("md {k} q", "", Left::Nothing),
    form("ma {k} D3 v", "{n}", Left::Count(3)),
    form("ma {k} MD D3 N0 J1 v", "{n}", Left::Count(-3)),
    form("mn", "MN", Left::Same),
    form("me {k}", "ME {k} exp=-1 la=$_ cas=$_ fetch=no cls=$_ size=$_", Left::Same),
];

const NOT_A_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// How a key is named.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Name {
    Plain,
    /// In base64, with flag b: meta commands only.
    Base64,
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("digits")
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    assert!(bytes.len().is_multiple_of(3));
    let letters = bytes.chunks(3).flat_map(|three| {
        let bits = three.iter().fold(0, |bits, &byte| bits << 8 | usize::from(byte));
        [18, 12, 6, 0].map(|shift| char::from(LETTERS[bits >> shift & 63]))
    });
    letters.collect()
}

/// The sum, as memcached adds; none if the value is no number.
fn counted(old: &[u8], by: i64) -> Option<String> {
    let old: u64 = text(old).parse().ok()?;
    let delta = by.unsigned_abs();
    Some(if by < 0 { old.saturating_sub(delta) } else { old.wrapping_add(delta) }.to_string())
}

/// A server and a client.
struct Talk {
    local: Local,
    client: LocalConnection,
}

impl Talk {
    fn new() -> Talk {
        let local = Local::new(&[]).expect("a server");
        let client = local.connection();
        Talk { local, client }
    }

    fn say(&mut self, sent: &[u8]) -> Vec<u8> {
        self.local.exchange(&mut self.client, sent);
        let got = self.client.sent().to_vec();
        self.client.forget();
        got
    }

    fn expect(&mut self, sent: &[u8], reply: &str) -> Result<(), String> {
        let got = self.say(sent);
        let expected = Pattern::parse(reply)?;
        if expected.matches(&got, &mut Captures::new()) == Match::Full(got.len()) {
            return Ok(());
        }
        let (sent, reply) = (shown(sent), shown(reply.as_bytes()));
        Err(format!("{sent}\n  expected {reply}\n  got      {}", shown(&got)))
    }

    fn run(&mut self, form: &Form, bytes: (usize, usize), name: Name) -> Result<(), String> {
        let key = key(bytes.0, b'a');
        let (old, other) = (value(bytes.1), value(bytes.1).into_iter().rev().collect::<Vec<_>>());
        let number = match form.left {
            Left::Count(by) => counted(&old, by),
            _ => None,
        };
        let left = match form.left {
            Left::Same => Some(old.clone()),
            Left::Nothing => None,
            Left::Other => Some(other.clone()),
            Left::Both => Some([&old[..], &other].concat()),
            Left::OtherFirst => Some([&other[..], &old].concat()),
            Left::Count(_) => Some(number.clone().map_or(old.clone(), String::into_bytes)),
        };
        let counted = match (&number, form.sent.starts_with("ma")) {
            (None, _) => NOT_A_NUMBER.into(),
            (Some(number), false) => number.clone(),
            (Some(number), true) => format!("VA {}\\r\\n{number}", number.len()),
        };
        let key_name = match name {
            Name::Plain => text(&key).to_owned(),
            Name::Base64 => base64(&key),
        };
        let filled = |text_with: &str| {
            let text_with = text_with.replace("{k}", &key_name).replace("{n}", &counted);
            let text_with =
                text_with.replace("{l}", &old.len().to_string()).replace("{m}", &other.len().to_string());
            text_with.replace("{v}", text(&old)).replace("{w}", text(&other))
        };
        let ended = |reply: String| if reply.is_empty() { reply } else { reply + "\\r\\n" };
        // Flag b, behind the key or, for ms, behind the length.
        let line = |sent: &str| match (name, sent.split_once("\r\n")) {
            (Name::Plain, _) => sent.to_owned() + "\r\n",
            (Name::Base64, Some((line, data))) => format!("{line} b\r\n{data}\r\n"),
            (Name::Base64, None) => format!("{sent} b\r\n"),
        };
        self.expect(line(&filled("ms {k} {l} F5\r\n{v}")).as_bytes(), "HD\\r\\n")?;
        let reply = filled(form.reply);
        let reply = if name == Name::Base64 && !reply.contains(NOT_A_NUMBER) {
            // Where the key is shown, the flag b is shown, too.
            reply.replace(&format!("k{key_name}"), &format!("k{key_name} b"))
        } else {
            reply
        };
        self.expect(line(&filled(form.sent)).as_bytes(), &ended(reply))?;
        let reply = match &left {
            Some(value) => format!("VA {0} s{0} f5\\r\\n{1}\\r\\n", value.len(), text(value)),
            None => "EN\\r\\n".into(),
        };
        self.expect(line(&filled("mg {k} s f v")).as_bytes(), &reply)
    }
}

fn all(
    mut run: impl FnMut(&mut Talk) -> Result<(), String>,
    talk: &mut Talk,
    what: String,
    wrong: &mut Vec<String>,
) {
    if let Err(why) = answered(|| run(talk)) {
        wrong.push(format!("{what}: {why}"));
        *talk = Talk::new();
    }
}

#[test]
fn every_item_command_on_every_length_is_answered_as_written() {
    let (mut talk, mut wrong) = (Talk::new(), Vec::new());
    for (key_bytes, name) in [(1, Name::Plain), (TEXT_KEY_BYTES, Name::Plain), (186, Name::Base64)] {
        for value_bytes in VALUE_BYTES {
            for form in FORMS.iter().filter(|form| name == Name::Plain || form.sent.starts_with('m')) {
                let what = format!("key {key_bytes} {name:?}, value {value_bytes}, {:?}", form.sent);
                all(|talk| talk.run(form, (key_bytes, value_bytes), name), &mut talk, what, &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
}

#[test]
fn every_item_command_refuses_longer_keys_and_changes_nothing() {
    let (mut talk, mut wrong) = (Talk::new(), Vec::new());
    for key_bytes in KEY_BYTES.into_iter().filter(|&bytes| bytes > TEXT_KEY_BYTES) {
        for value_bytes in VALUE_BYTES {
            for form in FORMS.iter().filter(|form| form.sent.contains("{k}")) {
                let what = format!("key {key_bytes}, value {value_bytes}, {:?}", form.sent);
                all(|talk| refused(talk, form, key_bytes, value_bytes), &mut talk, what, &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
}

fn refused(talk: &mut Talk, form: &Form, key_bytes: usize, value_bytes: usize) -> Result<(), String> {
    let (key, value) = (key(key_bytes, b'a'), value(value_bytes));
    let mut resp = talk.local.resp_connection();
    talk.local.exchange(&mut resp, &encode(&[b"SET", &key, &value]));
    let filled = form.sent.replace("{k}", text(&key)).replace("{m}", &value.len().to_string());
    let sent = filled.replace("{w}", text(&value)) + "\r\nmn\r\n";
    let got = talk.say(sent.as_bytes());
    let line_bytes = filled.split("\r\n").next().map_or(0, str::len);
    let keeps_line = line_bytes <= LINE_BYTES || form.sent.starts_with("get");
    let right = match keeps_line {
        true => got == b"CLIENT_ERROR bad command line format\r\nMN\r\n",
        // As in memcached: without a line there is no reply.
        false => got.is_empty() && talk.client.is_closed(),
    };
    if !right {
        return Err(format!("got {}", shown(&got)));
    }
    if talk.client.is_closed() {
        talk.client = talk.local.connection();
    }
    resp.forget();
    talk.local.exchange(&mut resp, &encode(&[b"GET", &key]));
    let expected = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    if resp.sent() != expected { Err(format!("it has become {}", shown(resp.sent()))) } else { Ok(()) }
}

#[test]
fn every_item_command_has_a_form() {
    for row in CLASSIC.iter().chain(META).filter(|row| matches!(row.run, Run::Item)) {
        let named = |form: &&Form| form.sent.split(' ').next() == Some(row.name);
        assert!(FORMS.iter().any(|form| named(&form)), "{} has no form", row.name);
    }
}
