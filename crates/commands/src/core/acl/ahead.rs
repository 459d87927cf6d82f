//! A short check of a user's rules, for requests of one key that are read ahead. It is compiled once for each
//! [`User`](super::user::User), when the rules are applied: a user never changes.
//!
//! ```text
//! no selectors ─┬─ all keys ────────────────────► AllKeys      the command's bit
//!               ├─ few patterns, all of them `p*`:
//!               │    one of 8 bytes at most ────► ShortPrefix  the command's bit, that prefix, then each
//!               │    none ──────────────────────► Prefixes     the command's bit, and each prefix
//!               └─ anything else ─┐
//! selectors ──────────────────────┴─────────────► General      nothing is said here
//! ```
//!
//! Most users have one prefix, and most prefixes have no more than eight bytes: that one lies beside the user's other fields, and
//! a key of eight bytes or more is compared with it at once. Each other prefix is one of the rules.
//!
//! It allows a request, or does not know: what it does not allow is checked the general way
//! ([`Rules::check`](super::rules::Rules::check)), which also knows first arguments, and says why something is refused.

use super::pattern::{Head, Need};
use super::rules::{KEY_BYTES_MAX, Rules};

/// Most prefixes of rules that are compiled: each is compared with each key of a pipeline, and what that takes is not counted.
pub(crate) const PREFIXES_MAX: usize = 8;

/// The way in which requests of one key are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// By [`Rules::check`].
    General,
    /// By their command.
    AllKeys,
    /// By their command, and the first bytes of their key.
    Prefixes,
    /// By their command, and the first bytes of their key: first by this prefix, then by each.
    ShortPrefix(ShortPrefix),
}

/// A prefix of no more than eight bytes, and what may be done with its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortPrefix {
    head: Head,
    may: Need,
}

impl ShortPrefix {
    /// Returns whether the key has eight bytes or more, begins so, and may be used so. False: only the rules know.
    #[inline(always)]
    pub fn allows(&self, key: &[u8], need: Need) -> bool {
        self.may.covers(need) && key.len() <= KEY_BYTES_MAX && self.head.begins(key)
    }
}

impl Ahead {
    /// The way to check a user with these rules as its root, and so many selectors.
    pub fn of(root: &Rules, selectors: usize) -> Ahead {
        if selectors > 0 {
            return Ahead::General;
        }
        if root.allow_all_keys() {
            return Ahead::AllKeys;
        }
        let are_few = root.prefixes().is_some_and(|count| (1..=PREFIXES_MAX).contains(&count));
        match root.short_prefix() {
            _ if !are_few => Ahead::General,
            Some((head, may)) => Ahead::ShortPrefix(ShortPrefix { head, may }),
            None => Ahead::Prefixes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::acl::catalog::Catalog;
    use crate::core::acl::pattern::Glob;

    fn rules(words: &[String]) -> Rules {
        let (mut rules, catalog) = (Rules::none(false), Catalog::new(Vec::new(), &[]));
        words.iter().for_each(|word| rules.apply(&catalog, word.as_bytes()).expect("a rule"));
        rules
    }

    fn split(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn few_prefixes_are_compiled_and_nothing_else_is() {
        let short = |bytes: &str, may| {
            let glob = Glob::new(format!("{bytes}*").as_bytes()).expect("short");
            Ahead::ShortPrefix(ShortPrefix { head: glob.head().expect("short"), may })
        };
        for (words, ahead) in [
            ("", Ahead::General),
            ("~*", Ahead::AllKeys),
            ("~p*", short("p", Need::BOTH)),
            ("%R~p* %RW~q* %W~*", short("p", Need::READ)),
            ("%W~*", short("", Need::WRITE)),
            ("~seven77*", short("seven77", Need::BOTH)),
            ("~eight888*", short("eight888", Need::BOTH)),
            ("~nine99999*", Ahead::Prefixes),
            ("~nine99999* %R~ten*", short("ten", Need::READ)),
            ("~p", Ahead::General),
            ("~p* ~q?*", Ahead::General),
            ("~p* ~name", Ahead::General),
            ("~p\\*", Ahead::General),
        ] {
            let words = split(words);
            let rules = rules(&words);
            assert_eq!(Ahead::of(&rules, 0), ahead, "{words:?}");
            assert_eq!(Ahead::of(&rules, 1), Ahead::General, "{words:?} and a selector");
        }
        assert_eq!(Ahead::of(&Rules::all(), 0), Ahead::AllKeys);
        for (count, ahead) in [
            (PREFIXES_MAX - 1, Ahead::Prefixes),
            (PREFIXES_MAX, Ahead::Prefixes),
            (PREFIXES_MAX + 1, Ahead::General),
        ] {
            let words: Vec<String> = (0..count).map(|n| format!("~of-many-{n}:*")).collect();
            assert_eq!(Ahead::of(&rules(&words), 0), ahead, "{count}");
        }
    }

    #[test]
    fn a_short_prefix_lets_through_long_keys_that_rules_allow_by_it() {
        let short = ["", "k", "k:", "k:12345", "k:123456", "k;123456", "l:1234567", "other:12"];
        let mut keys: Vec<Vec<u8>> = short.iter().map(|key| key.as_bytes().to_vec()).collect();
        keys.extend([KEY_BYTES_MAX, KEY_BYTES_MAX + 1].map(|bytes| {
            let mut key = vec![b'x'; bytes];
            key[..2].copy_from_slice(b"k:");
            key
        }));
        for words in ["%R~k:*", "~k:*", "%W~k:* %R~k*", "%R~l* ~k:*", "%W~*", "~k:123456*"] {
            let rules = rules(&split(words));
            let Ahead::ShortPrefix(first) = Ahead::of(&rules, 0) else { panic!("{words}") };
            let is_one = !words.contains(' ');
            for key in &keys {
                for need in [Need::NOTHING, Need::READ, Need::WRITE, Need::BOTH] {
                    let (may, bytes) = (first.allows(key, need), key.len());
                    let allowed = rules.allows_key(key, need, &mut 0);
                    assert_eq!(rules.allow_by_prefix(key, need), allowed, "{words} {need:?} {bytes} bytes");
                    assert!(allowed || !may, "{words} {need:?} {bytes} bytes");
                    assert!(!is_one || may == (allowed && bytes >= 8), "{words} {need:?} {bytes} bytes");
                }
            }
        }
    }
}
