//! Settings of RESP connections that are made at start and stay. Settings of all connections are in `core/shared.rs`, and what
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
    /// Its name for the option and for CONFIG.
    pub fn name(self) -> &'static str {
        match self {
            DebugCommand::No => "no",
            DebugCommand::Local => "local",
            DebugCommand::Yes => "yes",
        }
    }
}

/// Settings of RESP connections, made at start.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// Unless `-B ascii` or `-B binary` is given: a connection whose first byte is `*` speaks RESP.
    pub detected: bool,
    /// `--enable-debug-command`: which clients may use DEBUG.
    pub debug: DebugCommand,
    /// Unless `--protected-mode no` is given: without a password only clients of this machine may speak RESP, until CONFIG SET
    /// says otherwise.
    pub protected: bool,
}

impl Default for RedisSettings {
    fn default() -> RedisSettings {
        RedisSettings { detected: true, debug: DebugCommand::No, protected: true }
    }
}
