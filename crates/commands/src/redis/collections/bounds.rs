//! Which members of a sorted set a command chooses: by rank, by score, or by their bytes.

use std::cmp::Ordering;
use std::ops::Range;

use larder_protocol::resp::{Args, parse_double_or_zero};
use larder_store::Collection;

use super::words::{COMPARED_TIMES, counted_bytes};
use super::{Shown, places};
use crate::redis::call::{integer, is, next};
use crate::redis::fail::Fail;
use crate::redis::row::By;

/// An end of a range of scores, and whether it is excluded.
#[derive(Clone, Copy, Debug)]
struct Score {
    value: f64,
    excluded: bool,
}

impl Score {
    fn parse(word: &[u8]) -> Result<Score, Fail> {
        let (excluded, text) = word.strip_prefix(b"(").map_or((false, word), |text| (true, text));
        // An empty text is 0, as in Redis.
        let value = if text.is_empty() { Some(0.0) } else { limit(text) };
        let value = value.ok_or(Fail::of("ERR min or max is not a float"))?;
        Ok(Score { value, excluded })
    }
}

/// Parses an end of a range. Unlike the score of a member it has to be decimal, and may exceed what a double can hold.
fn limit(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if digits.starts_with(b"0x") || digits.starts_with(b"0X") {
        return None;
    }
    let beyond = || std::str::from_utf8(text).ok()?.parse().ok().filter(|n: &f64| n.is_infinite());
    parse_double_or_zero(text).or_else(beyond)
}

/// An end of a range of members.
#[derive(Clone, Copy, Debug)]
enum Lex<'a> {
    /// In front of all members.
    First,
    /// Behind all members.
    Last,
    /// This member, which may be absent, and whether it is excluded.
    Member { text: &'a [u8], excluded: bool },
}

impl<'a> Lex<'a> {
    fn parse(word: &'a [u8]) -> Result<Lex<'a>, Fail> {
        match word {
            b"-" => Ok(Lex::First),
            b"+" => Ok(Lex::Last),
            [b'[', text @ ..] => Ok(Lex::Member { text, excluded: false }),
            [b'(', text @ ..] => Ok(Lex::Member { text, excluded: true }),
            _ => Err(Fail::of("ERR min or max not valid string range item")),
        }
    }

    /// How many members are in front of it; `with_itself`: the member itself counts, too.
    fn below(self, set: &Collection<'_>, with_itself: bool) -> usize {
        match self {
            Lex::First => 0,
            Lex::Last => set.len(),
            Lex::Member { text, .. } => set.partition(|entry| match set.compare(&entry.name, text) {
                Ordering::Less => true,
                Ordering::Equal => with_itself,
                Ordering::Greater => false,
            }),
        }
    }

    fn is_excluded(self) -> bool {
        matches!(self, Lex::Member { excluded: true, .. })
    }
}

/// The two ends, the lower one first; of ranks in the order of the reply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bounds<'a> {
    Rank(i64, i64),
    Score(ScoreBounds),
    Lex(LexBounds<'a>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreBounds(Score, Score);

#[derive(Clone, Copy, Debug)]
pub(crate) struct LexBounds<'a>(Lex<'a>, Lex<'a>);

impl<'a> Bounds<'a> {
    /// Parses the lower and the upper end.
    pub fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Bounds<'a>, Fail> {
        Ok(match by {
            By::Rank => Bounds::Rank(integer(min)?, integer(max)?),
            By::Score => Bounds::Score(ScoreBounds(Score::parse(min)?, Score::parse(max)?)),
            By::Lex => Bounds::Lex(LexBounds(Lex::parse(min)?, Lex::parse(max)?)),
        })
    }

    /// Bytes that are compared with members when the range is looked for once.
    pub fn compared_bytes(&self) -> usize {
        let Bounds::Lex(LexBounds(min, max)) = *self else { return 0 };
        let bytes = |end: Lex<'_>| match end {
            Lex::First | Lex::Last => 0,
            Lex::Member { text, .. } => counted_bytes(text.len(), COMPARED_TIMES),
        };
        bytes(min) + bytes(max)
    }

    /// The ranks of the chosen members.
    pub fn ranks(&self, set: &Collection<'_>) -> Range<usize> {
        let (start, end) = match *self {
            Bounds::Rank(start, stop) => return places(start, stop, set.len()),
            Bounds::Score(ScoreBounds(min, max)) => {
                (set.below(min.value, min.excluded), set.below(max.value, !max.excluded))
            }
            Bounds::Lex(LexBounds(min, max)) => {
                (min.below(set, min.is_excluded()), max.below(set, !max.is_excluded()))
            }
        };
        start..end.max(start)
    }
}

/// A range with its options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen<'a> {
    bounds: Bounds<'a>,
    /// Whether the highest member comes first.
    back: bool,
    /// How many members are skipped; negative: all.
    offset: i64,
    /// How many members are chosen at most; negative: all.
    count: i64,
    pub shown: Shown,
}

impl<'a> Chosen<'a> {
    /// Parses `min max` and the options. `fixed`: by what and in which direction, for old commands whose names say so. `stores`:
    /// the range is stored, not shown.
    pub fn parse(mut args: Args<'a>, fixed: Option<(By, bool)>, stores: bool) -> Result<Chosen<'a>, Fail> {
        let (first, second) = (next(&mut args)?, next(&mut args)?);
        // Each may be given once.
        let (mut by, mut back) = (fixed.map(|(by, _)| by), fixed.map(|(_, back)| back));
        let (mut offset, mut count, mut shown) = (0, -1, Shown::Names);
        while let Some(word) = args.next() {
            if !stores && is(word, "WITHSCORES") {
                shown = Shown::Scores;
            } else if is(word, "LIMIT") && args.len() >= 2 {
                (offset, count) = (integer(next(&mut args)?)?, integer(next(&mut args)?)?);
            } else if back.is_none() && is(word, "REV") {
                back = Some(true);
            } else if by.is_none() && is(word, "BYSCORE") {
                by = Some(By::Score);
            } else if by.is_none() && is(word, "BYLEX") {
                by = Some(By::Lex);
            } else {
                return Err(Fail::SYNTAX);
            }
        }
        let (by, back) = (by.unwrap_or(By::Rank), back.unwrap_or(false));
        if count != -1 && by == By::Rank {
            return Err(Fail::of(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if shown == Shown::Scores && by == By::Lex {
            return Err(Fail::of("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        if by == By::Rank {
            offset = 0;
        }
        let (min, max) = if back && by != By::Rank { (second, first) } else { (first, second) };
        Ok(Chosen { bounds: Bounds::parse(by, min, max)?, back, offset, count, shown })
    }

    /// The ranks of the chosen members, from the lowest.
    pub fn ranks(&self, set: &Collection<'_>) -> Range<usize> {
        if let (Bounds::Rank(start, stop), true) = (self.bounds, self.back) {
            let Range { start, end } = places(start, stop, set.len());
            return if start == end { 0..0 } else { set.len() - end..set.len() - start };
        }
        let Range { start, end } = self.bounds.ranks(set);
        let Ok(offset) = usize::try_from(self.offset) else { return 0..0 };
        let len = (end - start).saturating_sub(offset);
        let len = usize::try_from(self.count).map_or(len, |count| len.min(count));
        if len == 0 {
            0..0
        } else if self.back {
            end - offset - len..end - offset
        } else {
            start + offset..start + offset + len
        }
    }

    /// As [`Bounds::compared_bytes`].
    pub fn compared_bytes(&self) -> usize {
        self.bounds.compared_bytes()
    }

    /// Whether the highest member comes first.
    pub fn is_back(&self) -> bool {
        self.back
    }
}
