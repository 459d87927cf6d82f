//! Results of calls in the words of the cases.

use larder_client::{Error, Meta, Outcome, Report, Stored};
use std::fmt::Write as _;

pub fn plain(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

pub fn found(bytes: &[u8], meta: &Meta) -> String {
    let mut text = format!("hit value={}", plain(bytes));
    let marks = meta.marks;
    for (name, number) in [
        ("flags", u64::from(meta.flags)),
        ("cas", meta.cas),
        ("ttl", meta.ttl.unwrap_or_default().as_secs()),
        ("size", meta.size),
        ("last-access", meta.last_access.as_secs()),
        ("hit-before", u64::from(marks.hit_before)),
        ("stale", u64::from(marks.stale)),
        ("won", u64::from(marks.won)),
        ("pending", u64::from(marks.pending)),
    ] {
        if number > 0 {
            write!(text, " {name}={number}").expect("text");
        }
    }
    text
}

pub fn stored(result: Result<Stored, Error>) -> String {
    match result {
        Ok(Stored { cas: 0 }) => "stored".to_owned(),
        Ok(Stored { cas }) => format!("stored cas={cas}"),
        Err(error) => failed(&error),
    }
}

pub fn failed(error: &Error) -> String {
    let name = match error {
        Error::Absent => return "miss".to_owned(),
        Error::Conflict => return "conflict".to_owned(),
        Error::NotStored => return "not-stored".to_owned(),
        Error::BadKey => "bad-key",
        Error::TooLarge => "too-large",
        Error::NotNumber => "not-number",
        Error::Auth(_) => "auth",
        Error::Closed(_) => "closed",
        Error::Config(_) => "config",
        Error::Local(_) => "source",
        Error::ServerMemory(_) => "server-memory",
        Error::Server(..) | Error::Unsupported => "server",
        Error::Protocol(..) => "protocol",
        Error::Timeout(..) => "timeout",
        Error::Down(..) => "down",
        Error::Lost(..) => "lost",
        _ => panic!("{error}"),
    };
    let outcome = match error.outcome() {
        Outcome::Answered => "answered",
        Outcome::NotSent => "not-sent",
        Outcome::Unknown => "unknown",
    };
    format!("error {name} {outcome}")
}

pub fn reported(report: &Report) -> String {
    let Report { sent, stored, refused, unknown, .. } = report;
    assert_eq!(*sent, stored + refused + unknown);
    let mut text = format!("sent={sent} stored={stored} refused={refused} unknown={unknown}");
    for refused in &report.first {
        write!(text, "; {} {}", plain(&refused.key), failed(&refused.error)).expect("text");
    }
    if let Some(error) = &report.error {
        write!(text, "; all: {}", failed(error)).expect("text");
    }
    text
}
