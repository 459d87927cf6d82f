//! A load by the second, in files that other tools read.

use std::fmt::Write;
use std::time::SystemTime;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriter, IntervalLogWriterBuilder, Tag};

use crate::error::Error;
use crate::results::histogram::QUANTILES;
use crate::series::Second;
use crate::tally::{Latencies, Tally, late_at};

/// Indexes of the quantiles that are written for each second.
pub(super) const BY_SECOND: [usize; 4] = [0, 2, 3, 4];

/// A quantile of a second in µs; `None` without latencies, out of range, or if the generator was late.
pub(super) fn quantile_us(second: &Second, quantile: f64) -> Option<f64> {
    let us = second.latency.quantile_us(quantile);
    let late = !second.lag.is_empty() && late_at(&second.lag, &second.latency, quantile).is_some();
    (us.is_finite() && !late).then_some(us)
}

/// A line for each second.
///
/// # Errors
/// [`Error::NotValid`] when a second cannot be unpacked.
pub(super) fn csv(tally: &Tally, valid: bool) -> Result<Vec<u8>, Error> {
    let names = BY_SECOND.map(|at| format!("{}_us", QUANTILES[at].0)).join(",");
    let mut out = format!("from_s,length_s,operations,errors,hits,misses,{names},over_60_s,valid\n");
    for second in tally.series.iter().flat_map(|series| series.seconds()) {
        let second = second?;
        let counts = second.counts;
        let shown = BY_SECOND
            .map(|at| quantile_us(&second, QUANTILES[at].1).map_or(String::new(), |us| format!("{us:.3}")));
        // Writing into a string cannot fail.
        let _ = writeln!(
            out,
            "{},{:.6},{},{},{},{},{},{},{}",
            second.from.as_secs(),
            second.length.as_secs_f64(),
            counts.operations,
            counts.errors,
            counts.hits,
            counts.misses,
            shown.join(","),
            second.latency.over_range,
            if valid { "yes" } else { "no" },
        );
    }
    Ok(out.into_bytes())
}

/// HdrHistogram's interval log, version 1.3: an entry for each second, and another with a tag where there is a lag.
///
/// # Errors
/// [`Error::NotValid`] when a second cannot be packed or unpacked.
pub(super) fn hdr_log(tally: &Tally, started: SystemTime, valid: bool) -> Result<Vec<u8>, Error> {
    const MS: f64 = 1e6;
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(
            "Latencies in nanoseconds, an interval for each second; the greatest of each in milliseconds",
        )
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(MS);
    if !valid {
        builder.add_comment("Result not valid: what the run printed says why");
    }
    let bad = |why: String| Error::NotValid(format!("a histogram log: {why}"));
    let mut log =
        builder.begin_log_with(&mut out, &mut serializer).map_err(|error| bad(error.to_string()))?;
    for second in tally.series.iter().flat_map(|series| series.seconds()) {
        let second = second?;
        let mut write = |latencies: &Latencies, tag| entry(&mut log, &second, latencies, tag).map_err(&bad);
        write(&second.latency, None)?;
        if !second.lag.is_empty() {
            write(&second.lag, Tag::new("lag"))?;
        }
    }
    Ok(out)
}

fn entry(
    log: &mut IntervalLogWriter<'_, '_, Vec<u8>, V2DeflateSerializer>,
    second: &Second,
    latencies: &Latencies,
    tag: Option<Tag<'_>>,
) -> Result<(), String> {
    let Second { from, length, .. } = *second;
    log.write_histogram(&latencies.ns, from, length, tag).map_err(|error| format!("{error:?}"))?;
    if latencies.over_range > 0 {
        let more = format!("{} more took longer than 60 s", latencies.over_range);
        log.write_comment(&more).map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::series::Series;

    /// Three seconds: one with latencies, one without, and one that is shorter.
    fn tally() -> Tally {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let mut series = Series::new(origin);
        let counts =
            |operations| crate::series::Counts { operations, hits: operations, ..Default::default() };
        for us in 1..=1_000 {
            series.record(Duration::from_micros(us));
        }
        series.turn(at(2_100), counts(1_000));
        series.record(Duration::from_millis(7));
        series.late(Duration::from_millis(3));
        series.record(Duration::from_secs(61));
        series.finish(at(2_500), counts(1_002));
        Tally { series: Some(Box::new(series)), ..Tally::default() }
    }

    #[test]
    fn a_line_of_csv_is_a_second() {
        let text = String::from_utf8(csv(&tally(), true).unwrap()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "from_s,length_s,operations,errors,hits,misses,p50_us,p99_us,p99.9_us,max_us,over_60_s,valid"
        );
        assert!(
            lines[1].starts_with("0,1.000000,1000,0,1000,0,50") && lines[1].ends_with(",0,yes"),
            "{text}"
        );
        assert_eq!(lines[2], "1,1.000000,0,0,0,0,,,,,0,yes");
        // Half of it is the generator's delay, and the other latency was longer than the log keeps.
        assert_eq!(lines[3], "2,0.500000,2,0,2,0,,,,,1,yes");
        assert_eq!(lines.len(), 4);
        assert!(String::from_utf8(csv(&tally(), false).unwrap()).unwrap().ends_with(",no\n"));
    }

    #[test]
    fn an_interval_log_is_read_back_as_it_was() {
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let bytes = hdr_log(&tally(), started, false).unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        assert!(text.starts_with("#[Histogram log format version 1.3]\n"), "{text}");
        assert!(text.contains("#[StartTime: 1700000000.000 (seconds since epoch)]\n"), "{text}");
        assert!(
            text.contains("#Result not valid") && text.contains("#1 more took longer than 60 s"),
            "{text}"
        );
        let entries = IntervalLogIterator::new(&bytes).map(Result::unwrap).filter_map(|entry| match entry {
            LogEntry::Interval(interval) => Some(interval),
            LogEntry::StartTime(_) | LogEntry::BaseTime(_) => None,
        });
        let seen: Vec<(u64, Option<String>, u64)> = entries
            .map(|interval| {
                let packed = STANDARD.decode(interval.encoded_histogram()).unwrap();
                let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &packed[..]).unwrap();
                let tag = interval.tag().map(|tag| tag.as_str().to_owned());
                (interval.start_timestamp().as_secs(), tag, histogram.len())
            })
            .collect();
        assert_eq!(seen, [(0, None, 1_000), (1, None, 0), (2, None, 1), (2, Some("lag".to_owned()), 1)]);
    }
}
