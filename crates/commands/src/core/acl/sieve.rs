//! The names and prefixes that all keys of one request are compared with. They are gathered once, where a root or a selector
//! has few.
//!
//! Without a sieve each key asks each pattern what it allows, of which kind it is, and whether comparisons have taken too long
//! by then. A sieve knows all that before the first key: what is left to do for a key is to compare its first bytes, and to
//! count.
//!
//! It says of each key what [`Rules::allows_key`](super::rules::Rules::allows_key) says, and counts as many nanoseconds for it.

use arrayvec::ArrayVec;
use larder_protocol::resp::Args;

use super::asked::find_word;
use super::pattern::{COMPARE_NS, Glob, Names};
use super::rules::KEY_BYTES_MAX;

/// Most patterns of rules that are gathered.
pub(super) const GLOBS_MAX: usize = 8;
/// Fewer words are compared one by one: to gather a pattern takes as long as two or three comparisons.
pub(super) const WORDS_MIN: usize = 4;

/// What keys are compared with, in the order of the rules.
pub(super) struct Sieve<'r>(ArrayVec<Names<'r>, GLOBS_MAX>);

impl<'r> Sieve<'r> {
    /// Gathers patterns. `None` if they are more than [`GLOBS_MAX`], or if one is long, or neither a name nor a prefix.
    pub fn of(globs: impl Iterator<Item = &'r Glob>) -> Option<Sieve<'r>> {
        let mut all = ArrayVec::new();
        for glob in globs {
            if glob.is_long() {
                return None;
            }
            all.try_push(glob.names(KEY_BYTES_MAX)?).ok()?;
        }
        Some(Sieve(all))
    }

    /// Finds the first word that no pattern has, among each `step`-th of these. Adds the time to `ns`.
    #[inline(never)]
    pub fn find_other<'a>(&self, words: Args<'a>, step: usize, ns: &mut u64) -> Option<&'a [u8]> {
        let mut compared = 0;
        let other = find_word(words, step, |key| {
            let at = self.0.iter().position(|names| names.have(key));
            compared += match at {
                Some(at) => at + 1,
                // A key that is too long is compared with none.
                None if key.len() > KEY_BYTES_MAX => 0,
                None => self.0.len(),
            };
            at.is_none()
        });
        *ns += compared as u64 * COMPARE_NS;
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::acl::asked::{Asked, AskedKeys};
    use crate::core::acl::catalog::Catalog;
    use crate::core::acl::pattern::Need;
    use crate::core::acl::rules::{CHECK_NS_MAX, Denied, Rules};
    use larder_protocol::resp::Encoder;

    fn rules<'w>(words: impl Iterator<Item = &'w str>) -> Rules {
        let (mut rules, catalog) = (Rules::none(false), Catalog::new(Vec::new(), &[]));
        words.for_each(|word| rules.apply(&catalog, word.as_bytes()).expect("a rule"));
        rules
    }

    /// A generator of its own: the same numbers from the same seed.
    struct Seeded(u64);

    impl Seeded {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % n
        }
    }

    const NEEDS: [Need; 4] = [Need::NOTHING, Need::READ, Need::WRITE, Need::BOTH];

    #[test]
    fn keys_of_a_request_are_let_through_and_counted_as_one_by_one() {
        let patterns = ["a*", "ab", "*", "session:*", "session:1*", "session:12", "session:12345678*", ""];
        let short =
            ["", "a", "ab", "abcdefgh", "b", "session:", "session:2", "session:12", "session:123456789"];
        let mut names: Vec<Vec<u8>> = short.iter().map(|name| name.as_bytes().to_vec()).collect();
        names.extend([KEY_BYTES_MAX, KEY_BYTES_MAX + 1].map(|bytes| vec![b'a'; bytes]));
        let (mut seeded, mut gathered, mut refused) = (Seeded(1), 0, 0);
        for round in 0..2_000 {
            let mut words: Vec<String> = (0..seeded.below(10))
                .map(|_| {
                    let may = ["%R", "%W", ""][seeded.below(3)];
                    // Not `~*`, behind which there may be no other.
                    if may.is_empty() { "~a*".into() } else { format!("{may}~{}", patterns[seeded.below(8)]) }
                })
                .collect();
            if seeded.below(8) == 0 {
                words.push("~s?ssion*".into());
            }
            let rules = rules(words.iter().map(String::as_str));
            let (need, step) = (NEEDS[seeded.below(4)], 1 + seeded.below(2));
            let mut keys = Encoder::default();
            // Up to four of the names; the longest come seldom.
            let most = if seeded.below(8) == 0 { names.len() } else { short.len() };
            let (from, few) = (seeded.below(most), 1 + seeded.below(4));
            (0..seeded.below(20)).for_each(|_| keys.push(&names[(from + seeded.below(few)) % most]));
            let (args, mut expected_ns, mut ns) = (keys.args(), 0, 0);
            let mut each = args.step_by(step);
            let expected = each.find(|key| !rules.allows_key(key, need, &mut expected_ns));
            let keys = AskedKeys::Words { words: args, step, need };
            let asked = Asked { command: 0, is_free: true, first: None, keys, channels: None };
            let denied = rules.check(&asked, &mut ns).err();
            assert_eq!(denied, expected.map(Denied::Key), "{round}: {words:?}");
            assert_eq!(ns, expected_ns, "{round}: {words:?}");
            gathered += usize::from(rules.sieve(need, args.len(), 0).is_some());
            refused += usize::from(denied.is_some());
        }
        assert!((500..1_900).contains(&gathered) && (500..1_900).contains(&refused), "{gathered} {refused}");
    }

    #[test]
    fn few_names_and_prefixes_are_gathered_for_many_keys() {
        let of = |count: usize| {
            let words: Vec<String> = (0..count).map(|n| format!("~{n}:*")).collect();
            rules(words.iter().map(String::as_str))
        };
        for (count, is_one) in [(0, true), (GLOBS_MAX - 1, true), (GLOBS_MAX, true), (GLOBS_MAX + 1, false)] {
            assert_eq!(of(count).sieve(Need::READ, WORDS_MIN, 0).is_some(), is_one, "{count}");
        }
        for (words, is_one) in [(WORDS_MIN - 1, false), (WORDS_MIN, true), (WORDS_MIN + 1, true)] {
            assert_eq!(of(1).sieve(Need::READ, words, 0).is_some(), is_one, "{words}");
        }
        // As long as they may take together, which is not looked at again for each.
        let most = CHECK_NS_MAX - 100 * 3 * COMPARE_NS;
        for (ns, is_one) in [(most - 1, true), (most, true), (most + 1, false)] {
            assert_eq!(of(3).sieve(Need::READ, 100, ns).is_some(), is_one, "{ns}");
        }
        for (words, is_one) in [("%R~a* ~b", true), ("%R~a* ~b?", false), ("%R~a* %W~b?", true)] {
            assert_eq!(rules(words.split(' ')).sieve(Need::READ, 100, 0).is_some(), is_one, "{words}");
        }
        for (bytes, is_one) in [(63, true), (64, true), (65, false)] {
            let words = format!("~{}*", "a".repeat(bytes - 1));
            let rules = rules(std::iter::once(&*words));
            assert_eq!(rules.sieve(Need::READ, 100, 0).is_some(), is_one, "{bytes}");
        }
    }
}
