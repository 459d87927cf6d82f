//! The store's spans as a picture: four bytes a cell.
//!
//! ```text
//! byte 0   owner: 0 none, a class, 255 the index
//! byte 1   how full, in 255ths
//! byte 2   age: 8 steps for each doubling of 1 + seconds since the hand passed it
//! byte 3   bits 4…7: when it is due (0 never, then within 10 s, 1 min, 10 min, 1 h, 1 day, later)
//!          bit 1: spans of others are in the cell, too; bit 0: it is being emptied
//! ```
//!
//! A cell is one span, as long as there are cells enough; else 2, 4, 8 … of them, and shows the owner that most of them have.

use std::collections::BTreeMap;

use larder_store::{Millis, SpanOwner, SpanSeen, Store};

/// The index, among owners of a cell.
const INDEX: u8 = u8::MAX;

const DRAINS: u8 = 1;
const MIXED: u8 = 2;

/// The ends of steps of what is due, seconds.
const DUE_S: [u64; 5] = [10, 60, 600, 3600, 86_400];

/// A picture.
#[derive(Debug, Default)]
pub struct SpanMap {
    pub spans_per_cell: u64,
    pub cells: Vec<[u8; 4]>,
    /// How many spans each has, exactly.
    pub owners: Vec<(SpanOwner, Counted)>,
}

/// Spans of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub spans: u64,
    pub draining: u64,
}

impl SpanMap {
    /// The picture of a store now.
    pub fn of(store: &Store, now: Millis, cells_max: u64) -> SpanMap {
        let spans = store.spans_ever().max(store.spans_allowed()).max(1);
        let mut drawing = Drawing::new(spans.div_ceil(cells_max).next_power_of_two());
        store.each_span(now, &mut |span| drawing.add(span));
        drawing.finish()
    }
}

/// A picture that is being drawn.
#[derive(Debug)]
struct Drawing {
    map: SpanMap,
    cell: Vec<SpanSeen>,
    owners: BTreeMap<u8, (SpanOwner, Counted)>,
}

/// An owner as a cell has it.
pub fn number(owner: SpanOwner) -> u8 {
    match owner {
        SpanOwner::Free => 0,
        SpanOwner::Class(class) => class,
        SpanOwner::Index => INDEX,
    }
}

impl Drawing {
    fn new(spans_per_cell: u64) -> Drawing {
        let map = SpanMap { spans_per_cell, ..SpanMap::default() };
        Drawing { map, cell: Vec::new(), owners: BTreeMap::new() }
    }

    fn add(&mut self, span: SpanSeen) {
        let (_, counted) = self.owners.entry(number(span.owner)).or_insert((span.owner, Counted::default()));
        counted.spans += 1;
        counted.draining += u64::from(span.draining);
        self.cell.push(span);
        if self.cell.len() as u64 == self.map.spans_per_cell {
            self.end_cell();
        }
    }

    fn end_cell(&mut self) {
        let count = |owner| self.cell.iter().filter(|span| span.owner == owner).count();
        // Of several with as many, the first.
        let most = self.cell.iter().rev().map(|span| (count(span.owner), span.owner)).max_by_key(|(n, _)| *n);
        let Some((_, owner)) = most else { return };
        let own = || self.cell.iter().filter(|span| span.owner == owner);
        let mean = |of: fn(&SpanSeen) -> u64| own().map(of).sum::<u64>() / own().count() as u64;
        let due = own().filter_map(|span| span.due_ms).min();
        let mut flags = due.map_or(0, due_step) << 4;
        flags |= if own().any(|span| span.draining) { DRAINS } else { 0 };
        flags |= if own().count() < self.cell.len() { MIXED } else { 0 };
        let fill = mean(|span| span.fill.into()) as u8;
        self.map.cells.push([number(owner), fill, age_step(mean(|span| span.age_ms)), flags]);
        self.cell.clear();
    }

    fn finish(mut self) -> SpanMap {
        self.end_cell();
        self.map.owners = self.owners.into_values().collect();
        self.map
    }
}

/// Eight steps for each doubling of one and the seconds.
fn age_step(ms: Millis) -> u8 {
    ((1.0 + ms as f64 / 1000.0).log2() * 8.0) as u8
}

fn due_step(ms: Millis) -> u8 {
    1 + DUE_S.partition_point(|end| ms > end * 1000) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(owner: SpanOwner, fill: u8) -> SpanSeen {
        SpanSeen { owner, draining: false, fill, age_ms: 0, due_ms: None }
    }

    fn draw(spans_per_cell: u64, spans: &[SpanSeen]) -> SpanMap {
        let mut drawing = Drawing::new(spans_per_cell);
        spans.iter().for_each(|span| drawing.add(*span));
        drawing.finish()
    }

    #[test]
    fn a_cell_says_whose_a_span_is_how_full_how_old_and_when_it_is_due() {
        let (class, index) = (SpanOwner::Class(7), SpanOwner::Index);
        let spans = [
            SpanSeen { age_ms: 1000, due_ms: Some(9_000), ..span(class, 100) },
            SpanSeen { draining: true, age_ms: 7000, due_ms: Some(90_000_000), ..span(class, 255) },
            span(SpanOwner::Free, 0),
            span(index, 255),
        ];
        let map = draw(1, &spans);
        assert_eq!(map.cells, [[7, 100, 8, 0x10], [7, 255, 24, 0x61], [0, 0, 0, 0], [255, 255, 0, 0]]);
        let counted = |spans, draining| Counted { spans, draining };
        let owners = [(SpanOwner::Free, counted(1, 0)), (class, counted(2, 1)), (index, counted(1, 0))];
        assert_eq!(map.owners, owners);
    }

    #[test]
    fn several_spans_in_a_cell_show_whose_most_are() {
        let (one, other) = (SpanOwner::Class(1), SpanOwner::Class(2));
        let spans =
            [span(one, 10), span(other, 100), span(other, 50), span(one, 0), span(one, 30), span(other, 9)];
        let map = draw(4, &spans);
        assert_eq!(map.cells, [[1, 5, 0, MIXED], [1, 30, 0, MIXED]]);
        assert_eq!(
            map.owners,
            [(one, Counted { spans: 3, draining: 0 }), (other, Counted { spans: 3, draining: 0 })]
        );
        assert_eq!(draw(1, &[]).cells, [[0; 4]; 0]);
    }

    #[test]
    fn steps_end_where_they_say() {
        let due = [0, 10_000, 10_001, 60_000, 600_000, 3_600_000, 86_400_000, 86_400_001];
        assert_eq!(due.map(due_step), [1, 1, 2, 2, 3, 4, 5, 6]);
        assert_eq!([0, 999, 1000, 3000, u64::MAX].map(age_step), [0, 7, 8, 16, 255]);
    }
}
