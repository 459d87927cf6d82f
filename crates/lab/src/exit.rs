//! The program's exit codes: one table for `serve`, `lab`, `doctor` and `top`. From 64 on they are those of BSD's sysexits.h, as
//! memcached's are.

pub use larder_eventloop::sysexits::{FILE, SYSTEM, UNAVAILABLE as NO_ANSWER, USAGE};

use crate::error::Error;

/// A check of the run failed, or a figure missed its target.
pub const NOT_VALID: u8 = 1;
/// The measured server holds data, and would be written to.
pub const NOT_EMPTY: u8 = 3;

/// The table, as `--help` prints it.
pub const TABLE: &str = "\
Exit codes:
   0  done; lab: every check held; doctor: nothing found
   1  lab: a run is not valid, or a figure missed its target; doctor: notes; serve: a second signal ended it
   2  doctor: warnings
   3  lab: a target holds items, and --flush-target was not said; doctor: something serious
  64  the command line says something that cannot be done
  69  a server is missing, cannot be reached, or does not answer as it should
  71  the system refused
  74  a file cannot be read or written
";

impl Error {
    /// The exit code of a program that ends with it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::NotValid(_) | Error::Missed(_) => NOT_VALID,
            Error::NotEmpty(_) => NOT_EMPTY,
            Error::Usage(_) => USAGE,
            Error::Connect(..) | Error::Closed | Error::Stalled { .. } | Error::Reply(_) | Error::Peer(_) => {
                NO_ANSWER
            }
            Error::System(..) => SYSTEM,
            Error::File(..) => FILE,
            Error::In(_, error) => error.exit_code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn each_error_has_a_code_of_the_table_and_the_document_has_the_same_table() {
        let other = || io::Error::other("no");
        let errors = [
            (Error::NotValid(String::new()), 1),
            (Error::Missed(2), 1),
            (Error::NotEmpty(String::new()), 3),
            (Error::Usage(String::new()), 64),
            (Error::Connect(String::new(), other()), 69),
            (Error::Closed, 69),
            (Error::Stalled { missing_bytes: 1 }, 69),
            (Error::Reply(String::new()), 69),
            (Error::Peer(String::new()), 69),
            (Error::System("epoll", other()), 71),
            (Error::File(PathBuf::new(), String::new()), 74),
            (Error::In("a visit".to_owned(), Box::new(Error::Closed)), 69),
        ];
        let lines: Vec<(&str, &str)> =
            TABLE.lines().skip(1).map(|line| line.trim().split_once("  ").expect("two columns")).collect();
        for (error, code) in errors {
            assert_eq!(error.exit_code(), code, "{error:?}");
            assert!(lines.iter().any(|(have, _)| *have == code.to_string()), "{code} is not in the table");
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab.md");
        let document = std::fs::read_to_string(path).expect("the lab's document");
        for (code, words) in lines {
            let line = format!("| {code} | {} |", words.replace("--flush-target", "`--flush-target`"));
            assert!(document.contains(&line), "docs/lab.md has no line {line}");
        }
    }
}
