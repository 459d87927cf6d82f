//! Claims about the machine that was measured on: one that is busy with something else does not keep them, whatever the
//! servers do.

/// Of a server that is visited twice in each round.
pub const TWICE: &str = "a server measured twice agrees with itself";
/// Of a null server beside all others.
pub const CEILING: &str = "no server does more than the null server";
/// Of requests that are due at a time.
pub const GENERATOR: &str = "the generator was in time";
/// Of the threads of servers and generator.
pub const CORES: &str = "nobody was kept from a core";
/// Of a C loop beside the generator, one request at a time.
pub const BY_HAND: &str = "the loop by hand costs at most 1.3 × what the generator does";

/// All of them.
pub const ALL: [&str; 5] = [TWICE, CEILING, GENERATOR, CORES, BY_HAND];
