//! Exit codes of `larder`: those of BSD's sysexits.h, as memcached's are.

/// The command line cannot be carried out (EX_USAGE).
pub const USAGE: u8 = 64;
/// A server is missing, cannot be reached, or does not answer as it should (EX_UNAVAILABLE).
pub const UNAVAILABLE: u8 = 69;
/// The system refused something (EX_OSERR).
pub const SYSTEM: u8 = 71;
/// A file cannot be read or written (EX_IOERR).
pub const FILE: u8 = 74;
