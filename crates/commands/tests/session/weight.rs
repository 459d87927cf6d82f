//! What EXEC does before it runs its commands: it weighs them, in work that grows with their words.

use crate::bench;
use crate::survey::command;
use larder_commands::Session;
use larder_protocol::resp::words_read;

/// Words of the shorter request; the longer one has twice as many.
const WORDS: usize = 500;
/// Words that are read beside those of the commands: of MULTI, of EXEC, of a reply's parts.
const WORDS_BESIDE: u64 = 100;

/// Words behind the name of a command: `n` of them, in one of the forms that commands of many words have.
fn forms(n: usize) -> [Vec<String>; 4] {
    let names = || (0..n).map(|n| format!("k{n}"));
    let key = || std::iter::once("key".to_owned());
    [
        names().collect(),
        std::iter::once(n.to_string()).chain(names()).collect(),
        key().chain([n.to_string()]).chain(names()).collect(),
        key().chain(key()).chain(["DB", "1"].map(str::to_owned).into_iter().cycle().take(n)).collect(),
    ]
}

#[test]
fn exec_reads_words_in_proportion_to_their_number() {
    let mut bench = bench();
    let list = bench.run(&mut Session::new(), &command(&["COMMAND", "LIST"]), usize::MAX).0;
    let list = String::from_utf8(list).unwrap();
    let names: Vec<&str> = list.lines().skip(2).step_by(2).collect();
    assert!(
        names.contains(&"mset") && names.contains(&"copy") && names.contains(&"sunionstore"),
        "{names:?}"
    );
    let mut read = |words: &[&str]| {
        bench.run(&mut Session::new(), &command(&["FLUSHALL"]), usize::MAX);
        let input = [&command(&["MULTI"])[..], &command(words), &command(&["EXEC"])].concat();
        let before = words_read();
        bench.run(&mut Session::new(), &input, usize::MAX);
        words_read() - before
    };
    for name in names {
        for (few, many) in forms(WORDS).iter().zip(&forms(2 * WORDS)) {
            let mut cost = |words: &[String]| {
                let words = words.iter().map(String::as_str);
                read(&std::iter::once(name).chain(words).collect::<Vec<_>>())
            };
            let (of_few, of_many) = (cost(few), cost(many));
            assert!(
                of_many <= 2 * of_few + WORDS_BESIDE,
                "{name} {} …: {of_few} words are read of {}, {of_many} of {}",
                few[..3].join(" "),
                few.len(),
                many.len(),
            );
        }
    }
}
