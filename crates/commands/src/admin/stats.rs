//! stats and its sub-commands.

use std::fmt::Display;
use std::io::Write;

use larder_protocol::Fault;
use larder_protocol::number::parse_u64;

use super::Line;
use crate::dump::Dump;
use crate::flow::Flow;
use crate::output::Output;
use crate::slabs::{CLASSES_END, PAGE_BYTES, SPANS_PER_PAGE};
use crate::stats::{Figures, KEYS};
use crate::text::{END, ERROR, OK};

/// stats [settings | items | slabs | sizes | conns | reset | detail | cachedump]
pub(crate) fn stats(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    match line.tokens.first().copied() {
        None => general(line),
        Some(b"settings") => {
            let out = &mut *line.out;
            line.cx.host.settings(&mut |name, value| put_stat(out, &name, value));
        }
        Some(b"items") => items(line),
        Some(b"slabs") => slabs(line),
        Some(b"sizes") if line.cx.shared.settings.track_sizes => return Flow::Dump(Dump::sizes()),
        Some(b"sizes") => put_stat(line.out, &"sizes_status", &"disabled"),
        Some(b"conns") => return Flow::Dump(Dump::connections()),
        Some(b"reset") => {
            crate::stats::reset(line.cx);
            line.out.put(b"RESET\r\n");
            return Flow::Next;
        }
        Some(b"detail") => return detail(line),
        Some(b"cachedump") => return cachedump(line),
        Some(_) => {
            line.out.put(ERROR);
            return Flow::Next;
        }
    }
    line.out.put(END);
    Flow::Next
}

fn put_stat(out: &mut Output, name: &dyn Display, value: &dyn Display) {
    write!(out, "STAT {name} {value}\r\n").expect("an output takes everything");
}

fn general(line: &mut Line<'_, '_, '_, '_>) {
    let figures = Figures::gather(line.cx);
    for key in KEYS.iter().filter(|key| key.is_shown(&line.cx.shared.settings)) {
        put_stat(line.out, &key.name, &key.value(&figures));
    }
}

fn items(line: &mut Line<'_, '_, '_, '_>) {
    let maintainer = line.cx.shared.settings.lru_maintainer;
    let now = line.cx.guard.now();
    let slabs = line.cx.shared.slabs.sum(&line.cx.guard.store().classes(now));
    for class in slabs.iter().map(|slab| &slab.totals).filter(|class| class.items > 0) {
        let mut put = |name: &str, n: u64| put_stat(line.out, &format_args!("items:{}:{name}", class.id), &n);
        put("number", class.items);
        if maintainer {
            put("number_hot", 0);
            put("number_warm", 0);
            put("number_cold", class.items);
            put("age_hot", 0);
            put("age_warm", 0);
        }
        put("age", class.age_ms / 1000);
        put("mem_requested", class.requested_bytes);
        put("evicted", class.evictions);
        put("evicted_nonzero", class.evicted_nonzero);
        put("evicted_time", class.evicted_age_s);
        put("outofmemory", class.out_of_memory);
        put("tailrepairs", 0);
        put("reclaimed", class.reclaimed);
        put("expired_unfetched", class.expired_unfetched);
        put("evicted_unfetched", class.evicted_unfetched);
        if maintainer {
            put("evicted_active", 0);
        }
        put("crawler_reclaimed", 0);
        put("crawler_items_checked", 0);
        put("lrutail_reflocked", 0);
        if maintainer {
            for name in ["moves_to_cold", "moves_to_warm", "moves_within_lru", "direct_reclaims"] {
                put(name, 0);
            }
            for name in ["hits_to_hot", "hits_to_warm", "hits_to_cold", "hits_to_temp"] {
                put(name, 0);
            }
        }
    }
}

fn slabs(line: &mut Line<'_, '_, '_, '_>) {
    let classes = line.cx.guard.store().classes(line.cx.guard.now());
    let slabs = line.cx.shared.slabs.sum(&classes);
    for slab in &slabs {
        let class = &slab.totals;
        let mut put = |name: &str, n: u64| put_stat(line.out, &format_args!("{}:{name}", class.id), &n);
        put("chunk_size", u64::from(class.chunk_bytes));
        put("chunks_per_page", PAGE_BYTES / u64::from(class.chunk_bytes.max(1)));
        put("total_pages", slab.pages());
        put("total_chunks", class.used_chunks + class.free_chunks);
        put("used_chunks", class.used_chunks);
        put("free_chunks", class.free_chunks);
        put("free_chunks_end", 0);
        for name in [
            "get_hits",
            "cmd_set",
            "delete_hits",
            "incr_hits",
            "decr_hits",
            "cas_hits",
            "cas_badval",
            "touch_hits",
        ] {
            put(name, 0);
        }
    }
    let malloced: u64 = classes.iter().map(|class| class.spans * PAGE_BYTES / SPANS_PER_PAGE).sum();
    put_stat(line.out, &"active_slabs", &slabs.len());
    put_stat(line.out, &"total_malloced", &malloced);
}

/// stats reset: workers own their counters, so what they are now is remembered and taken away.
fn detail(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let reply: &[u8] = match line.tokens[1..] {
        _ if !line.cx.shared.settings.dump => b"CLIENT_ERROR stats detail not allowed\r\n",
        [b"on"] => {
            line.cx.shared.prefixes.turn(true);
            OK
        }
        [b"off"] => {
            line.cx.shared.prefixes.turn(false);
            OK
        }
        [b"dump"] => return Flow::Dump(Dump::prefixes()),
        _ => b"CLIENT_ERROR usage: stats detail on|off|dump\r\n",
    };
    line.out.put(reply);
    Flow::Next
}

fn cachedump(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let reply: &[u8] = match line.tokens[1..] {
        _ if !line.cx.shared.settings.dump => b"CLIENT_ERROR stats cachedump not allowed\r\n",
        [class, items, ..] => match (parse_u64(class), parse_u64(items)) {
            (Some(class), Some(items)) if class < u64::from(CLASSES_END) => {
                return Flow::Dump(Dump::cache(class as u8, items));
            }
            (Some(_), Some(_)) => b"CLIENT_ERROR Illegal slab id\r\n",
            _ => Fault::BadLine.reply(),
        },
        _ => b"CLIENT_ERROR bad command line\r\n",
    };
    line.out.put(reply);
    Flow::Next
}
