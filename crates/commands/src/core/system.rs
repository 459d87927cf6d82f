//! What the system says of the process: read when somebody asks.

use std::fs::read_to_string;

/// What the system says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct System {
    /// Memory of the process that is swapped out.
    pub swapped_bytes: u64,
    /// What the memory of its group may be, if there is a limit.
    pub group_bytes: Option<u64>,
}

impl System {
    /// Asks it.
    pub fn look() -> System {
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        System {
            swapped_bytes: kilobytes(&status, "VmSwap:").unwrap_or(0) * 1024,
            group_bytes: group_bytes(),
        }
    }
}

fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
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

/// A group and those that it is in.
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
        assert_eq!(kilobytes("VmRSS:\t 7 kB\nVmSwap:\t  12 kB\n", "VmSwap:"), Some(12));
        assert_eq!(kilobytes("VmRSS:\t 7 kB\n", "VmSwap:"), None);
    }
}
