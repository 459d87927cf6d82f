//! slabs: moves memory between classes, by hand or by itself.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::Fault;
use larder_protocol::number::{parse_i32, parse_u32};
use larder_store::Automove;

use super::Line;
use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::work::CLASSES_NS;
use crate::memcached::dump::{Dump, Step};
use crate::memcached::flow::Flow;
use crate::memcached::slabs::SPANS_PER_PAGE;
use crate::memcached::text::{ERROR, OK};

/// Any class, as the source of a move.
const ANY: i32 = -1;
/// The memory that no class owns, as source or destination.
const POOL: i32 = 0;
/// Times in a row that a class gives nothing before another is asked.
const MISSES_MAX: u32 = 4;
/// A class with fewer pages gives none.
const PAGES_MIN: u64 = 2;

const BUSY: &[u8] = b"BUSY currently processing reassign request\r\n";
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

/// A page that moves, which is 16 spans: some of them, and other connections have their turn. A page of small items
/// took 4 ms at once.
#[derive(Debug)]
pub(crate) struct PageMove {
    /// Classes that give, the one that gives now last; none: the memory that no class owns.
    givers: Vec<Option<u8>>,
    /// Times in a row that it gave nothing: what is being sent or received keeps some spans.
    misses: u32,
    into: Option<u8>,
    /// Spans to go.
    left: usize,
    noreply: bool,
    /// Only one page moves at a time.
    _running: Running,
}

/// Says that a page moves, until it is dropped.
#[derive(Debug)]
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

impl PageMove {
    /// Moves a span of a class, or of those that no class has; what is in it stays as far as there is room for it.
    pub(crate) fn step(&mut self, cx: &mut Context<'_, '_>, out: &mut Output) -> Step {
        if let Some(&giver) = self.givers.last() {
            let moved = match (giver, self.into) {
                (None, Some(into)) => cx.guard.grow(into, self.left),
                (giver, into) => cx.guard.reassign(giver, into, 1),
            };
            self.left -= moved;
            self.misses = if moved > 0 { 0 } else { self.misses + 1 };
            if giver.is_none() || self.misses == MISSES_MAX {
                self.givers.pop();
                self.misses = 0;
            }
        }
        if self.left > 0 && !self.givers.is_empty() {
            return Step::More;
        }
        if !self.noreply {
            // All of it is being sent, or received.
            out.put(if self.left == SPANS_PER_PAGE as usize { BUSY } else { OK });
        }
        Step::Done
    }
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
    // As in memcached, the pool has what classes gave back; what no class has had yet they take as they need it.
    let spare = match from {
        POOL => store.totals().spans_given_back >= SPANS_PER_PAGE,
        _ => pages(from) >= PAGES_MIN,
    };
    if !spare {
        return Err(NO_SPARE);
    }
    if shared.reassigning.swap(true, Relaxed) {
        return Err(BUSY);
    }
    let running = Running(Arc::clone(&shared.reassigning));
    // The class that has most, of those that `to` covers; where several have as much, the largest, which holds all of them.
    let spans = |class: u8| classes.iter().find(|totals| totals.id == class).map_or(0, |totals| totals.spans);
    let into =
        u8::try_from(to).ok().and_then(|to| shared.slabs.members(to).max_by_key(|&class| spans(class)));
    let mut givers: Vec<Option<u8>> = vec![None];
    if from != POOL {
        givers = shared.slabs.members(from as u8).filter(|&class| spans(class) > 0).map(Some).collect();
        givers.sort_by_key(|&class| class.map_or(0, spans));
    }
    Ok(PageMove {
        givers,
        misses: 0,
        into,
        left: SPANS_PER_PAGE as usize,
        noreply: line.noreply,
        _running: running,
    })
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
