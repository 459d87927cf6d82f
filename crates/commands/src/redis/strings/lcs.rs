//! LCS: the longest common subsequence of two values, compared in steps.

use larder_protocol::resp::Args;
use larder_store::Key;

use crate::redis::call::{Call, integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::copy_value;
use crate::redis::steps::job::{Job, Step};

/// A run of bytes that both have: its beginning in the first and in the second, and its length.
type Run = (usize, usize, usize);

/// Bytes of a run in the vector of runs, which grows by doubling.
const RUN_BYTES: u64 = 2 * size_of::<Run>() as u64;
/// Bytes of a run in the reply, at most.
const ANSWER_BYTES: usize = 128;

/// Work to fill a cell of the table.
const CELL_NS: u64 = 2;

/// Serves LCS.
pub(crate) fn lcs(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let (one, two) = (next(&mut args)?, next(&mut args)?);
    let (one, two) = (call.key(one), call.key(two));
    lengths(call, &one, &two)?;
    let (mut len, mut idx, mut with_len, mut run_min) = (false, false, false, 0);
    while let Some(word) = args.next() {
        if is(word, "LEN") {
            len = true;
        } else if is(word, "IDX") {
            idx = true;
        } else if is(word, "WITHMATCHLEN") {
            with_len = true;
        } else if is(word, "MINMATCHLEN") {
            run_min = integer(next(&mut args)?)?.max(0) as usize;
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    if len && idx {
        return Err(Fail::of("ERR If you want both the length and indexes, please just use IDX."));
    }
    // The charge for the heap lives as long as the comparison.
    let (held, one, two) = loop {
        // The table has four bytes for each pair of bytes.
        let bytes = lengths(call, &one, &two)?;
        let cells = (bytes[0] + 1).saturating_mul(bytes[1] + 1);
        let runs = bytes[0].min(bytes[1]) * RUN_BYTES;
        let needs = cells.saturating_mul(4).saturating_add(2 * (bytes[0] + bytes[1]) + runs);
        if needs > call.cx.guard.store().held_bytes_max() {
            return Err(Fail::of(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ));
        }
        let held = Heap::keep(call, needs as usize)?;
        let values = call.as_one([one, two], |call| {
            // Other clients may have been faster.
            let same = lengths(call, &one, &two)? == bytes;
            same.then(|| Ok::<_, Fail>((value(call, &one)?, value(call, &two)?))).transpose()
        })?;
        if let Some((one, two)) = values {
            break (held, one, two);
        }
    };
    let table = Table::new(&one, &two);
    let says = Says { len, idx, with_len, run_min };
    call.work(Comparing { one, two, table, trace: None, says, _held: held })
}

/// The form of the reply.
#[derive(Debug)]
struct Says {
    len: bool,
    idx: bool,
    with_len: bool,
    run_min: usize,
}

/// Two values that are compared in steps.
#[derive(Debug)]
struct Comparing {
    one: Vec<u8>,
    two: Vec<u8>,
    table: Table,
    /// The way back, when the table is filled.
    trace: Option<Trace>,
    says: Says,
    _held: Heap,
}

impl Job for Comparing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Comparing { one, two, table, trace, says, .. } = self;
        let mut cells = (call.step_ns() / CELL_NS) as usize;
        let done = table.fill(one, two, &mut cells) && {
            let trace = trace.get_or_insert_with(|| Trace::new(one, two));
            says.len || trace.go(table, one, two, &mut cells)
        };
        let done_cells = call.step_ns() / CELL_NS - cells as u64;
        call.spend(done_cells * CELL_NS);
        if !done {
            return Ok(Step::More);
        }
        let len = table.at(one.len(), two.len()) as usize;
        let Trace { text, runs, .. } = trace.take().unwrap_or_else(|| Trace::new(one, two));
        says.put(call, len, &text, runs)?;
        Ok(Step::Done)
    }

    fn only_reads(&self) -> bool {
        true
    }
}

impl Says {
    fn put(&self, call: &mut Call<'_, '_, '_>, len: usize, text: &[u8], runs: Vec<Run>) -> Done {
        if self.len {
            return call.length(len);
        }
        if !self.idx {
            call.make_room(text.len())?;
            return call.bulk(text);
        }
        let runs: Vec<Run> = runs.into_iter().filter(|run| run.2 >= self.run_min).collect();
        call.make_room(runs.len() * ANSWER_BYTES)?;
        call.map(2);
        call.bulk(b"matches")?;
        call.array(runs.len());
        for (a, b, bytes) in runs {
            call.array(if self.with_len { 3 } else { 2 });
            for start in [a, b] {
                call.array(2);
                call.length(start)?;
                call.length(start + bytes - 1)?;
            }
            if self.with_len {
                call.length(bytes)?;
            }
        }
        call.bulk(b"len")?;
        call.length(len)
    }
}

fn lengths(call: &mut Call<'_, '_, '_>, one: &Key<'_>, two: &Key<'_>) -> Result<[u64; 2], Fail> {
    let mut length = |key| match call.peek(key) {
        Ok(string) => Ok(string.map_or(0, |item| item.value_bytes())),
        Err(_) => Err(Fail::of("ERR The specified keys must contain string values")),
    };
    Ok([length(one)?, length(two)?])
}

fn value(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Result<Vec<u8>, Fail> {
    let mut bytes = Vec::new();
    if let Some(item) = call.peek(key)? {
        copy_value(item.value(), &mut bytes);
    }
    Ok(bytes)
}

/// Lengths of the longest common subsequences of all prefixes.
#[derive(Debug)]
struct Table {
    cells: Vec<u32>,
    width: usize,
    /// The row and column of the next cell, counted from the bytes that they are for.
    row: usize,
    column: usize,
}

impl Table {
    fn new(one: &[u8], two: &[u8]) -> Table {
        let width = two.len() + 1;
        Table { cells: vec![0; (one.len() + 1) * width], width, row: 0, column: 0 }
    }

    /// Fills up to `cells` cells; true when all are filled.
    fn fill(&mut self, one: &[u8], two: &[u8], cells: &mut usize) -> bool {
        while self.row < one.len() {
            let (i, from) = (self.row, self.column);
            let to = two.len().min(from.saturating_add(*cells));
            let (above, below) = self.cells.split_at_mut((i + 1) * self.width);
            let (above, below) = (&above[i * self.width..], &mut below[..self.width]);
            for (j, b) in (from..).zip(&two[from..to]) {
                below[j + 1] = if one[i] == *b { above[j] + 1 } else { above[j + 1].max(below[j]) };
            }
            *cells -= to - from;
            self.column = to;
            if to < two.len() {
                return false;
            }
            (self.row, self.column) = (i + 1, 0);
        }
        true
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }
}

/// The subsequence backwards, and its runs from the last to the first, as Redis lists them.
#[derive(Debug)]
struct Trace {
    i: usize,
    j: usize,
    text: Vec<u8>,
    runs: Vec<Run>,
}

impl Trace {
    fn new(one: &[u8], two: &[u8]) -> Trace {
        Trace { i: one.len(), j: two.len(), text: Vec::new(), runs: Vec::new() }
    }

    /// Goes back up to `steps` steps; true at the end, when the text is reversed.
    fn go(&mut self, table: &Table, one: &[u8], two: &[u8], steps: &mut usize) -> bool {
        let Trace { i, j, text, runs } = self;
        while *i > 0 && *j > 0 {
            if *steps == 0 {
                return false;
            }
            *steps -= 1;
            if one[*i - 1] == two[*j - 1] {
                (*i, *j) = (*i - 1, *j - 1);
                text.push(one[*i]);
                match runs.last_mut() {
                    Some(run) if run.0 == *i + 1 && run.1 == *j + 1 => *run = (*i, *j, run.2 + 1),
                    _ => runs.push((*i, *j, 1)),
                }
            } else if table.at(*i - 1, *j) > table.at(*i, *j - 1) {
                *i -= 1;
            } else {
                *j -= 1;
            }
        }
        text.reverse();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example_holds_in_steps_of_any_size() {
        let (one, two) = (b"ohmytext", b"mynewtext");
        for step in 1..100 {
            let mut table = Table::new(one, two);
            while !table.fill(one, two, &mut { step }) {}
            assert_eq!(table.at(one.len(), two.len()), 6);
            let mut trace = Trace::new(one, two);
            while !trace.go(&table, one, two, &mut { step }) {}
            assert_eq!(trace.text, b"mytext");
            assert_eq!(trace.runs, [(4, 5, 4), (2, 0, 2)]);
        }
    }
}
