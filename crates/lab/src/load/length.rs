//! How long a load takes, as far as its options tell.

use std::time::Duration;

use super::Options;
use super::preset::Preset;
use crate::progress::long;

/// Seconds of a load without an end of its own, and the most of one that ends by requests.
const SECONDS: f64 = 5.0;
const SECONDS_MAX: f64 = 86_400.0;

impl Options {
    /// Whether the load may end before its time: after its number of requests, or with its trace.
    fn has_end(&self) -> bool {
        self.requests.is_some() || self.trace.trace.is_some()
    }

    /// The longest time that it may take.
    pub(super) fn time(&self) -> Duration {
        let usual = if self.has_end() { SECONDS_MAX } else { SECONDS };
        Duration::from_secs_f64(self.seconds.unwrap_or(usual))
    }

    /// Seconds in which an open loop sends its requests; `None` without a number of requests and a rate.
    fn asked_s(&self) -> Option<f64> {
        // The rate of these two presets is one of single requests, that of all others one of windows.
        let single = matches!(self.preset, Some(Preset::YcsbD | Preset::YcsbE));
        let window = u64::from(self.pipeline) * self.command.len().max(1) as u64;
        let together = if single { 1 } else { window };
        let windows = self.requests?.div_ceil(together);
        Some(windows as f64 / self.rate?)
    }

    /// How long the counted part takes, or takes at most; `None` if it ends when all is answered, which no option tells.
    pub(super) fn length(&self) -> Option<Duration> {
        let longest = self.time();
        match self.asked_s() {
            Some(seconds) => Some(Duration::from_secs_f64(seconds.min(longest.as_secs_f64()))),
            None => (self.seconds.is_some() || !self.has_end()).then_some(longest),
        }
    }

    /// How long the load will take, in words, if that is long.
    pub(super) fn announcement(&self) -> Option<String> {
        let warm_up = Duration::from_secs_f64(self.warm_up.unwrap_or(0.0));
        let time = long(self.length()? + warm_up)?;
        let what = if self.warm_up.is_some() { "warm-up and load take" } else { "the load takes" };
        let most = if self.has_end() && self.asked_s().is_none() { " at most" } else { "" };
        Some(format!("{what} {time}{most}"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: Options,
    }

    fn options(words: &[&str]) -> Options {
        let target = ["load", "--target", "a=memcached://127.0.0.1:1"];
        Line::parse_from(target.into_iter().chain(words.iter().copied())).load
    }

    #[test]
    fn the_length_of_a_load_is_known_by_its_seconds_or_its_rate() {
        for (words, seconds) in [
            (&["--seconds", "90.5"][..], Some(90.5)),
            (&[], Some(5.0)),
            (&["--rate", "10"], Some(5.0)),
            (&["--requests", "1000"], None),
            (&["--requests", "1000", "--seconds", "60"], Some(60.0)),
            // 101 windows of ten.
            (&["--requests", "1001", "--pipeline", "10", "--rate", "10"], Some(10.1)),
            (&["--requests", "1001", "--pipeline", "10", "--rate", "10", "--seconds", "7"], Some(7.0)),
            (&["--requests", "1000", "--rate", "1e-300"], Some(SECONDS_MAX)),
            // Five windows of three turns of two commands.
            (
                &["--requests", "30", "--pipeline", "3", "--rate", "2", "--command", "a", "--command", "b"],
                Some(2.5),
            ),
            (&["--requests", "30", "--pipeline", "3", "--rate", "2", "--preset", "ycsb-d"], Some(15.0)),
            (&["--requests", "30", "--pipeline", "3", "--rate", "2", "--preset", "ycsb-a"], Some(5.0)),
            (&["--trace", "file"], None),
            (&["--trace", "file", "--trace-speed", "2"], None),
            (&["--trace", "file", "--seconds", "3"], Some(3.0)),
        ] {
            assert_eq!(options(words).length(), seconds.map(Duration::from_secs_f64), "{words:?}");
        }
    }

    #[test]
    fn a_load_of_more_than_two_minutes_is_announced_with_its_warm_up() {
        for (words, said) in [
            (&["--seconds", "119"][..], None),
            (&[], None),
            (&["--seconds", "120"], None),
            (&["--seconds", "121"], Some("the load takes about 3 minutes")),
            (&["--seconds", "100", "--warm-up", "20"], None),
            (&["--seconds", "100", "--warm-up", "21"], Some("warm-up and load take about 3 minutes")),
            (&["--requests", "9"], None),
            (&["--requests", "9", "--seconds", "600"], Some("the load takes about 10 minutes at most")),
            (&["--requests", "1210", "--rate", "10"], Some("the load takes about 3 minutes")),
        ] {
            assert_eq!(options(words).announcement().as_deref(), said, "{words:?}");
        }
    }
}
