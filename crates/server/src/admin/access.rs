//! Decides which requests are answered: those that name a host of this server's, that no other site's page has a browser send,
//! and, but for a few places that are open, those with the password of a user (HTTP's Basic scheme).
//!
//! ```text
//!             other host ──► 421        another site's page ──► 403
//! a request ─ open place, or no password is asked for ──► Granted
//!             no password ──► 401 (403 where no user has one)
//!             a password, and its network gave a wrong one within PAUSE_MS ──► Later: it is looked at after that
//!             the right one ──► Granted, or 401 where its user has no right to figures, so that a browser asks for another
//!             a wrong one ──► Wrong: 401 after PAUSE_MS
//! ```
//!
//! Users are those of `--http-auth-file`, which are shown all. Without that file they are the users of the clients, as they are
//! at that moment, which are shown what their rules let them ask for ([`Rights`]). A listener that this machine alone reaches
//! then asks for a password as long as clients have to say one; a listener that others reach always does. There the users of the
//! clients do not count if clients have a port that speaks TLS and the listener speaks none: their passwords would cross the
//! network in the clear.
//!
//! So a network has two guesses a second, however many connections it has and whether or not it waits for the answer.
//! Nothing waits here: the connection is told when its time comes, and others have their turn meanwhile. Time comes as an
//! argument.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larder_commands::{Access as Users, Digest, Rights};
use larder_eventloop::Millis;

use super::http::{Hosts, Request, Status};

/// After a wrong password no other of the same network is looked at for so long.
pub const PAUSE_MS: Millis = 500;

/// Most networks that are known to have given a wrong password within [`PAUSE_MS`]. One more has the first of them forgotten:
/// clients of more networks guess as fast as these let them, and keep no other waiting.
const NETWORKS_MAX: usize = 4096;

/// The longest user and password together, in base64: what is longer is wrong.
const SECRET_BYTES_MAX: usize = 1024;

/// Which users may see what is not open.
#[derive(Debug)]
pub enum Readers {
    /// These, which may see all.
    Own(Users),
    /// The users of the clients.
    Clients {
        /// Other machines reach the listener: nothing is shown without a password.
        beyond: bool,
    },
}

impl Readers {
    /// The listener's own users, or, if there are none, those of the clients. `beyond`: other machines reach it; `lacks_tls`:
    /// clients have a port that speaks TLS, which says that others read the network, and the listener speaks none. With both, the
    /// users of the clients do not count.
    pub fn of(own: &[(String, Digest)], beyond: bool, lacks_tls: bool) -> Readers {
        if own.is_empty() && !(beyond && lacks_tls) {
            Readers::Clients { beyond }
        } else {
            Readers::Own(Users::new(None, own))
        }
    }

    /// The warning at the start of a listener that other machines reach, if there is one; `clients`: the users of the clients.
    pub fn warning(&self, clients: &Users, speaks_tls: bool) -> Option<&'static str> {
        match self {
            Readers::Own(users) if users.has_passwords() => (!speaks_tls).then_some(WARNING_OWN),
            Readers::Clients { .. } if clients.has_passwords() => (!speaks_tls).then_some(WARNING_CLIENTS),
            Readers::Own(_) => Some(WARNING_CLOSED),
            Readers::Clients { .. } => Some(WARNING_NOBODY),
        }
    }
}

const WARNING_OWN: &str = "passwords for HTTP cross the network in the clear";
const WARNING_CLIENTS: &str =
    "passwords of clients cross the network in the clear where they are given by HTTP";
const WARNING_CLOSED: &str =
    "others see /metrics and /healthz; where clients have TLS the page needs --http-tls or --http-auth-file";
const WARNING_NOBODY: &str =
    "others are shown /metrics and /healthz; the page needs a user with a password (--http-auth-file)";

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is answered, with what may be shown.
    Granted(Rights),
    /// It is refused at once.
    Refused(Status),
    /// Its password is wrong: it is refused at this time.
    Wrong(Millis),
    /// It is to be asked about again at this time.
    Later(Millis),
}

/// Which requests are answered.
#[derive(Debug)]
pub struct Access {
    hosts: Hosts,
    readers: Readers,
    failures: Failures,
}

impl Access {
    /// With these hosts and readers, and no failures.
    pub fn new(hosts: Hosts, readers: Readers) -> Access {
        Access { hosts, readers, failures: Failures::default() }
    }

    /// Wrong passwords until now.
    pub fn failed(&self) -> u64 {
        self.failures.count
    }

    /// What becomes of a request from this address; `clients`: the users of the clients; `open`: its place is shown
    /// without a password.
    pub fn admit(
        &mut self,
        clients: &Users,
        request: &Request<'_>,
        open: bool,
        from: IpAddr,
        now: Millis,
    ) -> Admission {
        if request.host.is_some_and(|host| !self.hosts.admit(host)) {
            return Admission::Refused(Status::Misdirected);
        }
        if request.cross_site {
            return Admission::Refused(Status::CrossSite);
        }
        if open {
            return Admission::Granted(Rights::Figures);
        }
        let (users, unasked) = match &self.readers {
            Readers::Own(users) => (users, Rights::None),
            Readers::Clients { beyond: true } => (clients, Rights::None),
            Readers::Clients { beyond: false } => (clients, clients.unasked()),
        };
        let has_passwords = users.has_passwords();
        // A password that would add nothing is not looked at. A browser asks without one first.
        let authorization = request.authorization.filter(|_| has_passwords && unasked != Rights::Keys);
        let Some(authorization) = authorization else {
            return match unasked {
                Rights::None if has_passwords => Admission::Refused(Status::Unauthorized),
                Rights::None => Admission::Refused(Status::Forbidden),
                Rights::Figures | Rights::Keys => Admission::Granted(unasked),
            };
        };
        let network = network_of(from);
        if let Some(until) = self.failures.pause(network, now) {
            return Admission::Later(until);
        }
        match reader_of(users, authorization) {
            // What is shown without a password is shown to a user, too.
            Some(rights) => match rights.max(unasked) {
                // A browser keeps a password that is answered by anything else, and asks for no other user.
                Rights::None => Admission::Refused(Status::Unauthorized),
                rights => Admission::Granted(rights),
            },
            None => Admission::Wrong(self.failures.note(network, now)),
        }
    }
}

/// What may be shown to the user of this name and password; none if there is no such user.
fn reader_of(users: &Users, authorization: &[u8]) -> Option<Rights> {
    let mut words = authorization.splitn(2, |byte| *byte == b' ');
    let (scheme, secret) = (words.next()?, words.next()?.trim_ascii());
    if !scheme.eq_ignore_ascii_case(b"basic") || secret.len() > SECRET_BYTES_MAX {
        return None;
    }
    let secret = STANDARD.decode(secret).ok()?;
    let colon = secret.iter().position(|byte| *byte == b':')?;
    users.reader(&secret[..colon], &secret[colon + 1..])
}

/// The network of which one client may have all addresses: an address of IPv4 itself, the first 64 bits of one of IPv6.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Networks that gave a wrong password, and until when none of them is looked at.
#[derive(Debug, Default)]
struct Failures {
    networks: VecDeque<(IpAddr, Millis)>,
    count: u64,
}

impl Failures {
    /// Until when no password of a network is looked at, if there is such a time.
    fn pause(&mut self, network: IpAddr, now: Millis) -> Option<Millis> {
        self.networks.retain(|(_, until)| *until > now);
        self.networks.iter().find(|(known, _)| *known == network).map(|(_, until)| *until)
    }

    /// Notes a wrong password of a network that has no pause, and returns until when it has one now.
    fn note(&mut self, network: IpAddr, now: Millis) -> Millis {
        let until = now + PAUSE_MS;
        if self.networks.len() == NETWORKS_MAX {
            self.networks.pop_front();
        }
        self.networks.push_back((network, until));
        self.count += 1;
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::http::{Parsed, parse};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const ALL: Admission = Admission::Granted(Rights::Keys);
    const OPEN: Admission = Admission::Granted(Rights::Figures);

    fn users() -> Users {
        let users = [("ann", "a:secret"), ("bo", "other")].map(|(user, word)| (user.to_owned(), word.into()));
        Users::new(None, &users)
    }

    fn with(readers: Readers) -> Access {
        Access::new(Hosts { addresses: true, names: Vec::new() }, readers)
    }

    fn access() -> Access {
        with(Readers::Own(users()))
    }

    /// What becomes of a request with this line, or none, for a place that is not open.
    fn admit(access: &mut Access, line: &str, from: IpAddr, now: Millis) -> Admission {
        of(access, "10.0.0.9", line, false, from, now)
    }

    fn of(access: &mut Access, host: &str, line: &str, open: bool, from: IpAddr, now: Millis) -> Admission {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{line}\r\n");
        let Parsed::Whole(request) = parse(head.as_bytes()) else { panic!("{head}") };
        access.admit(&Users::default(), &request, open, from, now)
    }

    /// What becomes of a request with this line for a place that is not open, beside these users of clients.
    fn beside(clients: &Users, access: &mut Access, line: &str, now: Millis) -> Admission {
        let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{line}\r\n");
        let Parsed::Whole(request) = parse(head.as_bytes()) else { panic!("{head}") };
        access.admit(clients, &request, false, HERE, now)
    }

    fn basic(secret: &str) -> String {
        format!("Authorization: Basic {}\r\n", STANDARD.encode(secret))
    }

    #[test]
    fn what_is_not_open_is_shown_to_users_alone() {
        let mut access = access();
        for right in ["ann:a:secret", "bo:other"] {
            assert_eq!(admit(&mut access, &basic(right), HERE, 0), ALL, "{right}");
        }
        let lower = basic("bo:other").replace("Basic", "bASIC");
        assert_eq!(admit(&mut access, &lower, HERE, 0), ALL);
        assert_eq!(admit(&mut access, "", HERE, 0), Admission::Refused(Status::Unauthorized));
        assert_eq!(of(&mut access, "10.0.0.9", "", true, HERE, 0), OPEN);
        assert_eq!(access.failed(), 0);
        let long = basic(&format!("ann:{}", "x".repeat(SECRET_BYTES_MAX)));
        let wrong = ["", ":", "ann", "ann:", "ann:a", "ann:other", "default:", "default:other", "x:a:secret"];
        let mut lines: Vec<String> = wrong.map(basic).to_vec();
        lines.extend([long, "Authorization: Basic %%%\r\n".into(), "Authorization: Basic\r\n".into()]);
        lines.push(basic("bo:other").replace("Basic", "Bearer"));
        for (line, now) in lines.iter().zip((0..).step_by(PAUSE_MS as usize)) {
            assert_eq!(admit(&mut access, line, HERE, now), Admission::Wrong(now + PAUSE_MS), "{line}");
        }
        assert_eq!(access.failed(), lines.len() as u64);
    }

    #[test]
    fn another_host_is_refused_whatever_the_password_is() {
        let mut access = access();
        let refused = Admission::Refused(Status::Misdirected);
        assert_eq!(of(&mut access, "evil.example", &basic("bo:other"), false, HERE, 0), refused);
        assert_eq!(of(&mut access, "evil.example", "", true, HERE, 0), refused);
        let mut all = Access::new(Hosts::default(), Readers::Clients { beyond: false });
        assert_eq!(of(&mut all, "10.0.0.9", "", false, HERE, 0), refused);
        assert_eq!(of(&mut all, "localhost", &basic("no:one"), false, HERE, 0), ALL);
    }

    #[test]
    fn what_another_sites_page_asks_for_is_refused_and_is_no_guess() {
        let (mut access, refused) = (access(), Admission::Refused(Status::CrossSite));
        for secret in ["bo:other", "bo:wrong"] {
            let line = format!("Sec-Fetch-Site: cross-site\r\n{}", basic(secret));
            assert_eq!(admit(&mut access, &line, HERE, 0), refused, "{secret}");
            assert_eq!(of(&mut access, "10.0.0.9", &line, true, HERE, 0), refused, "{secret}");
        }
        assert_eq!((access.failed(), access.failures.networks.len()), (0, 0));
        assert_eq!(admit(&mut access, &basic("bo:other"), HERE, 0), ALL);
    }

    #[test]
    fn where_there_are_no_users_what_is_open_is_all() {
        let mut access = with(Readers::Clients { beyond: true });
        assert_eq!(of(&mut access, "10.0.0.9", "", true, HERE, 0), OPEN);
        for line in ["".to_owned(), basic("ann:a:secret")] {
            assert_eq!(admit(&mut access, &line, HERE, 0), Admission::Refused(Status::Forbidden));
        }
    }

    #[test]
    fn without_users_of_its_own_it_asks_for_those_of_the_clients_where_these_have_to_say_who_they_are() {
        let (open, closed) = (Users::default(), users());
        for beyond in [false, true] {
            let mut access = with(Readers::Clients { beyond });
            assert_eq!(beside(&closed, &mut access, "", 0), Admission::Refused(Status::Unauthorized));
            assert_eq!(beside(&closed, &mut access, &basic("bo:other"), 0), ALL);
            let wrong = Admission::Wrong(PAUSE_MS);
            assert_eq!(beside(&closed, &mut access, &basic("bo:wrong"), 0), wrong, "{beyond}");
            assert_eq!(beside(&closed, &mut access, &basic("bo:other"), 1), Admission::Later(PAUSE_MS));
            // From one moment to the next no password is asked for any more: no user has one.
            let now = if beyond { Admission::Refused(Status::Forbidden) } else { ALL };
            for line in ["".to_owned(), basic("bo:other"), basic("default:")] {
                assert_eq!(beside(&open, &mut access, &line, 2), now, "{beyond} {line}");
            }
            assert_eq!(access.failed(), 1);
        }
    }

    #[test]
    fn passwords_of_clients_who_have_tls_are_not_asked_for_where_others_read_them() {
        let (nobody, clients) = (Users::default(), users());
        let own = [("ann".to_owned(), "secret".into())];
        let refused = Admission::Refused(Status::Forbidden);
        for (beyond, lacks_tls, asked) in
            [(false, false, ALL), (false, true, ALL), (true, false, ALL), (true, true, refused)]
        {
            let mut access = with(Readers::of(&[], beyond, lacks_tls));
            assert_eq!(beside(&clients, &mut access, &basic("bo:other"), 0), asked, "{beyond} {lacks_tls}");
            let mut access = with(Readers::of(&own, beyond, lacks_tls));
            assert_eq!(beside(&clients, &mut access, &basic("ann:secret"), 0), ALL, "{beyond} {lacks_tls}");
        }
        for (users, lacks_tls, clients, warning, by_tls) in [
            (&own[..], true, &nobody, WARNING_OWN, None),
            (&own[..], false, &clients, WARNING_OWN, None),
            (&own[..0], false, &clients, WARNING_CLIENTS, None),
            (&own[..0], false, &nobody, WARNING_NOBODY, Some(WARNING_NOBODY)),
            (&own[..0], true, &clients, WARNING_CLOSED, Some(WARNING_CLOSED)),
            (&own[..0], true, &nobody, WARNING_CLOSED, Some(WARNING_CLOSED)),
        ] {
            let readers = Readers::of(users, true, lacks_tls);
            assert_eq!(readers.warning(clients, false), Some(warning));
            assert_eq!(readers.warning(clients, true), by_tls);
        }
    }

    #[test]
    fn users_of_its_own_are_asked_for_whatever_the_clients_are() {
        let mut access = access();
        let clients = Users::new(Some(&"secret".into()), &[]);
        for (at, clients) in (0..).step_by(PAUSE_MS as usize).zip([&Users::default(), &clients]) {
            assert_eq!(beside(clients, &mut access, "", at), Admission::Refused(Status::Unauthorized));
            assert_eq!(beside(clients, &mut access, &basic("bo:other"), at), ALL);
            let wrong = beside(clients, &mut access, &basic("default:secret"), at);
            assert_eq!(wrong, Admission::Wrong(at + PAUSE_MS));
        }
    }

    #[test]
    fn a_network_has_one_guess_at_a_time_and_keeps_no_other_waiting() {
        let mut access = access();
        let (wrong, right) = (basic("bo:wrong"), basic("bo:other"));
        let there: IpAddr = "10.0.0.2".parse().expect("an address");
        assert_eq!(admit(&mut access, &wrong, HERE, 0), Admission::Wrong(PAUSE_MS));
        // The right one is not looked at sooner: the time would tell which it is.
        for line in [&wrong, &right] {
            assert_eq!(admit(&mut access, line, HERE, 1), Admission::Later(PAUSE_MS));
            assert_eq!(admit(&mut access, line, HERE, PAUSE_MS - 1), Admission::Later(PAUSE_MS));
        }
        assert_eq!(admit(&mut access, &right, there, 1), ALL);
        assert_eq!(of(&mut access, "10.0.0.9", &wrong, true, HERE, 1), OPEN);
        assert_eq!(admit(&mut access, &right, HERE, PAUSE_MS), ALL);
        assert_eq!(access.failed(), 1);
        // Addresses of one network are one; those that are IPv4's written as IPv6's are the same.
        let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
        let wait = Admission::Later(2 * PAUSE_MS);
        assert_eq!(
            admit(&mut access, &wrong, v6("2001:db8:0:1::1"), PAUSE_MS),
            Admission::Wrong(2 * PAUSE_MS)
        );
        assert_eq!(admit(&mut access, &wrong, v6("2001:db8:0:1:2:3:4:5"), PAUSE_MS), wait);
        assert_eq!(admit(&mut access, &right, v6("2001:db8:0:2::1"), PAUSE_MS), ALL);
        assert_eq!(admit(&mut access, &wrong, HERE, PAUSE_MS), Admission::Wrong(2 * PAUSE_MS));
        assert_eq!(admit(&mut access, &wrong, v6("::ffff:10.0.0.1"), PAUSE_MS), wait);
    }

    #[test]
    fn so_many_networks_are_remembered_and_the_first_goes() {
        let mut access = access();
        let of = |at: usize| IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + at as u32));
        let wrong = basic("bo:wrong");
        for at in 0..=NETWORKS_MAX {
            assert_eq!(admit(&mut access, &wrong, of(at), 0), Admission::Wrong(PAUSE_MS));
        }
        assert_eq!(access.failures.networks.len(), NETWORKS_MAX);
        assert_eq!(admit(&mut access, &wrong, of(1), 1), Admission::Later(PAUSE_MS));
        assert_eq!(admit(&mut access, &basic("bo:other"), of(0), 1), ALL);
        assert_eq!(admit(&mut access, &wrong, of(1), PAUSE_MS), Admission::Wrong(2 * PAUSE_MS));
        assert_eq!(access.failures.networks.len(), 1);
    }
}
