//! Figures of the system: memory of the process and of the machine, and the limit of the process's control group. They are read
//! when a client asks, and not again for a tenth of a second: however many workers ask however often, three small files, and
//! one for each group that the process is in, are read ten times a second.

use std::fs::read_to_string;
use std::sync::{Mutex, PoisonError};

/// Microseconds for which a reading is used.
const KEPT_US: u64 = 100_000;

/// Figures of the system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct System {
    /// Memory of the process that is resident; none if the system does not say.
    pub resident_bytes: Option<u64>,
    /// Memory of the process that is swapped out.
    pub swapped_bytes: u64,
    /// The memory limit of its control group, if there is one: the least of those that the group is in.
    pub group_bytes: Option<u64>,
    /// Memory of the machine.
    pub memory_bytes: u64,
}

impl System {
    /// Reads the files.
    fn look() -> System {
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        let memory = read_to_string("/proc/meminfo").unwrap_or_default();
        System {
            resident_bytes: bytes(&status, "VmRSS:"),
            swapped_bytes: bytes(&status, "VmSwap:").unwrap_or(0),
            group_bytes: group_bytes(),
            memory_bytes: bytes(&memory, "MemTotal:").unwrap_or(0),
        }
    }
}

/// The last reading of the system's figures, and its time.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<Option<(u64, System)>>);

impl Said {
    /// The system's figures of now, or of a moment ago. `now_us` is of a clock that only goes on.
    pub fn system(&self, now_us: u64) -> System {
        self.at(now_us, System::look)
    }

    fn at(&self, now_us: u64, look: impl FnOnce() -> System) -> System {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *said {
            // Another worker may have looked a little later than this one has looked at the clock.
            Some((at, system)) if now_us.saturating_sub(at) < KEPT_US => system,
            Some(_) | None => {
                let system = look();
                *said = Some((now_us, system));
                system
            }
        }
    }
}

/// Bytes in a line of a file of the system, which has kilobytes.
fn bytes(page: &str, name: &str) -> Option<u64> {
    let line = page.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// The least limit of the groups that the process is in, from its own to the root.
fn group_bytes() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |group: &str| {
        let path = format!("/sys/fs/cgroup/{group}/memory.max");
        read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    ancestors(own).filter_map(limit).min()
}

/// A group and its ancestors, up to the root.
fn ancestors(group: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(group), |group| match group.rsplit_once('/') {
        Some((parent, _)) => Some(parent),
        None if !group.is_empty() => Some(""),
        None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_lie_in_others() {
        let all: Vec<&str> = ancestors("a/b/c").collect();
        assert_eq!(all, ["a/b/c", "a/b", "a", ""]);
        assert_eq!(ancestors("").collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn a_line_of_the_systems_page_is_read() {
        assert_eq!(bytes("VmRSS:\t 7 kB\nVmSwap:\t  12 kB\n", "VmSwap:"), Some(12 << 10));
        assert_eq!(bytes("VmRSS:\t 7 kB\n", "VmSwap:"), None);
    }

    #[test]
    fn the_system_is_asked_ten_times_a_second_at_most() {
        let (said, mut asked) = (Said::default(), 0);
        for now_us in (0..1_000_000).step_by(1_000) {
            let look = || {
                asked += 1;
                System { swapped_bytes: asked, ..System::default() }
            };
            assert_eq!(said.at(now_us, look).swapped_bytes, 1 + now_us / KEPT_US);
        }
        assert_eq!(asked, 10);
        // A clock that another worker has looked at before.
        assert_eq!(said.at(0, System::look).swapped_bytes, 10);
    }
}
