//! What the machine does while a stage runs, from `/proc`: a slow stage on a busy machine is not a slow stage.

use std::fs;

/// Time of all cores at one moment, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    all: u64,
    idle: u64,
    /// Time that the host of a virtual machine took.
    stolen: u64,
    /// Time of the programs that this process has started and that have ended.
    ours: u64,
}

impl Busy {
    /// The times of this moment; all 0 where the system does not report them.
    pub fn now() -> Busy {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Busy::of(&read("/proc/stat"), &read("/proc/self/stat"))
    }

    fn of(stat: &str, own: &str) -> Busy {
        let cores: Vec<u64> =
            stat.lines().next().unwrap_or_default().split_whitespace().skip(1).flat_map(str::parse).collect();
        let at = |n: usize| cores.get(n).copied().unwrap_or(0);
        // The last two are part of the first two.
        let all = cores.iter().take(8).sum();
        Busy { all, idle: at(3) + at(4), stolen: at(7), ours: ticks_of_ended(own) }
    }

    /// The difference since then, in words.
    pub fn since(self) -> String {
        let now = Busy::now();
        let all = now.all.saturating_sub(self.all).max(1);
        let share = |later: u64, sooner: u64| 100 * later.saturating_sub(sooner) / all;
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        format!(
            "cores {} % idle, {} % ours, {} % stolen; load {}",
            share(now.idle, self.idle),
            share(now.ours, self.ours),
            share(now.stolen, self.stolen),
            load.split(' ').next().unwrap_or("?"),
        )
    }
}

/// Fields of `/proc/…/stat` behind the program's name, which is in parentheses and may hold anything.
fn fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default()
}

/// The parent of a process.
pub fn parent(stat: &str) -> Option<u32> {
    fields(stat).get(1)?.parse().ok()
}

/// Processor time of a process and of those below it that have ended, in ticks.
pub fn ticks(stat: &str) -> u64 {
    fields(stat).iter().skip(11).take(4).flat_map(|field| field.parse::<u64>()).sum()
}

/// Processor time of the ended processes below a process, in ticks.
fn ticks_of_ended(stat: &str) -> u64 {
    fields(stat).iter().skip(13).take(2).flat_map(|field| field.parse::<u64>()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "77 (a) b) c) S 12 77 77 0 -1 4194304 1 2 3 4 100 20 3 4000 20 0 1 0";

    #[test]
    fn fields_of_proc_are_read_behind_any_name() {
        assert_eq!(parent(OWN), Some(12));
        assert_eq!(ticks(OWN), 4123);
        let cores = "cpu  10 20 30 400 5 6 7 80 9 9\ncpu0 1 2 3\n";
        assert_eq!(Busy::of(cores, OWN), Busy { all: 558, idle: 405, stolen: 80, ours: 4003 });
        assert_eq!(Busy::of("", ""), Busy::default());
    }
}
