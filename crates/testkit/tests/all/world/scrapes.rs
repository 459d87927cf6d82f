//! The counters of all pages of metrics, in the order in which the server made the pages.

use std::collections::{BTreeMap, BTreeSet};

/// The counter that numbers pages: each page is one request more.
const NUMBER: &str = "larder_http_requests_total";

/// Metrics that have the type counter, as in memcached's exporter, but may fall.
const NO_COUNTERS: [&str; 2] =
    ["memcached_slab_mem_requested_bytes", "memcached_slab_items_evicted_time_seconds"];

/// The last line of a page that has all families.
const END: &str = "\nlarder_exposition_truncated 0\n";

/// Most decimals of a sample. Samples are kept as integers, in units of the last decimal.
const DECIMALS: usize = 6;
const ONE: u128 = 1_000_000;

/// The figures that were certain when a request was sent: its page must be newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Counted requests that were answered.
    answered: u64,
    /// The number of the newest page.
    newest: u64,
}

/// All pages.
#[derive(Debug, Default)]
pub struct Scrapes {
    /// Sent requests that the server counts.
    pub asked: u64,
    /// Of these, requests that were answered.
    pub answered: u64,
    numbers: BTreeSet<u64>,
    /// The values of each counter, by the numbers of the pages.
    counters: BTreeMap<String, BTreeMap<u64, u128>>,
}

impl Scrapes {
    /// The figures that are certain now.
    pub fn known(&self) -> Known {
        Known { answered: self.answered, newest: self.newest() }
    }

    fn newest(&self) -> u64 {
        self.numbers.last().copied().unwrap_or(0)
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// Adds a page; `known`: the figures that were certain when it was asked for.
    ///
    /// # Errors
    /// The text is no page, its number is impossible, or a counter is less than in an earlier page or more
    /// than in a later one.
    pub fn add(&mut self, text: &str, known: Known) -> Result<(), String> {
        let page = counters(text)?;
        let number = page.get(NUMBER).ok_or("the page does not number itself")? / ONE;
        let number = u64::try_from(number).map_err(|error| error.to_string())?;
        let is_possible = number > known.newest.max(known.answered) && number <= self.asked;
        if !is_possible || !self.numbers.insert(number) {
            let asked = self.asked;
            return Err(format!("a page is of request {number} of {asked}; {known:?} when it was asked for"));
        }
        for (series, value) in page {
            let values = self.counters.entry(series.to_owned()).or_default();
            let before = values.range(..number).next_back().map_or(0, |(_, before)| *before);
            let behind = values.range(number..).next().map_or(u128::MAX, |(_, behind)| *behind);
            if !(before..=behind).contains(&value) {
                return Err(format!("{series} goes from {before} by {value} to {behind} (of {ONE} parts)"));
            }
            values.insert(number, value);
        }
        Ok(())
    }

    /// A counter's value in the newest page; 0 where the page has none.
    pub fn latest(&self, series: &str) -> u64 {
        let value = self.counters.get(series).and_then(|values| values.get(&self.newest()));
        value.map_or(0, |value| (value / ONE) as u64)
    }
}

/// The values of a page that only grow: counters, and the parts of histograms.
fn counters(text: &str) -> Result<BTreeMap<&str, u128>, String> {
    if !text.ends_with(END) {
        return Err(format!("the page does not end with all of its families: {}", text.len()));
    }
    let (mut counters, mut family, mut grows) = (BTreeMap::new(), "", false);
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').ok_or_else(|| format!("no kind: {line}"))?;
            family = name;
            grows = kind == "histogram" || kind == "counter" && !NO_COUNTERS.contains(&name);
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let sample = line.rsplit_once(' ').filter(|(series, _)| series.starts_with(family));
        let (series, value) = sample.ok_or_else(|| format!("no sample of {family}: {line}"))?;
        let value = parts(value).ok_or_else(|| format!("no number: {line}"))?;
        if grows && counters.insert(series, value).is_some() {
            return Err(format!("{series} comes twice"));
        }
    }
    Ok(counters)
}

/// A sample's value as an integer, in units of the last decimal.
fn parts(text: &str) -> Option<u128> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals = (decimals.len() <= DECIMALS).then(|| format!("{decimals:0<DECIMALS$}"))?;
    Some(whole.parse::<u128>().ok()? * ONE + decimals.parse::<u128>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: u64, seconds: &str) -> String {
        format!(
            "# HELP a A.\n# TYPE a counter\na{{b=\"c d\"}} {seconds}\n# HELP g G.\n# TYPE g gauge\ng {}\n\
             # HELP {NUMBER} N.\n# TYPE {NUMBER} counter\n{NUMBER} {number}\n\
             # HELP larder_exposition_truncated T.\n# TYPE larder_exposition_truncated gauge{END}",
            100 - number
        )
    }

    #[test]
    fn a_counter_that_goes_back_is_seen_in_whichever_order_pages_come() {
        let mut scrapes = Scrapes { asked: 9, ..Scrapes::default() };
        let early = scrapes.known();
        assert_eq!(scrapes.add(&page(5, "2.500000"), early), Ok(()));
        assert_eq!(scrapes.add(&page(3, "2.499999"), early), Ok(()), "it was made before, and comes late");
        assert_eq!((scrapes.latest(NUMBER), scrapes.latest("a{b=\"c d\"}"), scrapes.pages()), (5, 2, 2));
        assert!(scrapes.add(&page(4, "2.500001"), early).is_err(), "more than behind it");
        assert!(scrapes.add(&page(7, "2.4"), early).is_err(), "less than before it");
        assert_eq!(scrapes.add(&page(8, "2.5"), early), Ok(()));
    }

    #[test]
    fn a_page_has_a_number_of_its_own_between_what_was_answered_and_what_was_asked() {
        let mut scrapes = Scrapes { asked: 5, answered: 2, ..Scrapes::default() };
        let known = scrapes.known();
        for (number, is_right) in [(2, false), (3, true), (3, false), (5, true), (6, false)] {
            assert_eq!(scrapes.add(&page(number, "1"), known).is_ok(), is_right, "{number}");
        }
        let known = scrapes.known();
        scrapes.asked = 6;
        assert!(scrapes.add(&page(4, "1"), known).is_err(), "a newer one was known when this was asked for");
        assert_eq!(scrapes.add(&page(6, "1"), known), Ok(()));
    }

    #[test]
    fn what_is_no_page_is_refused() {
        let known = Known::default();
        let whole = page(1, "1");
        let changes = [(END, "\n"), (NUMBER, "other"), ("a{b", "b{b"), ("} 1\n", "} x\n"), ("} 1\n", "}\n")];
        for (old, new) in changes {
            let mut scrapes = Scrapes { asked: 1, ..Scrapes::default() };
            assert!(scrapes.add(&whole.replace(old, new), known).is_err(), "{new}");
        }
    }
}
