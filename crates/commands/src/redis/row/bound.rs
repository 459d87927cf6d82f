//! What keeps a command from holding its worker for long in EXEC, where others wait for its keys: one of three, by its row.

use super::{Command, Run, flag};

/// What bounds a command in EXEC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It is a step of its own, and short: what it takes goes by the words that name it alone, and with too many of them EXEC
    /// goes in steps, or is refused.
    OneStep,
    /// What takes longer goes through steps of its own.
    InSteps,
    /// It is weighed by what its keys have, and EXEC is refused before it runs if it takes longer than 10 ms.
    Refused,
    /// It is not queued, or is a name for others.
    NotQueued,
}

impl Bound {
    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Bound::OneStep => "one step",
            Bound::InSteps => "in steps",
            Bound::Refused => "refused if long",
            Bound::NotQueued => "–",
        }
    }
}

impl Command {
    /// What bounds it in EXEC.
    pub const fn bound(&self) -> Bound {
        if matches!(self.run, Run::Container(_)) || self.has(flag::AT_ONCE | flag::NO_MULTI) {
            Bound::NotQueued
        } else if self.has(flag::IN_PARTS) {
            Bound::InSteps
        } else if self.has(flag::WEIGHTLESS) {
            Bound::OneStep
        } else {
            Bound::Refused
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bound;
    use crate::redis::table::find;

    #[test]
    fn each_command_has_one_of_three_bounds_in_exec() {
        let bound = |name: &str| find(name.as_bytes()).map(|(row, _)| row.bound());
        for (name, expected) in [
            ("incr", Bound::OneStep),
            ("get", Bound::OneStep),
            ("mset", Bound::InSteps),
            ("del", Bound::InSteps),
            ("sadd", Bound::InSteps),
            ("zadd", Bound::InSteps),
            ("keys", Bound::Refused),
            ("append", Bound::Refused),
            ("lrange", Bound::Refused),
            ("publish", Bound::Refused),
            ("swapdb", Bound::Refused),
            ("exec", Bound::NotQueued),
            ("watch", Bound::NotQueued),
            ("config", Bound::NotQueued),
        ] {
            assert_eq!(bound(name), Some(expected), "{name}");
        }
    }
}
