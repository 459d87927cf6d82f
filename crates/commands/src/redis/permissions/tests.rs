//! Random rules against a model that keeps no bits: it has all rules that were ever applied, and reads them from the first
//! to the last for each command, key and channel that is asked for.

use std::collections::HashMap;
use std::sync::LazyLock;

use larder_protocol::resp::Encoder;

use super::*;
use crate::core::acl::user::User;
use crate::redis::catalog;
use crate::redis::row::Keys;
use crate::redis::table::ROWS;

/// A generator of its own: the same numbers from the same seed.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }
}

const NEEDS: [(Need, bool, bool); 4] = [
    (Need::NOTHING, false, false),
    (Need::READ, true, false),
    (Need::WRITE, false, true),
    (Need::BOTH, true, true),
];
const PATTERNS: &[&str] = &["a", "a*", "ab*", "b?", "[ab]c", "*", "*z", "x\\*", ""];
const NAMES: &[&str] =
    &["", "a", "ab", "abc", "b", "bc", "ac", "az", "x*", "xy", "z", "abcdefgh", "a-longer-z", "other-name"];
const SINGLE: &[&str] = &["get", "set", "config", "select", "object", "sort", "eval", "ping", "acl"];

/// The rules of a root, as they came.
#[derive(Clone, Default)]
struct Naive(Vec<String>);

/// The command, or the container, that a rule names.
fn names(rule: &str, row: &Command) -> bool {
    row.name == rule || row.name.split_once('|').is_some_and(|(container, _)| container == rule)
}

/// Categories of each command, and of its container: a rule on a category concerns both.
static CATEGORIES_OF: LazyLock<HashMap<&'static str, Vec<&'static str>>> = LazyLock::new(|| {
    let own = |row: &'static Command| {
        let of = ROWS.numbered().filter(|(_, _, known)| names(known.name, row));
        of.flat_map(|(_, group, known)| categories(group, known)).collect()
    };
    ROWS.numbered().map(|(_, _, row)| (row.name, own(row))).collect()
});

fn is_in(category: &str, row: &Command) -> bool {
    CATEGORIES_OF[row.name].contains(&category)
}

impl Naive {
    fn allows(&self, row: &Command, first: Option<&str>) -> bool {
        let (mut all, mut firsts) = (false, Vec::new());
        for rule in &self.0 {
            let rule = rule.to_ascii_lowercase();
            let sets = match &*rule {
                "allcommands" | "+@all" => Some(true),
                "nocommands" | "-@all" => Some(false),
                rule => match (rule.strip_prefix('+'), rule.strip_prefix('-')) {
                    (Some(name), _) | (_, Some(name)) => {
                        let adds = rule.starts_with('+');
                        let concerns =
                            name.strip_prefix('@').map_or_else(|| names(name, row), |name| is_in(name, row));
                        if let Some((command, word)) = name.split_once('|')
                            && !concerns
                            && command == row.name
                        {
                            firsts.push(word.to_owned());
                        }
                        concerns.then_some(adds)
                    }
                    _ => None,
                },
            };
            if let Some(allowed) = sets {
                all = allowed;
                firsts.clear();
            }
        }
        all || first.is_some_and(|first| firsts.iter().any(|word| word.eq_ignore_ascii_case(first)))
    }

    /// Whether a name is allowed by rules that begin with a sign, all of them at a word, none of them at another.
    fn has(&self, all: [&str; 2], none: &str, matches: impl Fn(&str) -> bool) -> bool {
        let mut allowed = false;
        for rule in &self.0 {
            let lower = rule.to_ascii_lowercase();
            if all.contains(&&*lower) {
                allowed = true;
            } else if lower == none {
                allowed = false;
            } else if matches(rule) {
                allowed = true;
            }
        }
        allowed
    }

    fn allows_key(&self, key: &str, reads: bool, writes: bool) -> bool {
        // What was given apart for one pattern adds up.
        let of = |pattern: &str, sign: char| {
            self.has(["allkeys", "~*"], "resetkeys", |rule| {
                let (may, rest) = match rule.split_once('~') {
                    Some(("", rest)) => ("RW", rest),
                    Some((may, rest)) if may.starts_with('%') => (may, rest),
                    _ => return false,
                };
                rest == pattern && may.to_ascii_uppercase().contains(sign)
            })
        };
        self.has(["allkeys", "~*"], "resetkeys", |_| false)
            || PATTERNS.iter().any(|pattern| {
                let may = |asks: bool, sign| !asks || of(pattern, sign);
                let some = of(pattern, 'R') || of(pattern, 'W');
                some && may(reads, 'R')
                    && may(writes, 'W')
                    && crate::core::glob::matches(pattern.as_bytes(), key.as_bytes())
            })
    }

    fn allows_channel(&self, channel: &str, is_pattern: bool) -> bool {
        self.has(["allchannels", "&*"], "resetchannels", |rule| {
            rule.strip_prefix('&').is_some_and(|pattern| {
                if is_pattern {
                    pattern == channel
                } else {
                    crate::core::glob::matches(pattern.as_bytes(), channel.as_bytes())
                }
            })
        })
    }
}

fn rule(seeded: &mut Seeded, rows: &[&'static Command]) -> String {
    let sign = *seeded.of(&["+", "-"]);
    match seeded.below(14) {
        0 => (*seeded.of(&["allkeys", "resetkeys", "~*", "ALLKEYS"])).into(),
        1 => (*seeded.of(&["allchannels", "resetchannels", "&*"])).into(),
        2 => (*seeded.of(&["allcommands", "nocommands", "+@all", "-@ALL"])).into(),
        3..5 => format!("{}~{}", seeded.of(&["", "%R", "%W", "%RW", "%r"]), seeded.of(PATTERNS)),
        5 => format!("&{}", seeded.of(PATTERNS)),
        6..9 => format!("{sign}@{}", seeded.of(CATEGORIES)),
        9 => format!("+{}|{}", seeded.of(&["select", "get", "ping"]), seeded.of(&["0", "x"])),
        10 => format!("{sign}{}", seeded.of(SINGLE)),
        _ => format!("{sign}{}", seeded.of(rows).name),
    }
}

#[test]
fn random_rules_allow_what_a_list_of_them_says() {
    let rows: Vec<&'static Command> = ROWS.numbered().map(|(_, _, row)| row).collect();
    for seed in 1..=12 {
        let mut seeded = Seeded(0x9E37_79B9_7F4A_7C15 ^ seed);
        let (mut user, mut naive) = (User::new(1, "u", false), Naive::default());
        for _ in 0..25 {
            let rule = rule(&mut seeded, &rows);
            match user.with(catalog(), std::iter::once(rule.as_bytes()), false) {
                Ok(changed) => user = changed,
                // A pattern behind all of them.
                Err(_) => continue,
            }
            naive.0.push(rule);
            let root = user.rules().next().expect("the root");
            for (id, row) in rows.iter().enumerate() {
                for first in [None, Some("0"), Some("X")] {
                    let asked = Asked {
                        command: id as RowId,
                        is_free: false,
                        first: first.map(str::as_bytes),
                        keys: AskedKeys::None,
                        channels: None,
                    };
                    let allowed = root.check(&asked, &mut 0).is_ok();
                    assert_eq!(allowed, naive.allows(row, first), "seed {seed}: {} {:?}", row.name, naive.0);
                }
            }
            for name in NAMES {
                for (need, reads, writes) in NEEDS {
                    let all = root.print_keys() == b"~*";
                    let allowed = all || root.allows_key(name.as_bytes(), need, &mut 0);
                    let expected = naive.allows_key(name, reads, writes);
                    assert_eq!(allowed, expected, "seed {seed}: {name:?} {need:?} {:?}", naive.0);
                }
                let hears = root.allows_channel(name.as_bytes(), false, &mut 0);
                assert_eq!(hears, naive.allows_channel(name, false), "seed {seed}: {name:?} {:?}", naive.0);
            }
            // What is printed makes the same.
            let line = user.print();
            let line = line.strip_prefix(b"user u ").expect("its name");
            let words = larder_protocol::resp::split(line).expect("no quotes");
            let again = User::new(1, "u", true).with(catalog(), words.args(), true).expect("its own words");
            assert_eq!(again.print(), user.print());
            assert!(again.rules().next() == user.rules().next() || has_first_args(&naive), "{:?}", naive.0);
        }
    }
}

/// First arguments are printed where they were said, which may be behind a word that is printed, too, and takes them away.
fn has_first_args(naive: &Naive) -> bool {
    naive.0.iter().any(|rule| rule.contains('|'))
}

/// Rules of which many are prefixes, as most users have them, or all keys: the form that is compiled of them, which requests are
/// read ahead by, against the list.
#[test]
fn what_is_read_ahead_is_what_a_list_of_rules_says() {
    let rows: Vec<&'static Command> = ROWS.numbered().map(|(_, _, row)| row).collect();
    let (mut general, mut all_keys, mut prefixes) = (0, 0, 0);
    for seed in 1..=12 {
        let mut seeded = Seeded(0x9E37_79B9_7F4A_7C15 ^ seed);
        let (mut user, mut naive) = (User::new(1, "u", false), Naive::default());
        for _ in 0..25 {
            let rule = match seeded.below(8) {
                0..3 => format!("{}~{}", seeded.of(&["", "%R", "%W", "%RW"]), seeded.of(&["a*", "ab*"])),
                3 => "%R~*".into(),
                4 => (*seeded.of(&["resetkeys", "+@all", "+@read", "-@write"])).into(),
                _ => rule(&mut seeded, &rows),
            };
            match user.with(catalog(), std::iter::once(rule.as_bytes()), false) {
                Ok(changed) => user = changed,
                Err(_) => continue,
            }
            naive.0.push(rule);
            let is_read_ahead = user.is_read_ahead();
            let root = user.rules().next().expect("the root");
            let count = match (is_read_ahead, root.allow_all_keys()) {
                (false, _) => &mut general,
                (true, true) => &mut all_keys,
                (true, false) => &mut prefixes,
            };
            *count += 1;
            let of_name = |name: &&'static str| NEEDS.map(|(need, ..)| (*name, need));
            let keys: Vec<_> = NAMES.iter().flat_map(of_name).collect();
            let allowed = |(name, need): &(&str, Need)| {
                naive.allows_key(name, need.covers(Need::READ), need.covers(Need::WRITE))
            };
            let allowed: Vec<bool> = keys.iter().map(allowed).collect();
            for _ in 0..20 {
                let id = seeded.below(rows.len());
                let may_run = is_read_ahead && naive.allows(rows[id], None);
                for ((name, need), may_key) in keys.iter().zip(&allowed) {
                    let may = user.may_ahead(id as RowId, name.as_bytes(), *need);
                    let (row, list) = (rows[id].name, &naive.0);
                    assert_eq!(may, may_run && *may_key, "seed {seed}: {row} {name:?} {need:?} {list:?}");
                }
            }
            let with = |word: &[u8]| user.with(catalog(), std::iter::once(word), false).expect("a rule");
            assert!(!with(b"(~a* +get)").is_read_ahead(), "a selector is asked for, too");
        }
    }
    assert!(general > 10 && all_keys > 10 && prefixes > 10, "{general} {all_keys} {prefixes}");
}

/// Each command with words that are keys and others, by a user with one prefix: as if each key was looked at as the row's visitor
/// comes by it.
#[test]
fn keys_are_those_that_the_row_names_however_they_are_looked_at() {
    let user = User::new(1, "u", false).with(catalog(), [&b"+@all"[..], b"%R~r*", b"~w*"].into_iter(), false);
    let user = user.expect("rules");
    let mut checked = 0;
    for (id, _, row) in ROWS.numbered().filter(|(_, _, row)| row.subcommands().is_empty()) {
        // A number, too, where one says how many keys there are.
        let is_counted = matches!(row.keys, Keys::Counted { .. });
        let all: &[&[u8]] = if is_counted { &[b"w1", b"r1", b"2"] } else { &[b"w1", b"r1"] };
        for count in (1..=6_usize).filter(|count| row.takes(row.words() + count)) {
            for nth in 0..all.len().pow(count as u32) {
                let (mut words, mut left) = (Encoder::default(), nth);
                for _ in 0..count {
                    words.push(all[left % all.len()]);
                    left /= all.len();
                }
                let args = words.args();
                let mut refused = None;
                each_need(row, args, &mut |key, need| {
                    let may = key == b"w1" || key == b"r1" && Need::READ.covers(need);
                    refused = refused.or((!may).then_some(Denied::Key(key)));
                });
                let denied = check(&user, (row, id), args, &mut 0).err();
                let denied = denied.filter(|denied| !matches!(denied, Denied::Channel(_)));
                assert_eq!(denied, refused, "{} {count} {nth}", row.name);
                checked += usize::from(refused.is_some());
            }
        }
    }
    assert!(checked > 1000, "{checked}");
}

#[test]
fn a_rule_that_is_refused_changes_nothing() {
    let user = User::new(1, "u", false).with(catalog(), [&b"+get"[..], b"~a"].into_iter(), false).unwrap();
    let before = user.print();
    for bad in ["+nosuch", "~a b", "%~a", "(+nosuch)", "(on)", "<x", "#1", "x"] {
        let words = ["+set", "~b", ">p", bad, "+del"];
        assert!(user.with(catalog(), words.iter().map(|word| word.as_bytes()), false).is_err(), "{bad}");
    }
    assert_eq!(user.print(), before);
}

#[test]
fn a_user_has_so_many_patterns_and_bytes() {
    use crate::core::acl::rules::PATTERNS_MAX;
    let user = User::new(1, "u", false);
    for (patterns, may) in [(PATTERNS_MAX - 1, true), (PATTERNS_MAX, true), (PATTERNS_MAX + 1, false)] {
        let words: Vec<String> = (0..patterns).map(|n| format!("~{n}")).collect();
        let made = user.with(catalog(), words.iter().map(|word| word.as_bytes()), false);
        assert_eq!(made.is_ok(), may, "{patterns}");
    }
    let long = format!("~{}", "k".repeat(crate::core::acl::user::USER_BYTES_MAX));
    assert!(user.with(catalog(), std::iter::once(long.as_bytes()), false).is_err());
}

#[test]
fn a_million_keys_are_compared_with_one_prefix_and_not_with_a_thousand_patterns() {
    let mut words = Encoder::default();
    (0..1_000_000).for_each(|n| words.push(format!("app:{n}").as_bytes()));
    let (row, id) = ROWS.find(b"mget").unwrap();
    let with = |rules: &[String]| {
        let words = rules.iter().map(|word| word.as_bytes());
        User::new(1, "u", false).with(catalog(), words, false).unwrap()
    };
    let one = with(&["+mget".into(), "~app:*".into()]);
    assert_eq!(check(&one, (row, id), words.args(), &mut 0), Ok(()));
    let mut rules: Vec<String> = (0..1000).map(|n| format!("~{n}")).collect();
    rules.extend(["+mget".into(), "~app:*".into()]);
    assert_eq!(check(&with(&rules), (row, id), words.args(), &mut 0), Err(Denied::TooMuch));
}
