//! `larder doctor`: what an operator should know about a running server, in words.
//!
//! It asks on a port that clients use, in either protocol (`stats doctor`, INFO findings): over the network as well as on
//! the machine, and without the port for monitors. The exit code is for scripts: 0 nothing, 1 notes, 2 warnings,
//! 3 something serious.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::error::Error;
use crate::exit;
use crate::top::complain;
use crate::top::look::{Finding, Server, is_larder, words};
use crate::top::screen::Sheet;

/// Shows what the operator of a running Larder should know: exit code 0 nothing, 1 notes, 2 warnings, 3 something serious.
#[derive(Debug, Parser)]
#[command(name = "larder doctor", after_help = exit::TABLE)]
pub(crate) struct Options {
    /// The server: HOST:PORT, or a URL memcached://… or redis://…, with user:password@ in front of the host if it asks for them
    #[arg(long, value_name = "WHERE", default_value = "127.0.0.1:11211")]
    target: String,
    /// Prints findings as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `larder doctor` with its arguments.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let program = std::iter::once(OsString::from("larder doctor"));
    let options = match Options::try_parse_from(program.chain(arguments)) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match ask(&options.target) {
        Ok(findings) => {
            let text = if options.json { json(&findings) } else { words(&findings) };
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::from(worst(&findings))
        }
        Err(error) => complain("doctor", &options.target, &error),
    }
}

/// A server's findings, the most important first.
fn ask(target: &str) -> Result<Vec<Finding>, Error> {
    let look = Server::connect(target)?.look(Sheet::Doctor)?;
    if !is_larder(&look) {
        return Err(Error::Peer("this server is not Larder, and other servers have no findings".to_owned()));
    }
    Ok(look.findings)
}

fn json(findings: &[Finding]) -> String {
    serde_json::to_string_pretty(findings).map_or_else(|error| error.to_string(), |text| text + "\n")
}

/// The exit code for the worst of them.
fn worst(findings: &[Finding]) -> u8 {
    let code = |finding: &Finding| match &finding.severity[..] {
        "serious" => 3,
        "warning" => 2,
        _ => 1,
    };
    findings.iter().map(code).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rule: &str, severity: &str, evidence: &str, advice: &str) -> Finding {
        let [rule, severity, evidence, advice] = [rule, severity, evidence, advice].map(str::to_owned);
        Finding { rule, severity, evidence, advice }
    }

    #[test]
    fn findings_are_said_in_words_and_the_worst_is_the_exit_code() {
        let findings = [
            finding("churn", "note", "many", "keep them"),
            finding("swapping", "serious", "2 MiB: swapped", "more"),
        ];
        assert_eq!(
            words(&findings),
            "note: many (churn)\n  keep them\nserious: 2 MiB: swapped (swapping)\n  more\n"
        );
        assert_eq!((worst(&findings), worst(&findings[..1]), worst(&[])), (3, 1, 0));
        assert!(json(&findings).contains("\"severity\": \"serious\""));
    }

    #[test]
    fn what_is_no_address_is_told_what_is_expected() {
        for bad in ["nowhere", "redis://nowhere"] {
            let error = ask(bad).unwrap_err();
            assert!(error.to_string().starts_with("expected HOST:PORT, such as "), "{bad}: {error}");
            assert_eq!(error.exit_code(), exit::USAGE, "{bad}");
        }
    }
}
