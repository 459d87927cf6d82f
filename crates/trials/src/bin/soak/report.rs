//! The table at the end.

use crate::watch::Seen;
use crate::world::World;
use larder_testkit::canary::{Heard, Sample, Song};

/// Longest wait of a canary beyond what the machine takes, in microseconds.
const EXCESS_US: u64 = 10_000;
/// Most longer waits that are listed.
const SHOWN: usize = 10;
/// Pauses of the core count if they are longer than this, in microseconds.
const PAUSE_US: u64 = 2000;

/// Prints the table; returns whether the soak has passed.
pub fn print(world: &World, heard: Option<&Heard>, seen: &Seen, base: usize, after: usize) -> bool {
    let figures = world.figures();
    let of = |name: &str| figures.get(name).copied().unwrap_or(0);
    println!("\n{:<34} {:>14}", "what", "count");
    for (what, count) in &figures {
        println!("{what:<34} {:>14}", thousands(*count));
    }
    let judged: u64 = ["there", "absent", "gone, explained", "refused, explained", "in doubt"]
        .iter()
        .map(|outcome| of(&format!("outcome: {outcome}")))
        .sum();
    println!("{:<34} {:>14}", "operations judged", thousands(judged));
    println!();
    println!("resident at most                   {:>14} MiB", seen.rss_max >> 20);
    if let Some((above, bound)) = seen.above {
        println!("  above its bound of {} MiB by     {:>14} KiB", bound >> 20, above >> 10);
    }
    println!(
        "descriptors: before, most, after   {:>14}",
        format!("{base}, {}, {after}", seen.descriptors_max)
    );
    println!(
        "\n{:<14} {:>9} {:>9} {:>9} {:>9} {:>9} {:>13}",
        "canary, µs", "asked", "p50", "p99", "p99.9", "most", "worst excess"
    );
    let mut calm = heard.is_some();
    if let Some(heard) = heard {
        for (worker, song) in heard.workers.iter().enumerate() {
            let excesses = heard.excesses(worker);
            line(song, &excesses.first().map_or(0, |excess| excess.us).to_string());
            for excess in excesses.iter().take(SHOWN).filter(|excess| excess.us > EXCESS_US) {
                calm = false;
                let sample = excess.sample;
                println!(
                    "  at {:.3} s: {} µs, {} µs more than the machine took; its worker ran {} µs, stood {} µs and slept {} µs, another thread stood {} µs, the core stood {} µs; the administrator: {}",
                    sample.asked_us as f64 / 1e6,
                    sample.took_us,
                    excess.us,
                    sample.ran_us,
                    sample.stood_us,
                    sample.slept_us,
                    sample.others_stood_us,
                    excess.paused_us,
                    world.deeds(sample.asked_us, sample.asked_us + sample.took_us)
                );
            }
        }
        line(&heard.null, "");
        let [most, long, all] = heard.paused_us(PAUSE_US);
        println!(
            "the workers' core stood for {} ms in all, {long} times for more than {} ms, at most {most} µs",
            all / 1000,
            PAUSE_US / 1000
        );
    }
    let (wrong, lost) = world.complaints();
    println!("\nwrong {wrong}, of these lost {lost}; canaries {}", if calm { "in time" } else { "TOO LATE" });
    wrong == 0 && calm && judged > 0
}

fn line(song: &Song, excess: &str) {
    let mut times: Vec<u64> = song.samples.iter().map(|Sample { took_us, .. }| *took_us).collect();
    times.sort_unstable();
    let at = |share: f64| times.get(((times.len().max(1) - 1) as f64 * share) as usize).copied().unwrap_or(0);
    println!(
        "{:<14} {:>9} {:>9} {:>9} {:>9} {:>9} {excess:>13}",
        song.name,
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).expect("digits are ASCII"))
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1_234_567].map(thousands));
    }
}
