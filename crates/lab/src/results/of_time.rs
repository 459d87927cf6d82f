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

/// What to do when a check did not hold, by its claim.
pub fn remedy(claim: &str) -> &'static str {
    match claim {
        CORES => {
            "other programs used the CPU meanwhile: repeat it on an idle machine, or allow more by --wait-max PERCENT"
        }
        TWICE => {
            "the machine was not the same from one visit to the next: repeat it on an idle machine, or with more --rounds"
        }
        CEILING => "server and null server were not measured on the same machine: repeat it on an idle one",
        GENERATOR => "repeat it on an idle machine, or offer less",
        BY_HAND => "the loop by hand, or the generator, was disturbed: repeat it on an idle machine",
        _ => "no other machine mends this: see what was found, and report it if it is the lab's fault",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_of_time_has_a_remedy_of_its_own() {
        let other = remedy("every reply was the right one");
        assert!(ALL.iter().all(|claim| remedy(claim) != other && remedy(claim).contains("repeat it")));
    }
}
