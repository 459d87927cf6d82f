//! `larder doctor`: what a running server's operator should know, in words.
//!
//! It asks for `stats doctor` on a port where memcached's text is spoken: over the network as well as on the machine, and
//! without the port for monitors. The exit code is for scripts: 0 nothing, 1 notes, 2 warnings, 3 something serious.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;

use crate::exit;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Says what a running Larder's operator should know: exit code 0 nothing, 1 notes, 2 warnings, 3 something serious.
#[derive(Debug, Parser)]
#[command(name = "larder doctor", after_help = exit::TABLE)]
struct Options {
    /// Where memcached's text is spoken
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211")]
    target: String,
    /// Prints findings as JSON
    #[arg(long)]
    json: bool,
}

/// A finding, as the server tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Finding {
    rule: String,
    severity: String,
    evidence: String,
    advice: String,
}

/// `larder doctor` with the arguments behind it.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let program = std::iter::once(OsString::from("larder doctor"));
    let options = match Options::try_parse_from(program.chain(arguments)) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match ask(&options.target).and_then(|lines| read(&lines)) {
        Ok(findings) => {
            let text = if options.json { json(&findings) } else { words(&findings) };
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::from(worst(&findings))
        }
        Err(reason) => {
            eprintln!("larder doctor: {}: {reason}", options.target);
            ExitCode::from(exit::NO_ANSWER)
        }
    }
}

/// The lines that the server answers.
fn ask(target: &str) -> Result<Vec<String>, String> {
    let failed = |error: io::Error| error.to_string();
    let mut addresses = target.to_socket_addrs().map_err(failed)?;
    let address = addresses.next().ok_or("no such host")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
    stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .map_err(failed)?;
    stream.write_all(b"stats doctor\r\n").map_err(failed)?;
    let mut lines = Vec::new();
    for line in BufReader::new(stream.take(ANSWER_BYTES_MAX)).lines() {
        let line = line.map_err(failed)?;
        if line == "END" {
            return Ok(lines);
        }
        if !line.starts_with("STAT ") {
            return Err(format!("it answers {line:?}: this is no Larder, or an older one"));
        }
        lines.push(line);
    }
    Err("the answer has no end".into())
}

/// Findings from lines `STAT rule:severity …`, `STAT rule:evidence …`, `STAT rule:advice …`.
fn read(lines: &[String]) -> Result<Vec<Finding>, String> {
    let mut findings: Vec<Finding> = Vec::new();
    for line in lines {
        let parts = || {
            let (name, text) = line.strip_prefix("STAT ")?.split_once(' ')?;
            let (rule, part) = name.split_once(':')?;
            Some((rule, part, text))
        };
        let (rule, part, text) = parts().ok_or_else(|| format!("{line:?} is no finding"))?;
        if findings.last().is_none_or(|last| last.rule != rule) {
            findings.push(Finding { rule: rule.into(), ..Finding::default() });
        }
        let Some(finding) = findings.last_mut() else { continue };
        match part {
            "severity" => finding.severity = text.into(),
            "evidence" => finding.evidence = text.into(),
            "advice" => finding.advice = text.into(),
            // Of a newer server.
            _ => {}
        }
    }
    Ok(findings)
}

fn words(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing to say: all is well\n".into();
    }
    let one = |finding: &Finding| {
        let Finding { rule, severity, evidence, advice } = finding;
        format!("{severity}: {evidence} ({rule})\n  {advice}\n")
    };
    findings.iter().map(one).collect()
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

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn findings_are_read_and_the_worst_is_the_exit_code() {
        let said = lines(
            "STAT churn:severity note\nSTAT churn:evidence many\nSTAT churn:advice keep them\n\
             STAT swapping:severity serious\nSTAT swapping:newer x\nSTAT swapping:evidence 2 MiB: swapped",
        );
        let findings = read(&said).expect("findings");
        assert_eq!(
            words(&findings),
            "note: many (churn)\n  keep them\nserious: 2 MiB: swapped (swapping)\n  \n"
        );
        assert_eq!((worst(&findings), worst(&findings[..1]), worst(&[])), (3, 1, 0));
        assert!(json(&findings).contains("\"severity\": \"serious\""));
        assert!(read(&lines("STAT pid 7")).is_err(), "another statistic");
    }
}
