//! What the benchmarks have in common: how often and how long each server is visited, and on which cores.

use std::time::Duration;

use clap::Args;
use larder_eventloop::cpu;

use crate::error::Error;
use crate::numbers;

/// Options of every benchmark.
#[derive(Clone, Debug, Args)]
// The benchmarks have options of their own, whose group would have the same name.
#[group(skip)]
pub(super) struct Options {
    /// Shorter visits
    #[arg(long)]
    quick: bool,
    /// Rounds; ratios of fewer than 6 have no intervals
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Milliseconds of a visit [default: 1000, or 125 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(10..))]
    visit_ms: Option<u32>,
    /// Percent of a visit's time that a thread of a server or of the generator may wait for its core because of other programs. A
    /// visit with more is repeated; if that does not help, the run is not valid
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = numbers::percent)]
    pub wait_max: f64,
    /// Core of the servers
    #[arg(long, default_value_t = 0)]
    pub server_core: usize,
    /// Core of the generator [default: the last]
    #[arg(long)]
    generator_core: Option<usize>,
    /// Seed of the order of visits
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The cores beside the servers'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cores {
    pub generator: usize,
    /// The last core that is neither the servers' nor the generator's, if there is one.
    pub third: Option<usize>,
}

impl Options {
    /// How long a visit takes.
    pub fn time(&self) -> Duration {
        let ms = self.visit_ms.unwrap_or(if self.quick { 125 } else { 1000 });
        Duration::from_millis(ms.into())
    }

    /// The cores of this machine that the benchmark uses beside the servers'.
    ///
    /// # Errors
    /// The system does not say which cores there are.
    pub fn cores(&self) -> Result<Cores, Error> {
        let all = cpu::cores().map_err(|error| Error::System("finding cores", error))?;
        Ok(self.cores_of(&all))
    }

    fn cores_of(&self, all: &[usize]) -> Cores {
        let generator = self.generator_core.or(all.last().copied()).unwrap_or(0);
        let is_free = |&core: &usize| core != generator && core != self.server_core;
        Cores { generator, third: all.iter().copied().rfind(is_free) }
    }

    /// Where, how often and how long servers are visited, in words.
    pub fn words(&self, generator_core: usize) -> String {
        format!(
            "server on core {}, generator on core {generator_core}; {} rounds of {} ms visits, seed {}",
            self.server_core,
            self.rounds,
            self.time().as_millis(),
            self.seed
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        visits: Options,
    }

    fn options(words: &[&str]) -> Options {
        Words::parse_from([&["bench"][..], words].concat()).visits
    }

    #[test]
    fn a_visit_takes_a_second_unless_it_is_quick_or_its_time_is_given() {
        for (words, ms) in [
            (&[][..], 1000),
            (&["--quick"][..], 125),
            (&["--visit-ms", "10"][..], 10),
            (&["--quick", "--visit-ms", "500"][..], 500),
        ] {
            assert_eq!(options(words).time(), Duration::from_millis(ms), "{words:?}");
        }
    }

    #[test]
    fn the_generator_has_the_last_core_and_the_third_is_neither_its_nor_the_servers() {
        for (words, all, generator, third) in [
            (&[][..], &[0][..], 0, None),
            (&[][..], &[0, 1][..], 1, None),
            (&[][..], &[0, 1, 2, 3][..], 3, Some(2)),
            (&[][..], &[2, 3][..], 3, Some(2)),
            (&["--generator-core", "1"][..], &[0, 1, 2, 3][..], 1, Some(3)),
            (&["--server-core", "2"][..], &[0, 1, 2, 3][..], 3, Some(1)),
            (&["--server-core", "1", "--generator-core", "0"][..], &[0, 1][..], 0, None),
        ] {
            assert_eq!(options(words).cores_of(all), Cores { generator, third }, "{words:?} of {all:?}");
        }
    }

    #[test]
    fn the_circumstances_are_told_in_one_line() {
        let words = options(&["--rounds", "2", "--quick"]).words(3);
        assert_eq!(words, "server on core 0, generator on core 3; 2 rounds of 125 ms visits, seed 1");
    }
}
