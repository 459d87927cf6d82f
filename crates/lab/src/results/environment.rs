//! The machine that a run was made on, and the command that made it.

use std::time::SystemTime;
use std::{env, fs, thread};

use serde::{Deserialize, Serialize};

use crate::endpoint::hidden;

/// The properties of a machine that change figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Model of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory of the machine in bytes.
    pub memory_bytes: u64,
    /// Release of Linux.
    pub kernel: String,
    /// The distribution's name for itself.
    pub system: String,
    /// Frequency governor of the first core; empty if the system does not report it.
    pub governor: String,
    /// Transparent huge pages: always, madvise or never.
    pub huge_pages: String,
    /// The processor reports a hypervisor: other virtual machines may disturb this one.
    pub virtual_machine: bool,
}

impl Environment {
    /// Reads them from the system; properties that the system does not report stay empty.
    pub fn of_this_machine() -> Environment {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let field = |text: &str, name: &str, mark: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(mark)?.1.trim().trim_matches('"').to_owned())
        };
        let cpu = read("/proc/cpuinfo");
        let kib = field(&read("/proc/meminfo"), "MemTotal", ":")
            .and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
        let huge = read("/sys/kernel/mm/transparent_hugepage/enabled");
        let chosen = huge.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Environment {
            cpu: field(&cpu, "model name", ":").unwrap_or_default(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib.unwrap_or(0) * 1024,
            kernel: read("/proc/sys/kernel/osrelease"),
            system: field(&read("/etc/os-release"), "PRETTY_NAME", "=").unwrap_or_default(),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            huge_pages: chosen.map_or(String::new(), |(word, _)| word.to_owned()),
            virtual_machine: field(&cpu, "flags", ":")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        }
    }

    /// The machine in a line.
    pub fn line(&self) -> String {
        let memory_gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let mut line = format!(
            "{} × {}, {memory_gib:.0} GiB, {}, Linux {}",
            self.cores, self.cpu, self.system, self.kernel
        );
        if self.virtual_machine {
            line.push_str(", virtual machine");
        }
        line
    }
}

/// The words of this process's command line, the program by its file name alone, and without logins.
pub fn command() -> Vec<String> {
    let mut words: Vec<String> = env::args_os().map(|word| hidden(&word.to_string_lossy())).collect();
    if let Some(program) = words.first_mut()
        && let Some((_, name)) = program.rsplit_once('/')
    {
        *program = name.to_owned();
    }
    words
}

/// A command line for a shell.
pub fn quoted(words: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_=./:,+%@".contains(&b))
    };
    let quote = |word: &String| {
        if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// A time in UTC, to the second.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_it_is() {
        let here = Environment::of_this_machine();
        assert!(here.cores > 0 && here.memory_bytes > 1 << 20 && !here.kernel.is_empty());
    }

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        let words = ["larder", "lab", "a b", "it's", "", "--x=1,2"].map(str::to_owned);
        assert_eq!(quoted(&words), r"larder lab 'a b' 'it'\''s' '' --x=1,2");
    }
}
