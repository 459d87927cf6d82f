//! What was set at start for RESP's conversations alone, and stays. Settings of all conversations are in `core/shared.rs`; what
//! CONFIG SET changes is in `redis/shared.rs`.

/// Which clients may use DEBUG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugCommand {
    /// No client.
    No,
    /// Clients of this machine.
    Local,
    /// Every client.
    Yes,
}

impl DebugCommand {
    /// As the option and CONFIG name it.
    pub fn name(self) -> &'static str {
        match self {
            DebugCommand::No => "no",
            DebugCommand::Local => "local",
            DebugCommand::Yes => "yes",
        }
    }
}

/// What was set at start for RESP's conversations.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// Not `-B ascii` or `-B binary`: a connection whose first byte is `*` speaks RESP.
    pub detected: bool,
    /// `--enable-debug-command`: which clients may use DEBUG.
    pub debug: DebugCommand,
    /// Not `--protected-mode no`: without a password RESP is spoken with clients of this machine alone, until CONFIG SET says
    /// otherwise.
    pub protected: bool,
}

impl Default for RedisSettings {
    fn default() -> RedisSettings {
        RedisSettings { detected: true, debug: DebugCommand::No, protected: true }
    }
}
