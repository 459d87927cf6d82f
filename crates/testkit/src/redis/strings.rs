//! The [`Model`](super::model::Model)'s strings: SET and the commands that it replaces, ranges, numbers, LCS.

use super::float;
use super::model::{Item, number_of};
use super::reply::bulk;
use super::words::{Answer, BYTES_MAX, Fail, SYNTAX, Words, int, integer, ok};

/// What a SET or GETEX does with an expiry.
pub(super) enum Expiry {
    None,
    Keep,
    Persist,
    /// Option and number.
    At(String, Vec<u8>),
}

/// When a SET does something.
#[derive(PartialEq)]
enum Condition {
    Absent,
    Present,
    Equal(Vec<u8>),
    Differs(Vec<u8>),
}

/// SET's options.
struct Options {
    condition: Option<Condition>,
    get: bool,
    keep: bool,
    expires_at: Option<i64>,
}

/// Cells of LCS's table: four bytes each, a quarter of the 64 MiB that the server has.
const LCS_CELLS_MAX: usize = (64 << 20) / 4 / 4;

impl Words<'_> {
    /// SET's options, from the argument `at` on.
    fn options(&self, name: &str, mut at: usize) -> Result<Options, Fail> {
        let (mut condition, mut get, mut expiry) = (None, false, Expiry::None);
        while at < self.args.len() {
            let word = self.option(at);
            let more = at + 1 < self.args.len();
            let wanted = match word.as_str() {
                "NX" => Condition::Absent,
                "XX" => Condition::Present,
                "IFEQ" | "IFNE" if more => {
                    at += 1;
                    let value = self.args[at].clone();
                    if word == "IFEQ" { Condition::Equal(value) } else { Condition::Differs(value) }
                }
                "GET" => {
                    get = true;
                    at += 1;
                    continue;
                }
                "KEEPTTL" if !matches!(expiry, Expiry::At(..)) => {
                    expiry = Expiry::Keep;
                    at += 1;
                    continue;
                }
                "EX" | "PX" | "EXAT" | "PXAT" if more => {
                    expiry = self.timed(expiry, word, at)?;
                    at += 2;
                    continue;
                }
                _ => return Fail::of(SYNTAX),
            };
            // The same option twice is allowed; a second value for it is not.
            let again = |other: &Condition| {
                matches!(
                    (other, &wanted),
                    (Condition::Absent, Condition::Absent) | (Condition::Present, Condition::Present)
                )
            };
            if condition.as_ref().is_some_and(|other| !again(other)) {
                return Fail::of(SYNTAX);
            }
            condition = Some(wanted);
            at += 1;
        }
        let expires_at = match &expiry {
            Expiry::At(unit, text) => Some(self.deadline(name, unit, text)?),
            _ => None,
        };
        Ok(Options { condition, get, keep: matches!(expiry, Expiry::Keep), expires_at })
    }

    pub(super) fn set(&mut self) -> Answer {
        let options = self.options("set", 2)?;
        let old = self.item(0);
        let value = old.as_ref().map(|item| &item.value);
        let told = options.get.then(|| self.maybe(value));
        let holds = match &options.condition {
            None => true,
            Some(Condition::Absent) => old.is_none(),
            Some(Condition::Present) => old.is_some(),
            Some(Condition::Equal(other)) => value == Some(other),
            Some(Condition::Differs(other)) => value != Some(other),
        };
        if !holds {
            return Ok(told.unwrap_or(self.null()));
        }
        let kept = old.filter(|_| options.keep).and_then(|item| item.expires_at);
        self.store(0, self.args[1].clone(), options.expires_at.or(kept));
        Ok(told.unwrap_or(b"+OK\r\n".to_vec().into()))
    }

    pub(super) fn msetex(&mut self) -> Answer {
        let count = integer(&self.args[0]).ok().filter(|n| (1..=i64::from(i32::MAX)).contains(n));
        let Some(count) = count else { return Fail::of("ERR invalid numkeys value") };
        let pairs = 2 * count as usize;
        if self.args.len() - 1 < pairs {
            return Fail::of("ERR wrong number of arguments for 'msetex' command");
        }
        let options = self.options("msetex", 1 + pairs)?;
        let there: Vec<bool> = (1..=pairs).step_by(2).map(|at| self.item(at).is_some()).collect();
        let holds = match options.condition {
            _ if options.get => return Fail::of(SYNTAX),
            Some(Condition::Equal(_) | Condition::Differs(_)) => return Fail::of(SYNTAX),
            None => true,
            Some(Condition::Absent) => there.iter().all(|there| !there),
            Some(Condition::Present) => there.iter().all(|there| *there),
        };
        if holds {
            for at in (1..=pairs).step_by(2) {
                let kept = self.item(at).filter(|_| options.keep).and_then(|item| item.expires_at);
                self.store(at, self.args[at + 1].clone(), options.expires_at.or(kept));
            }
        }
        int(holds.into())
    }

    fn timed(&self, before: Expiry, unit: String, at: usize) -> Result<Expiry, Fail> {
        match before {
            Expiry::At(other, _) if other != unit => Fail::of(SYNTAX),
            Expiry::Keep | Expiry::Persist => Fail::of(SYNTAX),
            Expiry::None | Expiry::At(..) => Ok(Expiry::At(unit, self.args[at + 1].clone())),
        }
    }

    pub(super) fn setex(&mut self, name: &str) -> Answer {
        let unit = if name == "setex" { "EX" } else { "PX" };
        let at = self.deadline(name, unit, &self.args[1])?;
        self.store(0, self.args[2].clone(), Some(at));
        ok()
    }

    pub(super) fn getex(&mut self) -> Answer {
        let mut expiry = Expiry::None;
        let mut at = 1;
        while at < self.args.len() {
            let word = self.option(at);
            match word.as_str() {
                "PERSIST" if !matches!(expiry, Expiry::At(..)) => expiry = Expiry::Persist,
                "EX" | "PX" | "EXAT" | "PXAT" if at + 1 < self.args.len() => {
                    expiry = self.timed(expiry, word, at)?;
                    at += 1;
                }
                _ => return Fail::of(SYNTAX),
            }
            at += 1;
        }
        let Some(item) = self.item(0) else { return Ok(self.null()) };
        let told = bulk(&item.value);
        let place = self.place(0);
        match expiry {
            Expiry::At(unit, text) => {
                let at = self.deadline("getex", &unit, &text)?;
                self.model.keep(&place, Item { expires_at: Some(at), ..item });
            }
            Expiry::Persist if item.expires_at.is_some() => {
                self.model.keep(&place, Item { expires_at: None, ..item });
            }
            _ => {}
        }
        Ok(told.into())
    }

    pub(super) fn mset(&mut self, name: &str) -> Answer {
        if self.args.len() % 2 == 1 {
            return Fail::of(&format!("ERR wrong number of arguments for '{name}' command"));
        }
        let keys = (0..self.args.len()).step_by(2);
        if name == "msetnx" && keys.clone().any(|at| self.item(at).is_some()) {
            return int(0);
        }
        keys.for_each(|at| self.store(at, self.args[at + 1].clone(), None));
        if name == "mset" { ok() } else { int(1) }
    }

    pub(super) fn append(&mut self) -> Answer {
        let mut item = self.item(0).unwrap_or_default();
        item.value.extend_from_slice(&self.args[1]);
        let length = item.value.len();
        let place = self.place(0);
        self.model.put(&place, item);
        int(length as i64)
    }

    pub(super) fn getrange(&mut self) -> Answer {
        let (start, end) = (self.number(1)?, self.number(2)?);
        let value = self.value(0);
        Ok(bulk(range(&value, start, end)).into())
    }

    pub(super) fn setrange(&mut self) -> Answer {
        let offset = self.number(1)?;
        if offset < 0 {
            return Fail::of("ERR offset is out of range");
        }
        let patch = self.args[2].clone();
        let mut item = self.item(0).unwrap_or_default();
        if patch.is_empty() {
            return int(item.value.len() as i64);
        }
        if offset.saturating_add(patch.len() as i64) > BYTES_MAX {
            return Fail::of("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
        }
        let end = offset as usize + patch.len();
        if item.value.len() < end {
            item.value.resize(end, 0);
        }
        item.value[offset as usize..end].copy_from_slice(&patch);
        let (place, length) = (self.place(0), item.value.len());
        self.model.put(&place, item);
        int(length as i64)
    }

    pub(super) fn decrby(&mut self) -> Answer {
        match self.number(1)? {
            i64::MIN => Fail::of("ERR decrement would overflow"),
            n => self.add(-n),
        }
    }

    pub(super) fn add(&mut self, n: i64) -> Answer {
        let item = self.item(0);
        let old = item.as_ref().map_or(Ok(0), |item| number_of(&item.value))?;
        let Some(new) = old.checked_add(n) else {
            return Fail::of("ERR increment or decrement would overflow");
        };
        let place = self.place(0);
        self.model.put(&place, Item { value: new.to_string().into_bytes(), ..item.unwrap_or_default() });
        int(new)
    }

    pub(super) fn incrbyfloat(&mut self) -> Answer {
        let item = self.item(0);
        let old = item.as_ref().map_or(&b"0"[..], |item| &item.value);
        // As for other numbers, spaces behind it are allowed, since memcached leaves some.
        let end = old.iter().rposition(|&byte| byte != b' ').map_or(0, |at| at + 1);
        let sum = float::sum(&old[..end], &self.args[1])?.into_bytes();
        let place = self.place(0);
        self.model.put(&place, Item { value: sum.clone(), ..item.unwrap_or_default() });
        Ok(bulk(&sum).into())
    }

    pub(super) fn lcs(&mut self) -> Answer {
        let (mut len, mut idx, mut with_len, mut run_min) = (false, false, false, 0);
        let mut at = 2;
        while at < self.args.len() {
            match self.option(at).as_str() {
                "LEN" => len = true,
                "IDX" => idx = true,
                "WITHMATCHLEN" => with_len = true,
                "MINMATCHLEN" if at + 1 < self.args.len() => {
                    at += 1;
                    run_min = self.number(at)?.max(0);
                }
                _ => return Fail::of(SYNTAX),
            }
            at += 1;
        }
        if len && idx {
            return Fail::of("ERR If you want both the length and indexes, please just use IDX.");
        }
        let (one, two) = (self.value(0), self.value(1));
        if (one.len() + 1) * (two.len() + 1) > LCS_CELLS_MAX {
            return Fail::of("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
        }
        let pairs = common(&one, &two);
        if len {
            return int(pairs.len() as i64);
        }
        if !idx {
            return Ok(bulk(&pairs.iter().map(|&(i, _)| one[i]).collect::<Vec<u8>>()).into());
        }
        // Pairs that follow each other in both texts are one match; the last match comes first.
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        for &(i, j) in &pairs {
            match runs.last_mut() {
                Some((a, b, bytes)) if *a + *bytes == i && *b + *bytes == j => *bytes += 1,
                _ => runs.push((i, j, 1)),
            }
        }
        runs.retain(|run| run.2 as i64 >= run_min);
        let mut told = self.map_head(2);
        told.extend(bulk(b"matches"));
        told.extend(format!("*{}\r\n", runs.len()).into_bytes());
        for (a, b, bytes) in runs.into_iter().rev() {
            let end = bytes - 1;
            let span = format!("*2\r\n:{a}\r\n:{}\r\n*2\r\n:{b}\r\n:{}\r\n", a + end, b + end);
            told.extend(format!("*{}\r\n{span}", if with_len { 3 } else { 2 }).into_bytes());
            if with_len {
                told.extend(format!(":{bytes}\r\n").into_bytes());
            }
        }
        told.extend(bulk(b"len"));
        told.extend(format!(":{}\r\n", pairs.len()).into_bytes());
        Ok(told.into())
    }
}

/// The places of a longest common subsequence in both texts. If there are several, it is the one that is
/// found from the ends when a byte of the second text is dropped, unless dropping one of the first is better.
fn common(one: &[u8], two: &[u8]) -> Vec<(usize, usize)> {
    let mut best = vec![vec![0u32; two.len() + 1]; one.len() + 1];
    for i in 1..=one.len() {
        for j in 1..=two.len() {
            best[i][j] = match one[i - 1] == two[j - 1] {
                true => best[i - 1][j - 1] + 1,
                false => best[i - 1][j].max(best[i][j - 1]),
            };
        }
    }
    let (mut i, mut j, mut pairs) = (one.len(), two.len(), Vec::new());
    while i > 0 && j > 0 {
        if one[i - 1] == two[j - 1] {
            (i, j) = (i - 1, j - 1);
            pairs.push((i, j));
        } else if best[i - 1][j] > best[i][j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    pairs.reverse();
    pairs
}

fn range(value: &[u8], start: i64, end: i64) -> &[u8] {
    let total = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let place = |n: i64| if n < 0 { total.saturating_add(n).max(0) } else { n };
    let (start, end) = (place(start), place(end).min(total - 1));
    if start > end { &[] } else { &value[start as usize..=end as usize] }
}
