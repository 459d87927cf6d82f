//! When the requests of a trace are due.
//!
//! Some traces have whole seconds: then the requests of a second follow each other at even times. Their number is found by
//! reading ahead in the file a second time, not by keeping the requests.

use std::path::Path;
use std::time::Duration;

use super::{Format, Op, Reader, Seen};
use crate::error::Error;

/// Later than the end of any run.
const FAR_S: f64 = 1e9;

/// A trace with due times for its requests.
#[derive(Debug)]
pub struct Times {
    reader: Reader,
    /// How many times as fast; `None`: requests have no times.
    speed: Option<f64>,
    ahead: Option<Ahead>,
}

/// The same file, one second ahead.
#[derive(Debug)]
struct Ahead {
    reader: Reader,
    /// The time of the request that was read last, which is the first of the next second.
    next_us: Option<u64>,
    /// The second under way, its number of requests, and how many of them were taken.
    now_us: u64,
    count: u64,
    taken: u64,
}

impl Times {
    /// Opens a trace. `speed`: the factor of its times; none for as fast as possible.
    ///
    /// # Errors
    /// As [`Reader::open`]; [`Error::File`] when times are needed and its first request has none.
    pub fn open(path: &Path, format: Option<Format>, speed: Option<f64>) -> Result<Times, Error> {
        let reader = Reader::open(path, format)?;
        let format = reader.format();
        if speed.is_some() {
            let first = Reader::open(path, Some(format))?.next_op()?;
            if first.is_some_and(|op| op.at_us.is_none()) {
                let why = "it tells no times: --trace-speed max";
                return Err(Error::File(path.to_owned(), why.to_owned()));
            }
        }
        let whole_seconds = matches!(format, Format::Twitter | Format::Oracle);
        let ahead = match speed.filter(|_| whole_seconds) {
            None => None,
            Some(_) => Some(Ahead::new(Reader::open(path, Some(format))?)?),
        };
        Ok(Times { reader, speed, ahead })
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.reader.format()
    }

    /// The counts so far.
    pub fn seen(&self) -> Seen {
        self.reader.seen()
    }

    /// The next request, and when it is due, counted from the first one's time on.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be read.
    pub fn next_op(&mut self) -> Result<Option<(Op, Option<Duration>)>, Error> {
        let Some(op) = self.reader.next_op()? else { return Ok(None) };
        let due = match (self.speed, op.at_us) {
            (Some(speed), Some(at_us)) => {
                let within = self.ahead.as_mut().map_or(Ok(0.0), |ahead| ahead.share(at_us))?;
                Some(Duration::from_secs_f64(((at_us as f64 / 1e6 + within) / speed).min(FAR_S)))
            }
            (Some(_), None) | (None, _) => None,
        };
        Ok(Some((op, due)))
    }
}

impl Ahead {
    fn new(mut reader: Reader) -> Result<Ahead, Error> {
        let next_us = reader.next_op()?.and_then(|op| op.at_us);
        Ok(Ahead { reader, next_us, now_us: u64::MAX, count: 1, taken: 0 })
    }

    /// The share of its second after which the next request, at `at_us`, is due.
    fn share(&mut self, at_us: u64) -> Result<f64, Error> {
        if at_us != self.now_us {
            (self.now_us, self.count, self.taken) = (at_us, 0, 0);
            while self.next_us == Some(at_us) {
                self.count += 1;
                self.next_us = self.reader.next_op()?.and_then(|op| op.at_us);
            }
        }
        let share = self.taken as f64 / self.count.max(1) as f64;
        self.taken += 1;
        Ok(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(name: &str, text: &str, format: Format, speed: Option<f64>) -> Vec<Option<u64>> {
        let path = std::env::temp_dir().join(format!("larder-times-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let mut times = Times::open(&path, Some(format), speed).unwrap();
        let mut dues = Vec::new();
        while let Some((_, due)) = times.next_op().unwrap() {
            dues.push(due.map(|due| due.as_millis() as u64));
        }
        std::fs::remove_file(path).unwrap();
        dues
    }

    #[test]
    fn requests_of_a_whole_second_follow_each_other_at_even_times() {
        let text =
            "5,a,1,1,7,get,0\nbad\n5,b,1,1,7,get,0\n5,c,1,1,7,get,0\n5,d,1,1,7,get,0\n7,e,1,1,7,get,0\n";
        let all = |list: [u64; 5]| list.map(Some).to_vec();
        assert_eq!(dues("even", text, Format::Twitter, Some(1.0)), all([0, 250, 500, 750, 2000]));
        assert_eq!(dues("fast", text, Format::Twitter, Some(10.0)), all([0, 25, 50, 75, 200]));
        assert_eq!(dues("max", text, Format::Twitter, None), [None; 5]);
    }

    #[test]
    fn times_that_are_exact_are_kept() {
        let text = "1.5 [0 x] \"get\" \"a\"\n1.502 [0 x] \"get\" \"a\"\n1.502 [0 x] \"get\" \"a\"\n";
        assert_eq!(dues("exact", text, Format::Monitor, Some(0.5)), [Some(0), Some(4), Some(4)]);
    }

    #[test]
    fn a_trace_without_times_has_no_speed() {
        let path = std::env::temp_dir().join(format!("larder-times-none-{}", std::process::id()));
        std::fs::write(&path, "<28 get k\n").unwrap();
        let error = Times::open(&path, None, Some(1.0)).unwrap_err().to_string();
        assert!(error.contains("it tells no times: --trace-speed max"), "{error}");
        assert!(Times::open(&path, None, None).is_ok());
        std::fs::remove_file(path).unwrap();
    }
}
