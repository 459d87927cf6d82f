//! Claims about the machine: a busy machine does not keep them, whatever the servers do.

/// About a server that is visited twice in each round.
pub const TWICE: &str = "a server measured twice agrees with itself";
/// About a null server beside all others.
pub const CEILING: &str = "no server does more than the null server";
/// About requests that are due at a time.
pub const GENERATOR: &str = "the generator was in time";
/// About the threads of servers and generator.
pub const CORES: &str = "threads got their cores";
/// About a C loop beside the generator, one request at a time.
pub const BY_HAND: &str = "the loop by hand costs at most 1.3 × what the generator does";
/// About requests that are due at a time, in `shift`: how many were sent.
pub const OFFERED: &str = "what was offered was asked in its time";
/// About an open loop: how many requests were answered.
pub const DUE: &str = "as many requests came as were due";

/// All claims about the machine.
pub const ALL: [&str; 7] = [TWICE, CEILING, GENERATOR, CORES, BY_HAND, OFFERED, DUE];

/// What to do when a check did not hold, by its claim.
pub fn remedy(claim: &str) -> &'static str {
    match claim {
        // The second is its name in older reports.
        CORES | "nobody was kept from a core" => {
            "other programs used the CPU meanwhile: repeat it on an idle machine, or allow more by --wait-max PERCENT"
        }
        TWICE => {
            "the machine was not the same from one visit to the next: repeat it on an idle machine, or with more --rounds"
        }
        CEILING => "server and null server were not measured on the same machine: repeat it on an idle one",
        GENERATOR => "repeat it on an idle machine, or offer less",
        OFFERED => {
            "server or generator did less than was offered: repeat it on an idle machine, or offer less by --rate"
        }
        DUE => "the generator sent less than was due: repeat it on an idle machine, or offer less",
        BY_HAND => "the loop by hand, or the generator, was disturbed: repeat it on an idle machine",
        _ => "no other machine mends this: see what was found, and report it if it is the lab's fault",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn each_claim_of_time_has_a_remedy_of_its_own() {
        let other = remedy("every reply was the right one");
        assert!(ALL.iter().all(|claim| remedy(claim) != other && remedy(claim).contains("repeat it")));
        assert_eq!(remedy("nobody was kept from a core"), remedy(CORES));
    }

    /// Claims that hold on any machine, however busy: about counts, values that were read back, and refusals.
    const AT_ANY_TIME: &[&str] = &[
        "Larder's own client took no fault for a miss",
        "a call said that it was queued where it was, and nowhere else",
        "a deliberate conflict is refused",
        "a full cache has evicted",
        "behind a barrier, what was sent is stored, refused or unknown",
        "every call beside a fault has one outcome",
        "every call has one outcome",
        "every call returned OK or an error",
        "every call was timed",
        "every hit carried the right value, no older than acknowledged",
        "every key that was there was deleted",
        "every read of the trace was answered",
        "every reply is one that must come",
        "every reply was the right one",
        "every value read back is the one written",
        "every value read was the key's",
        "every value read was the one written",
        "every write of elements was acknowledged",
        "every write was acknowledged",
        "memory grew by what was stored at least",
        "no call without a fault told an error",
        "no collection was evicted",
        "no value of Larder's own client was wrong",
        "of each counter, what is missing was acknowledged",
        "the driver opened the connections that it should",
        "the options are in effect, as library and socket say",
        "the server counted as many hits as the clients",
        "the server counted as many misses as the clients",
        "the server counted as many sets as the clients",
        "the server counted the same hits",
        "the server counted the same misses",
        "the server counted the same sets",
        "the server counted the same {what}",
        "the server holds as many collections as were made",
        "the server holds as many items as were stored",
        "the server saw as many connections",
        "timeouts are errors",
        "what a full cache counts can be read",
        "what is there after a fault is what was set",
        "what was set is what is read back over another connection",
        "what was written can be read",
        "where every reply is read, nothing is lost without an error",
    ];

    /// Files of the crate's sources, without their tests.
    fn sources(folder: &Path, all: &mut Vec<String>) {
        for entry in fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("the sources are there").path();
            if path.is_dir() {
                sources(&path, all);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let text = fs::read_to_string(&path).expect("sources are text");
                all.push(text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned());
            }
        }
    }

    /// The claims in `text`: strings in quotation marks behind these words.
    fn claims(text: &str) -> impl Iterator<Item = &str> {
        let words = [".add(", ".add_off(", ".equal(", "let claim ="];
        words.into_iter().flat_map(move |word| text.split(word).skip(1)).filter_map(|behind| {
            let behind = behind.trim_start().trim_start_matches(['&']).trim_start_matches("format!(");
            let (claim, _) = behind.strip_prefix('"')?.split_once('"')?;
            // Ratios have such names, and are no checks.
            (!claim.contains(" / ")).then_some(claim)
        })
    }

    #[test]
    fn each_claim_that_is_checked_is_known_to_be_of_time_or_not() {
        let mut texts = Vec::new();
        sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut texts);
        let said: BTreeSet<&str> = texts.iter().flat_map(|text| claims(text)).collect();
        // A new claim is either about the machine, with a remedy, or holds at any time: add it to one of the lists.
        let known: BTreeSet<&str> = AT_ANY_TIME.iter().copied().collect();
        assert_eq!(said, known);
        assert!(ALL.iter().all(|claim| !known.contains(claim)), "claims of time are said by their names");
    }
}
