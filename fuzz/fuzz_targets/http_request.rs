//! What may come to the port for monitors: a head is read as it is wherever it is cut, is answered under a name of this
//! machine alone, and a query is text or refused. Nothing panics.
#![no_main]

use larder_server::http::{HEAD_BYTES_MAX, Hosts, Parsed, Status, pairs, parse};
use libfuzzer_sys::fuzz_target;
use std::net::IpAddr;

fuzz_target!(|input: &[u8]| {
    match parse(input) {
        Parsed::Partial => assert!(input.len() < HEAD_BYTES_MAX),
        Parsed::Refused(status) => assert_ne!(status, Status::Ok),
        Parsed::Whole(request) => {
            assert!(request.bytes <= input.len() && request.path.starts_with('/') && !request.path.contains('?'));
            assert_eq!(parse(&input[..request.bytes]), Parsed::Whole(request.clone()));
            let head = &input[..request.bytes];
            // What is not whole is waited for, or too long.
            for end in [0, 1, request.bytes / 2, request.bytes - 1] {
                let cut = parse(&head[..end]);
                let too_long = end >= HEAD_BYTES_MAX && cut == Parsed::Refused(Status::HeadTooLong);
                assert!(cut == Parsed::Partial || too_long, "{cut:?}");
            }
            let host = request.host.map(|host| host.trim_matches([' ', '\t']).to_owned());
            assert_eq!(host.clone().into_iter().collect::<Vec<_>>(), hosts(head), "{}", head.escape_ascii());
            assert!(host.is_none_or(|host| !Hosts::default().admit(&host) || is_this_machine(&host)));
            assert!(hosts(head).len() == 1 || hosts(head).is_empty() && head.windows(8).any(|part| part == b"HTTP/1.0"));
            if let Ok(pairs) = pairs(request.query) {
                let decoded: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
                assert!(decoded <= request.query.len());
            }
        }
    }
});

/// Values of all lines `Host:`.
fn hosts(head: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(head);
    let lines = text.split('\n').filter_map(|line| line.split_once(':'));
    let hosts = lines.filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    hosts.map(|(_, value)| value.trim_matches(['\r', ' ', '\t']).to_owned()).collect()
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}
