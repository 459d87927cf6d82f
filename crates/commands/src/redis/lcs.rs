//! LCS: the longest common subsequence of two values.

use larder_protocol::resp::Args;
use larder_store::Key;

use super::call::{Call, integer, is, next};
use super::fail::{Done, Fail};
use super::reply::copy_value;
use super::rewrite::Heap;

/// A run of bytes that both have: where it begins in the first and in the second, and its length.
type Run = (usize, usize, usize);

/// LCS
pub(crate) fn lcs(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let (one, two) = (next(&mut args)?, next(&mut args)?);
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
    let (one, two) = (call.key(one), call.key(two));
    // What all that it looks at takes of the heap lives as long as that.
    let (_held, one, two) = call.as_one([one, two], |call| {
        // A table of four bytes for each pair of bytes is what it takes.
        let bytes =
            [&one, &two].map(|key| call.cx.guard.peek(key).hit().map_or(0, |item| item.value_bytes()));
        let cells = (bytes[0] + 1).saturating_mul(bytes[1] + 1);
        let needs = cells.saturating_mul(4).saturating_add(2 * (bytes[0] + bytes[1]));
        if needs > call.cx.guard.store().held_bytes_max() {
            return Err(Fail::of(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ));
        }
        let held = Heap::take(call, needs as usize)?;
        Ok((held, value(call, &one)?, value(call, &two)?))
    })?;
    let table = Table::fill(&one, &two);
    if len {
        return call.length(table.at(one.len(), two.len()) as usize);
    }
    let (text, runs) = table.trace(&one, &two);
    if !idx {
        return call.bulk(&text);
    }
    let runs: Vec<Run> = runs.into_iter().filter(|run| run.2 >= run_min).collect();
    call.map(2);
    call.bulk(b"matches")?;
    call.array(runs.len());
    for (a, b, bytes) in runs {
        call.array(if with_len { 3 } else { 2 });
        for start in [a, b] {
            call.array(2);
            call.length(start)?;
            call.length(start + bytes - 1)?;
        }
        if with_len {
            call.length(bytes)?;
        }
    }
    call.bulk(b"len")?;
    call.length(text.len())
}

fn value(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Result<Vec<u8>, Fail> {
    let mut bytes = Vec::new();
    if let Some(item) = call.peek(key)? {
        copy_value(item.value(), &mut bytes);
    }
    Ok(bytes)
}

/// Lengths of the subsequences of all prefixes.
struct Table {
    cells: Vec<u32>,
    width: usize,
}

impl Table {
    fn fill(one: &[u8], two: &[u8]) -> Table {
        let width = two.len() + 1;
        let mut table = Table { cells: vec![0; (one.len() + 1) * width], width };
        for (i, a) in one.iter().enumerate() {
            for (j, b) in two.iter().enumerate() {
                table.cells[(i + 1) * width + j + 1] =
                    if a == b { table.at(i, j) + 1 } else { table.at(i, j + 1).max(table.at(i + 1, j)) };
            }
        }
        table
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }

    /// The subsequence, and its runs from the last to the first, as Redis lists them.
    fn trace(&self, one: &[u8], two: &[u8]) -> (Vec<u8>, Vec<Run>) {
        let (mut i, mut j) = (one.len(), two.len());
        let mut text = Vec::new();
        let mut runs: Vec<Run> = Vec::new();
        while i > 0 && j > 0 {
            if one[i - 1] == two[j - 1] {
                (i, j) = (i - 1, j - 1);
                text.push(one[i]);
                match runs.last_mut() {
                    Some(run) if run.0 == i + 1 && run.1 == j + 1 => *run = (i, j, run.2 + 1),
                    _ => runs.push((i, j, 1)),
                }
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        text.reverse();
        (text, runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example_holds() {
        let (one, two) = (b"ohmytext", b"mynewtext");
        let table = Table::fill(one, two);
        assert_eq!(table.at(one.len(), two.len()), 6);
        let (text, runs) = table.trace(one, two);
        assert_eq!(text, b"mytext");
        assert_eq!(runs, [(4, 5, 4), (2, 0, 2)]);
    }
}
