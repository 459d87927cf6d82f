//! The command table finds keys where `spec/key-positions.list` has them. Other servers are compared with the
//! same list.

use larder_commands::redis::row::Command;
use larder_commands::redis::table::REDIS;
use larder_testkit::local::DEBUG;
use larder_testkit::redis::positions::{Usage, usages};
use larder_testkit::talk::Talk;

#[test]
fn keys_are_where_the_list_of_usages_has_them() {
    let mut talk = Talk::new(&DEBUG);
    for usage in usages().expect("a list") {
        let wanted = String::from_utf8(usage.answer()).expect("text").trim_end().replace("\r\n", " ");
        assert_eq!(talk.send(0, &usage.question()), wanted, "{}", usage.words.join(" "));
    }
}

#[test]
fn no_command_that_has_keys_is_missing_in_the_list() {
    let usages = usages().expect("a list");
    let is_of = |usage: &Usage, row: &Command| {
        let said =
            |at: usize, name: &str| usage.words.get(at).is_some_and(|word| word.eq_ignore_ascii_case(name));
        match row.name.split_once('|') {
            Some((container, name)) => said(0, container) && said(1, name),
            None => said(0, row.name),
        }
    };
    let rows = REDIS.iter().flat_map(|group| group.rows);
    let all = rows.flat_map(|row| std::iter::once(row).chain(row.subcommands()));
    let missing: Vec<&str> = all
        .filter(|row| row.keys.any() && !usages.iter().any(|usage| is_of(usage, row)))
        .map(|row| row.name)
        .collect();
    assert!(missing.is_empty(), "no usage of {missing:?}");
}
