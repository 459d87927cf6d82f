//! COMMAND: the command table, as clients read it.

use larder_protocol::resp::Args;

use crate::core::glob::Pattern;
use crate::redis::call::{Call, NAME_NS, NAMES_AT_ONCE, few_names, is, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::help::help;
use crate::redis::permissions::{CATEGORIES_NS, categories};
use crate::redis::reply::{put_array, put_bulk, put_integer, put_map, put_null, put_set, put_simple};
use crate::redis::row::flag::{self, LOADING, REPLIES_A_WORD, STALE, WEIGHTLESS};
use crate::redis::row::{Access, Command, Keys, NO_KEYS, Run, Secret};
use crate::redis::rows::{Group, Rows};
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;
use crate::redis::steps::pieces::Pieces;

/// The ACL category of COMMAND, as in Redis.
const CONNECTION: &[&str] = &["connection"];

pub(crate) const ROWS: &[Definition] = &[
    Command::args("command|count", 2, LOADING | STALE | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, |call, _| {
        let count = call.shared.rows.all().count();
        call.length(count)
    })
    .categories(CONNECTION)
    .doc("2.8.13", "", "How many commands there are."),
    Command::args("command|info", -2, LOADING | STALE | WEIGHTLESS, NO_KEYS, info)
        .categories(CONNECTION)
        .doc("2.8.13", "[command-name [command-name ...]]", "What commands are like."),
    Command::args("command|docs", -2, LOADING | STALE | WEIGHTLESS, NO_KEYS, docs)
        .categories(CONNECTION)
        .doc("7.0.0", "[command-name [command-name ...]]", "What commands do."),
    Command::args("command|list", -2, LOADING | STALE | WEIGHTLESS, NO_KEYS, list)
        .categories(CONNECTION)
        .doc(
            "7.0.0",
            "[FILTERBY <MODULE module-name|ACLCAT category|PATTERN pattern>]",
            "The names of the commands.",
        ),
    Command::args("command|getkeys", -3, LOADING | STALE | WEIGHTLESS, NO_KEYS, get_keys)
        .secret(Secret::OfAnother)
        .categories(CONNECTION)
        .doc("2.8.13", "command [arg [arg ...]]", "The keys among a command's arguments."),
    Command::args("command|getkeysandflags", -3, LOADING | STALE | WEIGHTLESS, NO_KEYS, get_keys_and_flags)
        .secret(Secret::OfAnother)
        .categories(CONNECTION)
        .doc(
            "7.0.0",
            "command [arg [arg ...]]",
            "The keys among a command's arguments, and what it does with them.",
        ),
    Command::args("command|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| help(call, "command"))
        .categories(CONNECTION)
        .doc("5.0.0", "", "What COMMAND can do."),
];

/// Serves COMMAND without a subcommand.
pub(crate) fn all(call: &mut Call<'_, '_, '_>) -> Done {
    let rows = call.shared.rows;
    call.array(rows.all().count());
    for (group, row) in rows.all() {
        put_info(call, group, row);
    }
    Ok(())
}

/// Work to look at a command's row.
const ROW_NS: u64 = 10;

fn put_info(call: &mut Call<'_, '_, '_>, group: &Group, row: &Command) {
    put_array(call.out, 10);
    put_bulk(call.out, row.name.as_bytes());
    put_integer(call.out, i64::from(row.arity));
    let resp3 = call.client.resp3;
    let mut flags: Vec<&str> =
        (0..flag::NAMES.len()).filter(|bit| (row.wire >> bit) & 1 == 1).map(|bit| flag::NAMES[bit]).collect();
    if row.runs_script() {
        flags.push("no_mandatory_keys");
    }
    put_set(call.out, resp3, flags.len());
    flags.iter().for_each(|name| put_simple(call.out, name));
    for place in row.keys.range() {
        put_integer(call.out, i64::from(place));
    }
    put_set(call.out, resp3, categories(group, row).count());
    categories(group, row).for_each(|name| put_simple(call.out, &format!("@{name}")));
    // The tips: none.
    put_array(call.out, 0);
    put_key_specs(call, row);
    put_array(call.out, row.subcommands().len());
    for sub in row.subcommands() {
        put_info(call, group, sub);
    }
}

/// Where some of a command's keys are, and its access to them.
#[derive(Clone, Copy, Debug)]
struct Spec {
    access: Access,
    /// The keys begin at this argument.
    from: i32,
    /// The word behind which they begin instead; it is looked for from that argument on.
    word: Option<&'static str>,
    range: Range,
}

/// How the keys go on.
#[derive(Clone, Copy, Debug)]
enum Range {
    /// Up to this argument, counted from the first, or if negative from the end; of the words up to there one in `limit`.
    To { last: i32, step: i32, limit: i32 },
    /// The first argument is their number; they are behind it.
    Counted { step: i32 },
}

/// The places of a command's keys. Of keys that a function finds, only the first.
fn specs(row: &Command) -> Vec<Spec> {
    let spec = |access, from, range| Spec { access, from, word: None, range };
    let one = Range::To { last: 0, step: 1, limit: 0 };
    match row.keys {
        Keys::None => Vec::new(),
        Keys::Counted { count, step } => vec![spec(row.access_of(0), count, Range::Counted { step })],
        Keys::By(_) => vec![spec(row.access_of(0), 1, one)],
        Keys::Behind { word, from, .. } => {
            let range = Range::To { last: -1, step: 1, limit: 2 };
            vec![Spec { access: row.access_of(0), from, word: Some(word), range }]
        }
        // Each key with an access of its own has its own entry; the others share one.
        Keys::Range { first, last, step } => (0..row.access.len().max(1))
            .map(|nth| {
                let from = first + nth as i32 * step;
                if nth + 1 < row.access.len() {
                    return spec(row.access_of(nth), from, one);
                }
                let last = if last < 0 { last } else { last - from };
                spec(row.access_of(nth), from, Range::To { last, step, limit: 0 })
            })
            .collect(),
    }
}

/// Replies where the keys are, in the form of Redis 7.
fn put_key_specs(call: &mut Call<'_, '_, '_>, row: &Command) {
    let resp3 = call.client.resp3;
    let specs = specs(row);
    put_set(call.out, resp3, specs.len());
    for spec in specs {
        put_key_spec(call, row, spec);
    }
}

fn put_key_spec(call: &mut Call<'_, '_, '_>, row: &Command, spec: Spec) {
    let resp3 = call.client.resp3;
    put_map(call.out, resp3, 3);
    put_bulk(call.out, b"flags");
    let mut access = spec.access.words().to_vec();
    if row.uses.is_some() {
        access = [Access::Change.words(), &["variable_flags"]].concat();
    }
    if let Keys::By(_) = row.keys {
        access.push("incomplete");
    }
    put_set(call.out, resp3, access.len());
    access.iter().for_each(|name| put_simple(call.out, name));
    put_bulk(call.out, b"begin_search");
    put_map(call.out, resp3, 2);
    let (kind, place) = if spec.word.is_some() { ("keyword", "startfrom") } else { ("index", "index") };
    put_bulk(call.out, b"type");
    put_bulk(call.out, kind.as_bytes());
    put_bulk(call.out, b"spec");
    put_map(call.out, resp3, 1 + usize::from(spec.word.is_some()));
    if let Some(word) = spec.word {
        put_bulk(call.out, b"keyword");
        put_bulk(call.out, word.as_bytes());
    }
    put_bulk(call.out, place.as_bytes());
    put_integer(call.out, i64::from(spec.from));
    put_bulk(call.out, b"find_keys");
    put_map(call.out, resp3, 2);
    put_bulk(call.out, b"type");
    let (kind, parts) = match spec.range {
        Range::To { last, step, limit } => {
            ("range", [("lastkey", last), ("keystep", step), ("limit", limit)])
        }
        Range::Counted { step } => ("keynum", [("keynumidx", 0), ("firstkey", 1), ("keystep", step)]),
    };
    put_bulk(call.out, kind.as_bytes());
    put_bulk(call.out, b"spec");
    put_map(call.out, resp3, parts.len());
    for (name, n) in parts {
        put_bulk(call.out, name.as_bytes());
        put_integer(call.out, i64::from(n));
    }
}

/// Finds the command, or `container|subcommand`, of this name.
pub(super) fn named(rows: &Rows, name: &[u8]) -> Option<(&'static Group, &'static Command)> {
    let (container, sub) = match name.iter().position(|&byte| byte == b'|') {
        Some(at) => (&name[..at], Some(&name[at + 1..])),
        None => (name, None),
    };
    let (row, id) = rows.find(container)?;
    let group = rows.group_of(id)?;
    match sub {
        None => Some((group, row)),
        Some(sub) => Some((group, &row.subcommands()[row.subcommand(sub)?])),
    }
}

fn info(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    if args.is_empty() {
        return all(call);
    }
    let mark = call.out.mark();
    call.array(args.len());
    call.in_pieces(mark, args, |call, args| {
        let piece = call.piece();
        for name in args {
            match named(call.shared.rows, name) {
                Some((group, row)) => put_info(call, group, row),
                None => put_null(call.out, call.client.resp3),
            }
            if !call.goes_on(piece) {
                return;
            }
        }
    })
}

fn put_docs(call: &mut Call<'_, '_, '_>, group: &Group, row: &Command) {
    put_bulk(call.out, row.name.as_bytes());
    let subcommands = row.subcommands();
    let resp3 = call.client.resp3;
    let arguments = super::usage::arguments(row.usage).unwrap_or_default();
    let more = usize::from(!subcommands.is_empty()) + usize::from(!arguments.is_empty());
    put_map(call.out, resp3, 4 + more);
    let complexity = if row.has(flag::FAST) { "O(1)" } else { "O(N)" };
    for (name, text) in
        [("summary", row.summary), ("since", row.since), ("group", group.name), ("complexity", complexity)]
    {
        put_bulk(call.out, name.as_bytes());
        put_bulk(call.out, text.as_bytes());
    }
    if !arguments.is_empty() {
        put_bulk(call.out, b"arguments");
        super::usage::put(call.out, resp3, row, &arguments);
    }
    if !subcommands.is_empty() {
        put_bulk(call.out, b"subcommands");
        put_map(call.out, resp3, subcommands.len());
        for sub in subcommands {
            put_docs(call, group, sub);
        }
    }
}

fn docs(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let (mark, rows) = (call.out.mark(), call.shared.rows);
    if args.is_empty() {
        call.map(rows.all().count());
        rows.all().for_each(|(group, row)| put_docs(call, group, row));
        return Ok(());
    }
    if args.len() > NAMES_AT_ONCE && !call.cx.guard.in_transaction() {
        let kept = Kept::new(call, args)?;
        call.go_on_with(Counting { kept: Some(kept), at: 0, left: args.len(), count: 0 });
        return Ok(());
    }
    call.spend(args.len() as u64 * NAME_NS);
    call.map(args.filter_map(|name| named(rows, name)).count());
    call.in_pieces(mark, args, put_some_docs)
}

/// Writes the documentation of some commands.
fn put_some_docs(call: &mut Call<'_, '_, '_>, args: &mut Args<'_>) {
    let piece = call.piece();
    for name in args {
        if let Some((group, row)) = named(call.shared.rows, name) {
            put_docs(call, group, row);
        }
        if !call.goes_on(piece) {
            return;
        }
    }
}

/// A COMMAND DOCS of very many names: existing commands are counted before the first is written.
#[derive(Debug)]
struct Counting {
    /// All the names, until they are counted.
    kept: Option<Kept>,
    /// Where the next name to look at begins.
    at: usize,
    /// How many names are left, that one counted.
    left: usize,
    count: usize,
}

impl Job for Counting {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let some = self.left.min((call.step_ns() / NAME_NS) as usize);
        if let Some(kept) = &self.kept {
            let all = kept.words().encoded();
            let mut names = Args::rest(&all[self.at..], self.left);
            let rows = call.shared.rows;
            self.count += names.by_ref().take(some).filter_map(|name| named(rows, name)).count();
            (self.at, self.left) = (all.len() - names.encoded().len(), names.len());
        }
        call.spend(some as u64 * NAME_NS);
        if self.left > 0 {
            return Ok(Step::More);
        }
        call.map(self.count);
        if let Some(kept) = self.kept.take() {
            call.go_on_with(Pieces::of(put_some_docs, kept));
        }
        Ok(Step::Done)
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        self.kept.as_mut()
    }
}

/// All rows with their groups, including subcommands.
fn all_rows(rows: &Rows) -> impl Iterator<Item = (&'static Group, &'static Command)> + use<> {
    rows.all().flat_map(|(group, row)| {
        std::iter::once((group, row)).chain(row.subcommands().iter().map(move |sub| (group, sub)))
    })
}

fn list(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let known = call.shared.rows;
    let all = || all_rows(known);
    let rows = all().count() as u64;
    call.spend(rows * ROW_NS);
    let names: Vec<&str> = match args.next() {
        None => all().map(|(_, row)| row.name).collect(),
        Some(word) if is(word, "FILTERBY") && args.len() == 2 => {
            let (by, what) = (next(&mut args)?, next(&mut args)?);
            if is(by, "MODULE") {
                Vec::new()
            } else if is(by, "ACLCAT") {
                call.spend(rows * CATEGORIES_NS);
                let has = |name: &str| name.as_bytes().eq_ignore_ascii_case(what);
                all()
                    .filter(|(group, row)| categories(group, row).any(has))
                    .map(|(_, row)| row.name)
                    .collect()
            } else if is(by, "PATTERN") {
                let what = crate::redis::call::bounded(what)?;
                let _held = Heap::of_pattern(call, what, true);
                let pattern = Pattern::of(what, true);
                let names: Vec<&str> = all().map(|(_, row)| row.name).collect();
                let bytes = names.iter().map(|name| name.len() as u64).sum();
                call.spend(pattern.weight().with_reading_ns(names.len() as u64, bytes));
                names.into_iter().filter(|name| pattern.matches(name.as_bytes())).collect()
            } else {
                return Err(Fail::SYNTAX);
            }
        }
        Some(_) => return Err(Fail::SYNTAX),
    };
    put_set(call.out, call.client.resp3, names.len());
    names.iter().for_each(|name| put_bulk(call.out, name.as_bytes()));
    Ok(())
}

fn get_keys(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    few_names(args)?;
    call.spend(args.len() as u64 * NAME_NS);
    let _held = Heap::take(call, args.len() * size_of::<&[u8]>())?;
    call.make_room(args.encoded().len())?;
    let (_, keys, _) = keys_of(call.shared.rows, args)?;
    call.array(keys.len());
    keys.iter().for_each(|key| put_bulk(call.out, key));
    Ok(())
}

/// Bytes of a key's entry beside the key, at most.
const ACCESS_BYTES: usize = 64;

fn get_keys_and_flags(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    few_names(args)?;
    call.spend(2 * args.len() as u64 * NAME_NS);
    let _held = Heap::take(call, args.len() * size_of::<&[u8]>())?;
    call.make_room(args.encoded().len() + args.len() * ACCESS_BYTES)?;
    let (row, keys, args) = keys_of(call.shared.rows, args)?;
    let uses = row.uses.map(|uses| uses(args));
    call.array(keys.len());
    for (nth, key) in keys.iter().enumerate() {
        call.array(2);
        put_bulk(call.out, key);
        let access = uses.unwrap_or(row.access_of(nth)).words();
        put_set(call.out, call.client.resp3, access.len());
        access.iter().for_each(|name| put_simple(call.out, name));
    }
    Ok(())
}

/// The command that these words name, its keys among them, and the words behind its name.
fn keys_of<'a>(rows: &Rows, mut args: Args<'a>) -> Result<(&'static Command, Vec<&'a [u8]>, Args<'a>), Fail> {
    let name = next(&mut args)?;
    let (row, _) = rows.find(name).ok_or(Fail::of("ERR Invalid command specified"))?;
    let mut row = row;
    let mut count = args.len() + 1;
    if let Run::Container(subcommands) = row.run
        && let Some(at) = args.next().and_then(|name| row.subcommand(name))
    {
        row = &subcommands[at];
        count = args.len() + 2;
    }
    if !row.keys.any() {
        return Err(Fail::of("ERR The command has no key arguments"));
    }
    if !row.takes(count) {
        return Err(Fail::of("ERR Invalid number of arguments specified for command"));
    }
    let mut keys = Vec::with_capacity(args.len());
    if row.counts_its_keys(args) {
        row.each_key(args, &mut |key| keys.push(key));
    } else if !row.runs_script() {
        return Err(Fail::of("ERR Invalid arguments specified for command"));
    }
    Ok((row, keys, args))
}
