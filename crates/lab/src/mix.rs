//! The kinds of requests, and their proportions.

use std::fmt;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads keys that exist; a miss is a wrong reply.
    Hit,
    /// Reads keys that do not exist; a hit is a wrong reply.
    Miss,
    /// Reads keys that may exist: a cache may have evicted them.
    Get,
    /// Writes.
    Set,
    /// Deletes.
    Delete,
    /// Adds one to a number. Numbers have keys of their own.
    Incr,
    /// Writes with the token that a read of the key brought: see [`Verb::Gets`]. In RESP all of it is one
    /// request: WATCH, GET, MULTI, SET, EXEC.
    Cas,
    /// Changes a bit of a value in place: each connection has its own, which it sets and clears by turns (RESP only).
    SetBit,
    /// Reads that bit (RESP only).
    GetBit,
    /// Overwrites some bytes of a value (RESP only).
    SetRange,
    /// Reads a key that exists by a script, which was loaded before (RESP only).
    EvalSha,
    /// Reads a key with its token, for a [`Verb::Cas`] in the next window; loads have it for that alone.
    Gets,
}

/// All kinds that a load may consist of, except [`Verb::Gets`].
const PARTS: [Verb; 11] = [
    Verb::Hit,
    Verb::Miss,
    Verb::Get,
    Verb::Set,
    Verb::Delete,
    Verb::Incr,
    Verb::Cas,
    Verb::SetBit,
    Verb::GetBit,
    Verb::SetRange,
    Verb::EvalSha,
];

/// All kinds that exist in every protocol.
pub const VERBS: [Verb; 7] =
    [Verb::Hit, Verb::Miss, Verb::Get, Verb::Set, Verb::Delete, Verb::Incr, Verb::Cas];

impl Verb {
    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Hit => "hit",
            Verb::Miss => "miss",
            Verb::Get => "get",
            Verb::Set => "set",
            Verb::Delete => "delete",
            Verb::Incr => "incr",
            Verb::Cas => "cas",
            Verb::SetBit => "setbit",
            Verb::GetBit => "getbit",
            Verb::SetRange => "setrange",
            Verb::EvalSha => "evalsha",
            Verb::Gets => "gets",
        }
    }

    /// Whether it changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Verb::Hit | Verb::Miss | Verb::Get | Verb::GetBit | Verb::EvalSha | Verb::Gets)
    }
}

/// Verbs by weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    weights: [u32; PARTS.len()],
}

impl From<Verb> for Mix {
    /// A mix of one verb alone.
    fn from(verb: Verb) -> Mix {
        Mix::of(&[(verb, 1)])
    }
}

impl Mix {
    /// Verbs with their weights.
    ///
    /// # Panics
    /// If all weights are 0, or one is for [`Verb::Gets`], which comes by itself.
    pub fn of(parts: &[(Verb, u32)]) -> Mix {
        let mut weights = [0; PARTS.len()];
        for &(verb, weight) in parts {
            weights[verb as usize] += weight;
        }
        assert!(weights.iter().any(|&weight| weight > 0), "a mix asks for something");
        Mix { weights }
    }

    /// Reads `hit:9,set:1`, for clap.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Mix, String> {
        let mut parts = Vec::new();
        for part in text.split(',') {
            let (name, weight) = part.split_once(':').unwrap_or((part, "1"));
            let verb = VERBS.into_iter().find(|verb| verb.name() == name);
            let names = || VERBS.map(Verb::name).join(", ");
            let verb = verb.ok_or_else(|| format!("{name:?} is none of {}", names()))?;
            parts.push((verb, weight.parse::<u16>().map_err(|error| format!("{weight:?}: {error}"))?.into()));
        }
        if parts.iter().all(|&(_, weight)| weight == 0) {
            return Err("all weights are 0".to_owned());
        }
        Ok(Mix::of(&parts))
    }

    /// Verbs that occur, with their shares.
    pub fn parts(&self) -> impl Iterator<Item = (Verb, f64)> + '_ {
        let total: u32 = self.weights.iter().sum();
        let share = move |verb: Verb| f64::from(self.weights[verb as usize]) / f64::from(total);
        PARTS.into_iter().filter(|&verb| self.weights[verb as usize] > 0).map(move |verb| (verb, share(verb)))
    }

    /// Its verb, if it has only one.
    pub fn only(&self) -> Option<Verb> {
        let mut parts = self.parts();
        let (first, _) = parts.next()?;
        parts.next().is_none().then_some(first)
    }

    /// Whether keys are both read and changed: then each has one connection that changes it, which knows the right result of its
    /// reads.
    pub fn reads_own_writes(&self) -> bool {
        self.parts().any(|(verb, _)| verb.is_read()) && self.parts().any(|(verb, _)| !verb.is_read())
            || self.parts().any(|(verb, _)| matches!(verb, Verb::Delete | Verb::Incr | Verb::Cas))
    }

    /// Whether this verb occurs.
    pub fn has(&self, verb: Verb) -> bool {
        self.parts().any(|(have, _)| have == verb)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(verb) = self.only() {
            return f.write_str(verb.name());
        }
        let parts: Vec<String> =
            self.parts().map(|(verb, share)| format!("{:.0} % {}", 100.0 * share, verb.name())).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_read_from_words() {
        let mix = Mix::parse("hit:9,set").unwrap();
        assert_eq!(mix, Mix::of(&[(Verb::Hit, 9), (Verb::Set, 1)]));
        assert_eq!(mix.to_string(), "90 % hit, 10 % set");
        assert_eq!((mix.only(), Mix::from(Verb::Set).only()), (None, Some(Verb::Set)));
        assert!(mix.reads_own_writes() && !Mix::from(Verb::Set).reads_own_writes());
        assert!(Mix::parse("cas").unwrap().reads_own_writes());
        for bad in ["", "hit:0", "hit:x", "touch", "gets"] {
            assert!(Mix::parse(bad).is_err(), "{bad}");
        }
    }
}
