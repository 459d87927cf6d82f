//! Which module knows which inside of a part of a crate. `inner_arrows.list` has each arrow: one that is not listed is refused,
//! and so is a listed one that is gone. Between modules that are listed none is added, and none of them know each other in a
//! circle. Tests may use any module.

use super::Complaint;
use super::arrows::{Modules, Named};
use crate::run::{Outcome, root};
use std::collections::BTreeSet;

/// Crates whose inner arrows are listed: name, folder of the source, and how deep the modules lie in it.
const CRATES: &[(&str, &str, usize)] =
    &[("client", "clients/rust/src", 1), ("commands", "crates/commands/src", 2)];

const FILE: &str = "xtask/src/tidy/inner_arrows.list";
const LIST: &str = include_str!("inner_arrows.list");

/// Complains of arrows that are not listed, and of listed ones that are gone.
pub fn check() -> Outcome<Vec<Complaint>> {
    Ok(compare(&listed(LIST)?, &known()?))
}

/// The arrows as the code has them: modules by their whole path, those that they know by the last name.
fn known() -> Outcome<Named> {
    let mut known = Named::new();
    for (name, source, depth) in CRATES {
        for (module, others) in Modules::of(&root().join(source))?.arrows(*depth) {
            let last = |path: &String| path.rsplit("::").next().unwrap_or_default().to_owned();
            known.insert(format!("{name}::{module}"), others.iter().map(last).collect());
        }
    }
    Ok(known)
}

/// The arrows of a list: lines `module: one, another`, and comments behind `#`.
fn listed(list: &str) -> Outcome<Named> {
    let mut listed = Named::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (module, others) = line.split_once(": ").ok_or_else(|| format!("{FILE}: no arrow: {line}"))?;
        listed.insert(module.to_owned(), others.split(", ").map(str::to_owned).collect());
    }
    Ok(listed)
}

fn compare(listed: &Named, known: &Named) -> Vec<Complaint> {
    let (listed, known) = (pairs(listed), pairs(known));
    let new = known.difference(&listed).map(|(module, other)| {
        format!("{module} must not know {other}: it did not, and no arrow is added to {FILE}")
    });
    let gone = listed
        .difference(&known)
        .map(|(module, other)| format!("{module} knows {other} no more: take it out of {FILE}"));
    new.chain(gone).collect()
}

fn pairs(named: &Named) -> BTreeSet<(&str, &str)> {
    let mut pairs = BTreeSet::new();
    for (module, others) in named {
        pairs.extend(others.iter().map(|other| (module.as_str(), other.as_str())));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_arrow_and_one_that_is_gone_are_complained_of() {
        let listed = listed("# Arrows\n\na::b: c, d\na::c: d\n").expect("it is a list");
        let known = |others: &[&str]| {
            let others = others.iter().map(|&other| other.to_owned()).collect();
            Named::from([
                ("a::b".to_owned(), others),
                ("a::c".to_owned(), BTreeSet::from(["d".to_owned()])),
                ("a::d".to_owned(), BTreeSet::new()),
            ])
        };
        assert!(compare(&listed, &known(&["c", "d"])).is_empty());
        let complaints = compare(&listed, &known(&["d", "e"]));
        let starts = ["a::b must not know e: ", "a::b knows c no more: "];
        assert_eq!(complaints.len(), starts.len());
        for (complaint, start) in complaints.iter().zip(starts) {
            assert!(complaint.starts_with(start), "{complaint}");
        }
    }

    #[test]
    fn a_module_that_is_gone_takes_its_arrows_out_of_the_list() {
        let listed = listed("a::b: c\n").expect("it is a list");
        let complaints = compare(&listed, &Named::new());
        assert_eq!(complaints, [format!("a::b knows c no more: take it out of {FILE}")]);
    }

    #[test]
    fn a_line_without_an_arrow_is_an_error() {
        assert!(listed("a::b c\n").is_err());
    }

    /// The modules of a part that know each other in circles, or lie between two circles.
    fn in_circles(part: &str) -> Vec<String> {
        let list = listed(LIST).expect("it is a list").into_iter();
        let of_part =
            list.filter_map(|(module, others)| Some((module.strip_prefix(part)?.to_owned(), others)));
        let mut left: Named = of_part.collect();
        assert!(!left.is_empty(), "the list has {part}");
        loop {
            let before = left.len();
            let (names, known): (BTreeSet<_>, BTreeSet<_>) =
                (left.keys().cloned().collect(), left.values().flatten().cloned().collect());
            // A module that knows none of those that are left is in no circle with them, nor is one that none of them knows.
            left.retain(|module, others| known.contains(module) && !others.is_disjoint(&names));
            if left.len() == before {
                return left.into_keys().collect();
            }
        }
    }

    #[test]
    fn no_modules_know_each_other_in_a_circle() {
        for part in ["client::", "commands::core::", "commands::memcached::", "commands::redis::"] {
            assert_eq!(in_circles(part), [""; 0], "{part}");
        }
    }

    #[test]
    fn the_list_is_of_modules_that_are_there() {
        let known = known().expect("the sources are read");
        for module in listed(LIST).expect("it is a list").keys() {
            assert!(known.contains_key(module), "{module}");
        }
    }
}
