//! slabs: moves memory between classes, by hand or by itself.

use larder_protocol::Fault;
use larder_protocol::number::{parse_i32, parse_u32};
use larder_store::Automove;

use crate::core::work::CLASSES_NS;
use crate::memcached::dump::Dump;
use crate::memcached::flow::Flow;
use crate::memcached::line::Line;
use crate::memcached::page::{BUSY, PageMove, Running};
use crate::memcached::slabs::SPANS_PER_PAGE;
use crate::memcached::text::{ERROR, OK};

/// Any class, as the source of a move.
const ANY: i32 = -1;
/// The memory that no class owns, as source or destination.
const POOL: i32 = 0;
/// Fewest pages of a class that gives one.
const PAGES_MIN: u64 = 2;

const BAD_CLASS: &[u8] = b"BADCLASS invalid src or dst class id\r\n";
const NO_SPARE: &[u8] = b"NOSPARE source class has no spare pages\r\n";
const SAME: &[u8] = b"SAME src and dst class are identical\r\n";
const DISABLED: &[u8] = b"CLIENT_ERROR slab reassignment disabled\r\n";
const BAD_WINDOW: &[u8] = b"CLIENT_ERROR automove window too low or too high\r\n";

/// slabs reassign | automove
pub(crate) fn slabs(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let reply = match line.tokens[..] {
        [b"reassign", _, _] if !line.cx.shared.settings.slab_reassign => DISABLED,
        [b"reassign", from, to] => match (parse_i32(from), parse_i32(to)) {
            (Some(from), Some(to)) => match reassign(line, from, to) {
                Ok(page) => return Flow::Dump(Dump::Page(page)),
                Err(reply) => reply,
            },
            _ => Fault::BadLine.reply(),
        },
        [b"automove", name @ (b"ratio" | b"freeratio" | b"window"), value, ..] => pace(line, name, value),
        [b"automove", b"window"] => Fault::BadLine.reply(),
        [b"automove", b"ratio" | b"freeratio"] => ERROR,
        [b"automove", mode, ..] => automove(line, mode),
        _ => ERROR,
    };
    line.out.put(reply);
    Flow::Next
}

/// Begins to move a page, or says why not.
fn reassign(line: &mut Line<'_, '_, '_, '_>, from: i32, to: i32) -> Result<PageMove, &'static [u8]> {
    if from == to {
        return Err(SAME);
    }
    let shared = line.shared;
    line.cx.room.work().spend(CLASSES_NS);
    let store = line.cx.guard.store();
    let classes = store.classes(line.cx.now());
    let slabs = shared.slabs.sum(&classes);
    let pages =
        |id: i32| slabs.iter().find(|slab| i32::from(slab.totals.id) == id).map_or(0, |slab| slab.pages());
    let from = if from == ANY {
        let richest =
            slabs.iter().filter(|slab| slab.pages() >= PAGES_MIN && i32::from(slab.totals.id) != to);
        match richest.max_by_key(|slab| (slab.totals.age_ms, slab.totals.spans)) {
            Some(slab) => i32::from(slab.totals.id),
            None => return Err(BAD_CLASS),
        }
    } else {
        from
    };
    let known = POOL..=i32::from(shared.slabs.last());
    if !known.contains(&from) || !known.contains(&to) {
        return Err(BAD_CLASS);
    }
    // As in memcached, the pool has the pages that classes gave back. Memory that no class has had yet they take as they need
    // it.
    let spare = match from {
        POOL => store.totals().spans_given_back >= SPANS_PER_PAGE,
        _ => pages(from) >= PAGES_MIN,
    };
    if !spare {
        return Err(NO_SPARE);
    }
    let Some(running) = Running::begin(&shared.reassigning) else { return Err(BUSY) };
    // The class that has most spans, of those that `to` covers. If several have as many, the largest, whose chunks hold all
    // items.
    let spans = |class: u8| classes.iter().find(|totals| totals.id == class).map_or(0, |totals| totals.spans);
    let into =
        u8::try_from(to).ok().and_then(|to| shared.slabs.members(to).max_by_key(|&class| spans(class)));
    let mut givers: Vec<Option<u8>> = vec![None];
    if from != POOL {
        givers = shared.slabs.members(from as u8).filter(|&class| spans(class) > 0).map(Some).collect();
        givers.sort_by_key(|&class| class.map_or(0, spans));
    }
    Ok(PageMove::new(givers, into, line.noreply, running))
}

fn automove(line: &mut Line<'_, '_, '_, '_>, mode: &[u8]) -> &'static [u8] {
    let mode = match parse_u32(mode) {
        Some(0) => Automove::Off,
        Some(1) => Automove::Ages,
        Some(2) => Automove::Always,
        Some(_) => return ERROR,
        None => return Fault::BadLine.reply(),
    };
    line.cx.guard.store().set_automove(mode);
    OK
}

/// memcached's pace of moves: checked and reported; here memory moves as fast as it is written.
fn pace(line: &mut Line<'_, '_, '_, '_>, name: &[u8], value: &[u8]) -> &'static [u8] {
    let tuning = &line.shared.tuning;
    if name == b"window" {
        return match parse_u32(value) {
            None => Fault::BadLine.reply(),
            Some(seconds) if !(3..=1800).contains(&seconds) => BAD_WINDOW,
            Some(seconds) => {
                tuning.automove_window_s.set(seconds.into());
                OK
            }
        };
    }
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<f64>().ok());
    let Some(number) = number.filter(|number| number.is_finite()) else { return ERROR };
    let ratio = if name == b"ratio" { &tuning.automove_ratio } else { &tuning.automove_free_ratio };
    ratio.set_ratio(number);
    OK
}
