//! Replies too long to be made at once: every key, every prefix, every connection. Replies to commands that take long are here,
//! too: a page of memory that moves, a flush behind very many.
//!
//! A dump is a cursor. Each step writes until the output is full or a bounded number of entries was looked at, so that other
//! connections have their turn. The session goes on with the dump when it is called again.

use std::sync::Arc;

use larder_protocol::base64;
use larder_protocol::binary::Status;
use larder_protocol::classic::KEY_BYTES_MAX;
use larder_protocol::number::parse_u64;
use larder_store::{Item, Store};

use super::form::{FIGURE_BYTES_MAX, Form, put_frame};
use super::page::PageMove;
use super::shared::Shared;
use super::sizes::Sizes;
use super::slabs::CLASSES_END;
use super::steps::{ITEM_NS, ITEMS_PER_WALK, Step};
use super::text::{END, META_MISS, is_text, put_escaped, put_key, put_meta_key, put_number};
use crate::core::context::Context;
use crate::core::host::Connection;
use crate::core::output::Output;
use crate::core::prefix::PrefixCount;
use crate::core::work::{CLEANING_NS, COMMAND_NS};

/// Connections or prefixes written between two looks at the output.
const ROWS_PER_STEP: usize = 128;
/// Nanoseconds to write a connection.
const CONNECTION_NS: u64 = 500;
/// Nanoseconds to write a prefix.
const PREFIX_NS: u64 = 300;
/// Nanoseconds to find a prefix in a worker's table.
const PREFIX_TABLE_NS: u64 = 150;
/// Least prefixes of a step, however many tables there are.
const PREFIXES_MIN: usize = 16;
/// Nanoseconds to move a span full of short items.
const SPAN_NS: u64 = 250_000;
/// Most bytes that `stats cachedump` writes: memcached's limit.
const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

/// The slab classes of a dump, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classes(u64);

impl Classes {
    /// `all`, `hash` (if a dump), or numbers with commas between.
    pub fn parse(text: &[u8], dump: bool) -> Option<Classes> {
        if text == b"all" || dump && text == b"hash" {
            return Some(Classes(!0));
        }
        let mut classes = 0;
        for id in text.split(|&b| b == b',') {
            classes |= 1 << parse_u64(id).filter(|&id| id > 0 && id < u64::from(CLASSES_END))?;
        }
        Some(Classes(classes))
    }

    fn has(self, class: u8) -> bool {
        self.0 & 1u64.checked_shl(u32::from(class)).unwrap_or(0) != 0
    }
}

/// The lines that are written for items.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lines {
    /// `key=… exp=…`, ended by END.
    Meta,
    /// `mg <key>`, ended by EN.
    Mg,
    /// `ITEM <key> […]`, at most so many items and bytes, ended by END.
    Cache { items: u64, bytes: usize },
}

/// A long reply under way.
#[derive(Debug)]
pub(crate) enum Dump {
    Items { lines: Lines, classes: Classes, cursor: u64 },
    Prefixes { after: Option<Box<[u8]>>, form: Form },
    Connections { from: u64, form: Form },
    Sizes(Box<Sizes>),
    Page(PageMove),
    Flush { noreply: bool, form: Form },
}

impl Dump {
    /// lru_crawler metadump
    pub fn meta(classes: Classes) -> Dump {
        Dump::Items { lines: Lines::Meta, classes, cursor: 0 }
    }

    /// lru_crawler mgdump
    pub fn mg(classes: Classes) -> Dump {
        Dump::Items { lines: Lines::Mg, classes, cursor: 0 }
    }

    /// stats cachedump; 0 items means no limit.
    pub fn cache(class: u8, items: u64) -> Dump {
        let items = if items == 0 { u64::MAX } else { items };
        let lines = Lines::Cache { items, bytes: CACHEDUMP_BYTES_MAX };
        Dump::Items { lines, classes: Classes(1 << class), cursor: 0 }
    }

    /// stats detail dump
    pub fn prefixes(form: Form) -> Dump {
        Dump::Prefixes { after: None, form }
    }

    /// stats conns
    pub fn connections(form: Form) -> Dump {
        Dump::Connections { from: 0, form }
    }

    /// stats sizes
    pub fn sizes(store: &Arc<Store>, form: Form) -> Dump {
        Dump::Sizes(Box::new(Sizes::new(store, form)))
    }

    /// Goes on writing.
    pub fn step(&mut self, shared: &Shared, cx: &mut Context<'_, '_>, out: &mut Output) -> Step {
        match self {
            Dump::Items { lines, classes, cursor } => step_items(shared, cx, out, lines, *classes, cursor),
            Dump::Page(page) => {
                cx.spend(out, SPAN_NS);
                page.step(cx, out)
            }
            Dump::Flush { noreply, form } => step_flush(cx, out, (!*noreply).then_some(*form)),
            Dump::Sizes(sizes) => sizes.step(cx, out),
            Dump::Prefixes { after, form } => {
                let (mut rows, form) = (0, *form);
                let tables = cx.shared.prefixes.tables().max(1);
                let most = (ROWS_PER_STEP / tables).max(PREFIXES_MIN);
                let delimiter = cx.shared.settings.prefix_delimiter;
                let next = cx.shared.prefixes.walk(after.as_deref(), most, |prefix, count| {
                    rows += 1;
                    put_prefix(out, form, delimiter, prefix, count);
                });
                cx.spend(out, COMMAND_NS + rows * (PREFIX_NS + tables as u64 * PREFIX_TABLE_NS));
                ended(out, form, next.map(|next| *after = Some(next)).is_some())
            }
            Dump::Connections { from, form } => {
                let (mut rows, form) = (0, *form);
                let next = cx.host.connections(*from, ROWS_PER_STEP, &mut |row| {
                    rows += 1;
                    put_connection(out, form, row);
                });
                cx.spend(out, COMMAND_NS + rows * CONNECTION_NS);
                ended(out, form, next.map(|next| *from = next).is_some())
            }
        }
    }
}

/// Goes on with a flush: cleans up what earlier ones left, until there may be one more. `form` is that of the reply, if there
/// is one.
fn step_flush(cx: &mut Context<'_, '_>, out: &mut Output, form: Option<Form>) -> Step {
    while !cx.shared.flush_now(&mut cx.guard) {
        cx.guard.take_beside_ns();
        cx.spend(out, CLEANING_NS);
        if cx.room.work().is_used_up() {
            return Step::More;
        }
    }
    if let Some(form) = form {
        form.done(out);
    }
    Step::Done
}

/// Ends a step of rows; the reply's end is written if there are no more.
fn ended(out: &mut Output, form: Form, more: bool) -> Step {
    if !more {
        form.end(out);
        Step::Done
    } else if out.is_full() {
        Step::Full
    } else {
        Step::More
    }
}

fn step_items(
    shared: &Shared,
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    lines: &mut Lines,
    classes: Classes,
    cursor: &mut u64,
) -> Step {
    loop {
        cx.spend(out, ITEMS_PER_WALK as u64 * ITEM_NS);
        cx.spend_beside(out);
        let now = cx.now();
        // The database that text clients read and write, and nothing of the others.
        let database = cx.guard.database(0);
        *cursor = cx.guard.walk(*cursor, ITEMS_PER_WALK, &mut |item| {
            let shown =
                Shown { cas: cx.shared.settings.token(item.cas()), class: shared.slabs.of(item.class()) };
            if item.is_in(database) && classes.has(shown.class) {
                put_item(out, lines, &item, shown, now);
            }
        });
        let used_up = matches!(lines, Lines::Cache { items: 0, .. } | Lines::Cache { bytes: 0, .. });
        if *cursor == 0 || used_up {
            out.put(if matches!(lines, Lines::Mg) { META_MISS } else { END });
            return Step::Done;
        }
        if out.is_full() {
            return Step::Full;
        }
    }
}

/// Parts of an item that are shown otherwise than the store has them.
#[derive(Clone, Copy)]
struct Shown {
    cas: u64,
    class: u8,
}

/// Returns whether a text client can name an item. A longer key is Redis's alone, and so is one that would be too long in
/// base64.
fn has_a_name(lines: &Lines, item: &Item<'_>) -> bool {
    let key = item.key();
    let bytes = match lines {
        Lines::Mg if item.key_binary() || !is_text(key) => base64::encoded_bytes(key.len()),
        Lines::Mg | Lines::Meta | Lines::Cache { .. } => key.len(),
    };
    bytes <= KEY_BYTES_MAX
}

fn put_item(out: &mut Output, lines: &mut Lines, item: &Item<'_>, shown: Shown, now: u64) {
    if !has_a_name(lines, item) {
        return;
    }
    match lines {
        Lines::Meta => put_meta(out, item, shown, now),
        Lines::Mg => {
            out.put(b"mg ");
            put_meta_key(out, item.key(), item.key_binary());
            out.put(b"\r\n");
        }
        Lines::Cache { items: 0, .. } => {}
        Lines::Cache { items, bytes } => {
            let line = item.key().len() + 60;
            if *bytes < line {
                *bytes = 0;
                return;
            }
            *bytes -= line;
            *items -= 1;
            out.put(b"ITEM ");
            put_key(out, item.key());
            out.put(b" [");
            put_number(out, item.value_bytes());
            out.put(b" b; ");
            put_number(out, item.expires_at() / 1000);
            out.put(b" s]\r\n");
        }
    }
}

fn put_meta(out: &mut Output, item: &Item<'_>, shown: Shown, now: u64) {
    out.put(b"key=");
    put_escaped(out, item.key());
    out.put(b" exp=");
    match item.expires_at() {
        0 => out.put(b"-1"),
        expires => put_number(out, expires / 1000),
    }
    for (name, n) in [(&b" la="[..], (now / 1000).saturating_sub(item.idle_s())), (b" cas=", shown.cas)] {
        out.put(name);
        put_number(out, n);
    }
    out.put(if item.fetched() { b" fetch=yes" } else { b" fetch=no" });
    for (name, n) in [
        (&b" cls="[..], u64::from(shown.class)),
        (b" size=", item.item_bytes()),
        (b" flags=", u64::from(item.flags())),
    ] {
        out.put(name);
        put_number(out, n);
    }
    // memcached ends these lines with a bare line feed after a space.
    out.put(b" \n");
}

/// Writes a prefix and its counts: a line, or a frame whose key is the prefix. A frame without a key would end the dump, so
/// that the frame of the empty prefix has the delimiter, which is part of no prefix.
fn put_prefix(out: &mut Output, form: Form, delimiter: u8, prefix: &[u8], count: PrefixCount) {
    let counts = [
        (&b" get "[..], count.gets),
        (b" hit ", count.hits),
        (b" set ", count.sets),
        (b" del ", count.deletes),
    ];
    match form {
        Form::Text => {
            out.put(b"PREFIX ");
            put_key(out, prefix);
            for (name, n) in counts {
                out.put(name);
                put_number(out, n);
            }
            out.put(b"\r\n");
        }
        Form::Frames(head) => {
            let key = if prefix.is_empty() { &[delimiter][..] } else { prefix };
            let mut text = Vec::new();
            for (name, n) in counts {
                text.extend_from_slice(if text.is_empty() { &name[1..] } else { name });
                text.extend_from_slice(n.to_string().as_bytes());
            }
            debug_assert!(key.len() + text.len() <= FIGURE_BYTES_MAX, "a prefix is shorter than its key");
            put_frame(out, head, Status::Ok, key, &text);
        }
    }
}

fn put_connection(out: &mut Output, form: Form, row: &Connection) {
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        form.put(out, &format_args!("{}:{name}", row.id), value);
    };
    line("addr", &row.address);
    if let Some(listen) = &row.listen_address {
        line("listen_addr", listen);
    }
    line("state", &row.state);
    line("secs_since_last_cmd", &row.idle_s);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_numbers_below_the_limit() {
        assert_eq!(Classes::parse(b"all", false), Some(Classes(!0)));
        assert_eq!(Classes::parse(b"hash", true), Some(Classes(!0)));
        assert_eq!(Classes::parse(b"hash", false), None);
        assert_eq!(Classes::parse(b"1,63", true), Some(Classes(1 << 1 | 1 << 63)));
        for bad in ["0", "64", "1,", "", "x", "-1", "1,77"] {
            assert_eq!(Classes::parse(bad.as_bytes(), true), None, "{bad}");
        }
        assert!(Classes(!0).has(63));
        assert!(!Classes(!0).has(64));
    }
}
