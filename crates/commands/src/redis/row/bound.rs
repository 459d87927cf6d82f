//! What keeps a command from holding up its worker in EXEC, where others wait for its keys: one of three bounds, by its row.

use super::{Command, Run, flag};

/// What bounds a command in EXEC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It is a short step of its own. Its time depends on the words that name it alone; with too many of them EXEC goes in steps,
    /// or is refused.
    OneStep,
    /// It goes in steps of its own if it takes longer.
    InSteps,
    /// It is weighed by the values of its keys, and EXEC is refused before it runs if it takes longer than 10 ms.
    Refused,
    /// It is not queued, or is a name for others.
    NotQueued,
}

impl Bound {
    /// A text for people.
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
    /// What bounds this command in EXEC.
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
