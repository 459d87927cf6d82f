//! The generator alone, beside a load: the same requests, answered by a null server.
//!
//! It is shown, and a server that did more is no error: a null server has one thread, and the server may have many. A load that
//! is no simple closed loop of one thread over plain connections has none, nor one whose replies a null server cannot have.

use std::time::Duration;

use larder_eventloop::cpu;
use rustix::process::{Resource, getrlimit};

use super::Options;
use crate::ceiling::Alone;
use crate::connection::Check;
use crate::keys::Choice;
use crate::null::Answers;
use crate::results::Ceiling;
use crate::route::{Route, SocketKind};
use crate::workload::{Verb, Workload};

/// The shortest load beside which it is measured: a shorter one would take much longer with it.
const LOAD_MIN: Duration = Duration::from_secs(1);
/// Descriptors that this process may need beside those of connections.
const OTHER_FILES: u64 = 64;

/// The rate of the generator alone with a load that took `took`; `None` if the load has no ceiling, or if it cannot be measured:
/// the load has its result already.
pub(super) fn measure(
    args: &Options,
    workload: &Workload,
    check: Check,
    took: Duration,
    cores: &[Option<usize>],
) -> Option<Ceiling> {
    let files_max = getrlimit(Resource::Nofile).current;
    if took < LOAD_MIN || !has_one(args, workload) || !has_files(workload.connections, files_max) {
        return None;
    }
    // A null server on the generator's core would be as slow as the two together.
    let [own] = cores else { return None };
    let server_core = cpu::cores().ok()?.into_iter().find(|&core| Some(core) != *own)?;
    let (workload, check) = asked(workload, check);
    let socket = SocketKind::of(&args.target.endpoint.address);
    let route = Route { protocol: workload.protocol, socket };
    let checked = match check {
        Check::Length => "counted",
        Check::Parse => "parsed",
        Check::Verify => "verified",
    };
    let load = format!("{} {}×{}, {route}, {checked}", workload.mix, workload.connections, workload.pipeline);
    let server_core = Some(server_core);
    let wait_max = args.wait_max;
    let alone = Alone { workload: &workload, check, socket, server_core, generator_cores: cores, wait_max };
    // Replies that are not the load's say nothing of it.
    alone.measure(load).ok().and_then(|(ceiling, wrong)| (wrong == 0).then_some(ceiling))
}

/// Whether a load has a ceiling.
fn has_one(args: &Options, workload: &Workload) -> bool {
    let is_plain = args.target.endpoint.tls.is_none() && args.churn == 0;
    let is_closed = args.rate.is_none() && args.threads_count() == 1;
    // What a swap finds depends on the one before, which a null server does not know.
    is_plain && is_closed && !workload.mix.has(Verb::Cas) && Answers::of(workload).is_some()
}

/// Whether both ends of so many connections may be in this process: a null server that cannot accept the last ones would have the
/// generator wait in vain.
fn has_files(connections: usize, files_max: Option<u64>) -> bool {
    files_max.is_none_or(|most| 2 * connections as u64 + OTHER_FILES <= most)
}

/// The load as a null server is asked, and how closely its replies are checked. All its values are one key's: reads that are
/// verified are of that key, and replies of other loads are parsed. Sets read none: they stay verified, since only then does the
/// generator write their values anew, as it did in the load.
fn asked(workload: &Workload, check: Check) -> (Workload, Check) {
    let reads_one = workload.mix.only() == Some(Verb::Hit) && workload.keys_per_request == 1;
    let sets = workload.mix.only() == Some(Verb::Set);
    match check {
        Check::Verify if reads_one => (Workload { choice: Choice::One, ..workload.clone() }, check),
        Check::Verify if sets => (workload.clone(), check),
        Check::Verify => (workload.clone(), Check::Parse),
        Check::Length | Check::Parse => (workload.clone(), check),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use larder_protocol::client::Protocol;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: Options,
    }

    fn options(target: &str, words: &[&str]) -> Options {
        Line::parse_from(["load", "--target", target].into_iter().chain(words.iter().copied())).load
    }

    const PLAIN: &str = "a=memcached://127.0.0.1:1";

    #[test]
    fn a_closed_loop_of_one_thread_over_plain_connections_has_a_ceiling() {
        let has = |target: &str, words: &[&str]| {
            let args = options(target, words);
            has_one(&args, &args.workload(Protocol::Classic).unwrap())
        };
        for words in [&["--zipf", "0.9"][..], &["--verb", "hit:9,set:1"], &["--pipeline", "200"], &[]] {
            assert!(has(PLAIN, words), "{words:?}");
        }
        assert!(has("a=memcached+unix:///run/m", &[]));
        for words in [
            &["--rate", "1000"][..],
            &["--churn", "5"],
            &["--threads", "2"],
            &["--cores", "0,1"],
            &["--verb", "cas"],
            &["--value-bytes", "50-150"],
        ] {
            assert!(!has(PLAIN, words), "{words:?}");
        }
        assert!(!has("a=memcacheds://127.0.0.1:1?ssl_cert_reqs=none", &[]));
    }

    #[test]
    fn a_load_of_less_than_a_second_has_no_ceiling() {
        let args = options(PLAIN, &[]);
        let workload = args.workload(Protocol::Classic).unwrap();
        let took = LOAD_MIN - Duration::from_nanos(1);
        assert_eq!(measure(&args, &workload, Check::Parse, took, &[None]), None);
    }

    #[test]
    fn both_ends_of_all_connections_have_descriptors() {
        let most = Some(1024);
        assert!(has_files(479, most) && has_files(480, most) && !has_files(481, most));
        assert!(has_files(1 << 20, None) && !has_files(1, Some(64)));
    }

    #[test]
    fn values_are_verified_where_all_are_one_keys_or_none_is_read_and_else_parsed() {
        let of = |words: &[&str], check| {
            let args = options(PLAIN, words);
            let (workload, check) = asked(&args.workload(Protocol::Classic).unwrap(), check);
            (workload.choice, check)
        };
        assert_eq!(of(&[], Check::Verify), (Choice::One, Check::Verify));
        assert_eq!(of(&[], Check::Length), (Choice::Uniform, Check::Length));
        assert_eq!(of(&["--verb", "set"], Check::Verify), (Choice::Uniform, Check::Verify));
        assert_eq!(of(&["--verb", "set"], Check::Parse), (Choice::Uniform, Check::Parse));
        assert_eq!(of(&["--verb", "hit:9,set:1"], Check::Verify), (Choice::Uniform, Check::Parse));
        assert_eq!(of(&["--keys-per-request", "9"], Check::Verify), (Choice::Uniform, Check::Parse));
    }
}
