//! What is known of a user's rules where requests of one key are read ahead: compiled when the rules are applied, once for each
//! [`User`](super::user::User), which never changes.
//!
//! ```text
//! no selectors ─┬─ all keys ───────────────────────► AllKeys     the command's bit
//!               ├─ few patterns, all of them `p*` ──► Prefixes    the command's bit, and each prefix
//!               └─ anything else ─┐
//! selectors ──────────────────────┴────────────────► General     nothing is said here
//! ```
//!
//! It says yes or does not know: what it does not allow is asked the general way ([`Rules::check`](super::rules::Rules::check)),
//! which also knows first arguments, and says why something is refused.

use super::rules::Rules;

/// Most prefixes of rules that are compiled: each is compared with each key of a pipeline, and what that takes is not counted.
pub(crate) const PREFIXES_MAX: usize = 8;

/// How requests of one key are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// The general way.
    General,
    /// By their command.
    AllKeys,
    /// By their command, and by the first bytes of their key.
    Prefixes,
}

impl Ahead {
    /// How rules are asked that a user has by its root, beside so many selectors.
    pub fn of(root: &Rules, selectors: usize) -> Ahead {
        if selectors > 0 {
            return Ahead::General;
        }
        if root.allow_all_keys() {
            return Ahead::AllKeys;
        }
        let are_few = root.prefixes().is_some_and(|count| (1..=PREFIXES_MAX).contains(&count));
        if are_few { Ahead::Prefixes } else { Ahead::General }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::acl::catalog::Catalog;

    fn rules(words: &[String]) -> Rules {
        let (mut rules, catalog) = (Rules::none(false), Catalog::new(Vec::new(), &[]));
        words.iter().for_each(|word| rules.apply(&catalog, word.as_bytes()).expect("a rule"));
        rules
    }

    #[test]
    fn few_prefixes_are_compiled_and_nothing_else_is() {
        for (words, ahead) in [
            ("", Ahead::General),
            ("~*", Ahead::AllKeys),
            ("~p*", Ahead::Prefixes),
            ("%R~p* %RW~q* %W~*", Ahead::Prefixes),
            ("~p", Ahead::General),
            ("~p* ~q?*", Ahead::General),
            ("~p* ~name", Ahead::General),
            ("~p\\*", Ahead::General),
        ] {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
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
            let words: Vec<String> = (0..count).map(|n| format!("~{n}:*")).collect();
            assert_eq!(Ahead::of(&rules(&words), 0), ahead, "{count}");
        }
    }
}
