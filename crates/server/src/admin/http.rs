//! HTTP/1.1 as far as it is spoken: heads of GET and HEAD in, answers with their heads out. No I/O.
//!
//! ```text
//! bytes ──► parse ──► Partial │ Whole(request) │ Refused(status)
//!                                   answer ──► head + body
//! ```
//!
//! [`Hosts`] says which hosts a request may name: a page from elsewhere that has its own name lead here (DNS rebinding) sends
//! that name. There is no CORS header, so that no other site's script reads an answer, and no request changes anything here. What
//! a browser says another site's page has asked for is refused; a link that leads here is answered ([`Request::cross_site`]).

use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;

/// Most bytes of a head.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// Most lines of a head.
pub const HEAD_LINES_MAX: usize = 64;

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it asks.
    Ok,
    /// It is not understood.
    BadRequest,
    /// It needs a user's password, and has none, a wrong one, or that of a user that may not see it.
    Unauthorized,
    /// It needs the password of a user, and no user has one.
    Forbidden,
    /// Another site's page asks.
    CrossSite,
    /// There is nothing there.
    NotFound,
    /// Its method is neither GET nor HEAD.
    MethodNotAllowed,
    /// The rest of the head was too long in coming.
    RequestTimeout,
    /// It has a body.
    ContentTooLarge,
    /// It asks for another host.
    Misdirected,
    /// The head is too long.
    HeadTooLong,
    /// Other answers take the memory that it needs.
    Unavailable,
    /// It is of another version of HTTP.
    VersionNotSupported,
}

impl Status {
    /// The number and the words.
    pub fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::Unauthorized => "401 Unauthorized",
            Status::Forbidden | Status::CrossSite => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::RequestTimeout => "408 Request Timeout",
            Status::ContentTooLarge => "413 Content Too Large",
            Status::Misdirected => "421 Misdirected Request",
            Status::HeadTooLong => "431 Request Header Fields Too Large",
            Status::Unavailable => "503 Service Unavailable",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// It wants the head of the answer alone.
    pub head_only: bool,
    /// Path, from its `/` on.
    pub path: &'a str,
    /// What is behind the `?`, or nothing.
    pub query: &'a str,
    /// The host that it asks, as it is written; HTTP/1.0 need not say one.
    pub host: Option<&'a str>,
    /// The value of `Authorization`.
    pub authorization: Option<&'a [u8]>,
    /// A browser says that a page of another origin asks for it (`Sec-Fetch-Site`, `Origin`), and not in order to show it in a
    /// window of its own. No page can say otherwise. Browsers send the first header to `localhost` and loopback addresses, and by
    /// TLS, this listener's or a proxy's. To other plain addresses they send the second alone, for what a script may read and for
    /// WebSockets.
    pub cross_site: bool,
    /// The connection stays.
    pub stays: bool,
    /// Bytes of its head.
    pub bytes: usize,
}

/// What the bytes at the front of a connection's input are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A part of a head.
    Partial,
    /// A head.
    Whole(Request<'a>),
    /// A head that is answered by this status, after which the connection ends.
    Refused(Status),
}

/// Reads the head at the front of a connection's input.
pub fn parse(input: &[u8]) -> Parsed<'_> {
    let mut lines = [httparse::EMPTY_HEADER; HEAD_LINES_MAX];
    let mut head = httparse::Request::new(&mut lines);
    let bytes = match head.parse(input) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) if input.len() >= HEAD_BYTES_MAX => {
            return Parsed::Refused(Status::HeadTooLong);
        }
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(httparse::Error::TooManyHeaders) => return Parsed::Refused(Status::HeadTooLong),
        Err(httparse::Error::Version) => return Parsed::Refused(Status::VersionNotSupported),
        Err(_) => return Parsed::Refused(Status::BadRequest),
    };
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Parsed::Refused(Status::BadRequest);
    };
    let request = Fields::of(head.headers).and_then(|fields| {
        let stays = fields.check(version)?;
        let (path, query, head_only) = of_target(method, target)?;
        let cross_site = fields.cross_site();
        let Fields { host, authorization, .. } = fields;
        Ok(Request { head_only, path, query, host, authorization, cross_site, stays, bytes })
    });
    request.map_or_else(Parsed::Refused, Parsed::Whole)
}

/// Path and query, and whether the head of the answer alone is wanted.
fn of_target<'a>(method: &str, target: &'a str) -> Result<(&'a str, &'a str, bool), Status> {
    let head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err(Status::MethodNotAllowed),
    };
    // A request as to a proxy is refused: the host that it names there may be another than the one that was checked.
    if !target.starts_with('/') {
        return Err(Status::BadRequest);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok((path, query, head_only))
}

/// The lines of a head that matter.
#[derive(Debug, Default)]
struct Fields<'a> {
    host: Option<&'a str>,
    authorization: Option<&'a [u8]>,
    /// It says `Connection: close`.
    closes: bool,
    /// It says `Connection: keep-alive`.
    keeps: bool,
    body: bool,
    /// The origin of the page that asks, where it is said.
    origin: Option<&'a [u8]>,
    /// A page of another origin asks.
    foreign: bool,
    /// Whether a link is followed.
    navigates: bool,
    /// Whether the answer fills a window, and no frame.
    fills_window: bool,
}

impl<'a> Fields<'a> {
    fn of(lines: &[httparse::Header<'a>]) -> Result<Fields<'a>, Status> {
        let mut fields = Fields::default();
        for line in lines {
            let is = |name: &str| line.name.eq_ignore_ascii_case(name);
            if is("host") {
                // With two it would not be known which host it asks.
                let host = std::str::from_utf8(line.value).map_err(|_| Status::BadRequest)?;
                if fields.host.replace(host).is_some() {
                    return Err(Status::BadRequest);
                }
            } else if is("authorization") {
                if fields.authorization.replace(line.value).is_some() {
                    return Err(Status::BadRequest);
                }
            } else if is("connection") {
                let mut words = line.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                let says = |word: &[u8], of: &[u8]| word.eq_ignore_ascii_case(of);
                words.by_ref().for_each(|word| {
                    fields.closes |= says(word, b"close");
                    fields.keeps |= says(word, b"keep-alive");
                });
            } else if is("content-length") {
                fields.body |= line.value.trim_ascii() != b"0";
            } else if is("transfer-encoding") {
                fields.body = true;
            } else if is("origin") {
                fields.foreign |= fields.origin.replace(line.value).is_some();
            } else if is("sec-fetch-site") {
                // `none`: a person has typed the address.
                fields.foreign |= ![&b"same-origin"[..], b"none"].contains(&line.value.trim_ascii());
            } else if is("sec-fetch-mode") {
                fields.navigates |= line.value.trim_ascii() == b"navigate";
            } else if is("sec-fetch-dest") {
                fields.fills_window |= line.value.trim_ascii() == b"document";
            }
        }
        Ok(fields)
    }

    fn cross_site(&self) -> bool {
        let foreign = self.foreign || self.origin.is_some_and(|origin| !self.is_own(origin));
        foreign && !(self.navigates && self.fills_window)
    }

    /// Whether an `Origin` is the host that is asked, which a proxy with TLS may be.
    fn is_own(&self, origin: &[u8]) -> bool {
        let origin = origin.trim_ascii();
        let of = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        let host = self.host.map(|host| host.trim_ascii().as_bytes());
        of.zip(host).is_some_and(|(of, host)| of.eq_ignore_ascii_case(host))
    }

    /// Whether the connection stays.
    fn check(&self, version: u8) -> Result<bool, Status> {
        if self.body {
            return Err(Status::ContentTooLarge);
        }
        // HTTP/1.0 need not say it; a browser always does.
        if self.host.is_none() && version == 1 {
            return Err(Status::BadRequest);
        }
        Ok(!self.closes && (version == 1 || self.keeps))
    }
}

/// Hosts that a request may name; by default this machine's alone, `localhost` and its addresses.
#[derive(Debug, Default)]
pub struct Hosts {
    /// Other addresses than loopback ones may be named, too. This is safe wherever such an address leads: a page from elsewhere
    /// that has its own name lead here sends the name.
    pub addresses: bool,
    /// Names besides `localhost`.
    pub names: Vec<String>,
}

impl Hosts {
    /// Whether a `Host` means this server. Any port does, since others may be led here, and the port leads nowhere else.
    pub fn admit(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        match name.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || self.addresses && !address.is_unspecified(),
            Err(_) => {
                let mut own = self.names.iter().map(String::as_str).chain(["localhost"]);
                own.any(|own| own.eq_ignore_ascii_case(name))
            }
        }
    }
}

/// The name or address of a `Host`, without its port; none if it is neither.
fn name_of(host: &str) -> Option<&str> {
    let host = host.trim_matches([' ', '\t']);
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']')?;
            (name, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    (!name.is_empty() && port.is_none_or(|port| port.parse::<u16>().is_ok())).then_some(name)
}

/// Names and values of a query, decoded.
///
/// # Errors
/// When a part is not what a browser would send.
pub fn pairs(query: &str) -> Result<Vec<(String, String)>, Status> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decoded(name)?, decoded(value)?))
        })
        .collect()
}

fn decoded(text: &str) -> Result<String, Status> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                rest = &rest[2.min(rest.len())..];
                byte.ok_or(Status::BadRequest)?
            }
            byte => *byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| Status::BadRequest)
}

/// Prometheus' text format.
pub const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Text for people.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// Data.
pub const JSON: &str = "application/json";
/// A page.
pub const HTML: &str = "text/html; charset=utf-8";
/// Its looks.
pub const CSS: &str = "text/css; charset=utf-8";
/// Its scripts.
pub const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How the request is answered.
    pub status: Status,
    /// What the body is.
    pub content_type: &'static str,
    /// The body.
    pub body: Cow<'static, str>,
}

impl Answer {
    /// An answer with this body.
    pub fn ok(content_type: &'static str, body: impl Into<Cow<'static, str>>) -> Answer {
        Answer { status: Status::Ok, content_type, body: body.into() }
    }

    /// An answer of the status in words.
    pub fn refusal(status: Status) -> Answer {
        let more = match status {
            Status::Forbidden => FORBIDDEN,
            Status::Unauthorized => UNAUTHORIZED,
            _ => "",
        };
        Answer { status, content_type: TEXT, body: format!("{}\n{more}", status.line()).into() }
    }

    /// All of its bytes, or those of its head.
    pub fn bytes(&self, head_only: bool, stays: bool) -> Vec<u8> {
        let mut text = String::with_capacity(512 + if head_only { 0 } else { self.body.len() });
        // Writing into a string cannot fail.
        let _ = write!(
            text,
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\n",
            self.status.line(),
            self.content_type,
            self.body.len(),
            if stays { "keep-alive" } else { "close" },
        );
        if self.status == Status::MethodNotAllowed {
            text.push_str("Allow: GET, HEAD\r\n");
        }
        if self.status == Status::Unauthorized {
            text.push_str("WWW-Authenticate: Basic realm=\"larder\", charset=\"UTF-8\"\r\n");
        }
        text.push_str(SAFE);
        let policy = if self.content_type == HTML { PAGE_POLICY } else { POLICY };
        let _ = write!(text, "Content-Security-Policy: {policy}\r\n\r\n");
        if !head_only {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

/// Advice where a password is needed.
const UNAUTHORIZED: &str = "\
This needs the password of a user: of --http-auth-file, or without that option of one of the clients' users that may call INFO
and CLIENT LIST: `default` is the one of --requirepass.
";

/// Advice where a password is needed and no user has one.
const FORBIDDEN: &str = "\
Only /metrics and /healthz are shown here. The rest needs the password of a user: of --http-auth-file, or without that option
of one of the clients' users (--requirepass-file, --auth-file, --aclfile) that may call INFO and CLIENT LIST. Where other
machines reach this port and clients have a TLS port, it needs that option or --http-tls: here passwords cross the network in
the clear.
";

/// Nothing here is to be kept, run, framed, or read by other sites.
const SAFE: &str = "Cache-Control: no-store\r\n\
X-Content-Type-Options: nosniff\r\n\
Cross-Origin-Resource-Policy: same-origin\r\n\
Referrer-Policy: no-referrer\r\n";

/// The policy of all that is no page: should a browser take it for one, nothing runs.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page runs its own scripts, has its own looks and asks this server. No text becomes markup or a script: there is
/// no policy by which it could (Trusted Types).
pub const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
require-trusted-types-for 'script'; trusted-types 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    fn get(head: &str) -> Parsed<'_> {
        parse(head.as_bytes())
    }

    fn refused(head: &str) -> Option<Status> {
        match get(head) {
            Parsed::Refused(status) => Some(status),
            Parsed::Partial | Parsed::Whole(_) => None,
        }
    }

    #[test]
    fn a_request_is_read_whole_wherever_it_is_cut() {
        let head = "GET /metrics?family=redis HTTP/1.1\r\nHost: localhost:9150\r\nAccept: */*\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(get(&head[..cut]), Parsed::Partial, "{cut}");
        }
        let whole = Request {
            head_only: false,
            path: "/metrics",
            query: "family=redis",
            host: Some("localhost:9150"),
            authorization: None,
            cross_site: false,
            stays: true,
            bytes: head.len(),
        };
        assert_eq!(get(head), Parsed::Whole(whole.clone()));
        let two = format!("{head}HEAD / HTTP/1.1\r\n");
        assert_eq!(get(&two), Parsed::Whole(whole));
    }

    #[test]
    fn only_names_of_this_machine_are_answered_to_unless_others_are_given() {
        let (ours, given) =
            (Hosts::default(), Hosts { addresses: true, names: vec!["cache.example".into()] });
        let is_ours = |host: &str| ours.admit(host);
        for host in
            ["localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:9150", " localhost "]
        {
            assert!(is_ours(host) && given.admit(host), "{host}");
        }
        for host in ["10.0.0.1", "192.168.1.5:9150", "[fe80::1]", "[2001:db8::1]:80", "Cache.Example:9150"] {
            assert!(!is_ours(host) && given.admit(host), "{host}");
        }
        for host in [
            "",
            ":9150",
            "example.com",
            "localhost.example.com",
            "localhost:",
            "localhost:x",
            "127.0.0.1.nip.io",
            "0.0.0.0",
            "[::]",
            "[::1",
            "[::1]x",
            "::1",
            "localhost:99999",
            "localhost,evil",
            "cache.example.evil",
            "evil.cache.example",
        ] {
            assert!(!is_ours(host) && !given.admit(host), "{host}");
        }
        for twice in ["Host: localhost", "Authorization: Basic eDp5"] {
            let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{twice}\r\n{twice}\r\n\r\n");
            assert_eq!(refused(&head), Some(Status::BadRequest), "{twice}");
        }
        assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), Some(Status::BadRequest));
        assert_eq!(
            refused("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"),
            Some(Status::BadRequest)
        );
        assert_eq!(
            refused("GET http://example.com/ HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            Some(Status::BadRequest)
        );
        assert_eq!(refused("GET / HTTP/1.0\r\n\r\n"), None, "it need not say a host");
    }

    #[test]
    fn what_another_sites_page_asks_for_is_told_from_a_link_that_is_followed() {
        let cross_site = |lines: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
            match get(&head) {
                Parsed::Whole(request) => request.cross_site,
                Parsed::Partial | Parsed::Refused(_) => panic!("{head:?}"),
            }
        };
        let fetch = |site: &str, mode: &str, dest: &str| {
            cross_site(&format!(
                "Sec-Fetch-Site: {site}\r\nsec-fetch-mode: {mode}\r\nSec-Fetch-Dest: {dest}\r\n"
            ))
        };
        assert!(!cross_site(""), "a scraper says nothing of it");
        for (site, is_foreign) in
            [("same-origin", false), ("none", false), ("same-site", true), ("cross-site", true)]
        {
            assert_eq!(fetch(site, "cors", "empty"), is_foreign, "{site}");
            assert_eq!(fetch(site, "no-cors", "image"), is_foreign, "{site}");
            assert_eq!(fetch(site, "navigate", "iframe"), is_foreign, "{site}");
            assert!(!fetch(site, "navigate", "document"), "{site}");
        }
        assert!(cross_site("Sec-Fetch-Site: cross-site\r\n"));
        assert!(cross_site("Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n"));
        // To plain addresses of other machines browsers say the origin alone.
        for (origin, is_foreign) in [
            ("http://localhost", false),
            ("https://LOCALHOST", false),
            ("http://localhost:80", true),
            ("http://evil.example", true),
            ("http://localhost.evil.example", true),
            ("ftp://localhost", true),
            ("localhost", true),
            ("null", true),
            ("", true),
        ] {
            assert_eq!(cross_site(&format!("Origin: {origin}\r\n")), is_foreign, "{origin}");
        }
        assert!(cross_site("Origin: http://localhost\r\nOrigin: http://localhost\r\n"));
        let socket = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
        assert!(cross_site(&format!("{socket}Origin: http://evil.example\r\n")));
    }

    #[test]
    fn nothing_but_get_and_head_without_a_body_is_answered() {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "SET"] {
            let head = format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(refused(&head), Some(Status::MethodNotAllowed), "{method}");
        }
        for line in ["Content-Length: 1", "content-length: +0", "Transfer-Encoding: chunked"] {
            let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n");
            assert_eq!(refused(&head), Some(Status::ContentTooLarge), "{line}");
        }
        assert_eq!(refused("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"), None);
        assert_eq!(refused("GET / HTTP/2.0\r\n\r\n"), Some(Status::VersionNotSupported));
        for bytes in [
            "\u{1}\r\n",
            "GET /\u{0} HTTP/1.1\r\n\r\n",
            "get k\r\n",
            "*1\r\n$4\r\nPING\r\n",
            "GET / HTTP/1.1\r\n a: b\r\n\r\n",
        ] {
            assert_eq!(refused(bytes), Some(Status::BadRequest), "{bytes:?}");
        }
    }

    #[test]
    fn a_head_has_so_many_bytes_and_lines_at_most() {
        let head = |fill: usize| format!("GET / HTTP/1.1\r\nHost: localhost\r\nx: {}", "x".repeat(fill));
        let room = HEAD_BYTES_MAX - head(0).len();
        assert_eq!(get(&head(room - 1)), Parsed::Partial);
        assert_eq!(refused(&head(room)), Some(Status::HeadTooLong));
        let lines = |count: usize| {
            format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(count - 1))
        };
        assert_eq!(refused(&lines(HEAD_LINES_MAX)), None);
        assert_eq!(refused(&lines(HEAD_LINES_MAX + 1)), Some(Status::HeadTooLong));
    }

    #[test]
    fn connections_stay_as_their_version_says_unless_they_say_otherwise() {
        let stays = |head: &str| match get(head) {
            Parsed::Whole(request) => request.stays,
            Parsed::Partial | Parsed::Refused(_) => panic!("{head:?}"),
        };
        assert!(stays("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(!stays("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: TE, Close\r\n\r\n"));
        assert!(!stays("GET / HTTP/1.0\r\n\r\n"));
        assert!(stays("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn queries_are_decoded() {
        let of = |query| {
            pairs(query).map(|pairs| {
                pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
            })
        };
        assert_eq!(
            of("family=a%2Cb&&classes=none&x"),
            Ok(vec!["family=a,b".into(), "classes=none".into(), "x=".into()])
        );
        assert_eq!(of("a+b=%e2%82%ac"), Ok(vec!["a b=€".into()]));
        for bad in ["a=%", "a=%1", "a=%zz", "a=%+1", "a=%ff"] {
            assert_eq!(of(bad), Err(Status::BadRequest), "{bad}");
        }
    }

    #[test]
    fn answers_say_how_long_they_are_and_that_nobody_else_may_read_them() {
        let answer = Answer::ok(JSON, "{}");
        let text = String::from_utf8(answer.bytes(false, true)).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert_eq!(body, "{}");
        for line in [
            "HTTP/1.1 200 OK",
            "Content-Length: 2",
            "Connection: keep-alive",
            "X-Content-Type-Options: nosniff",
        ] {
            assert!(head.lines().any(|found| found == line), "{line}: {head}");
        }
        assert!(!head.to_ascii_lowercase().contains("access-control"), "{head}");
        assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; base-uri"), "{head}");
        let page = String::from_utf8(Answer::ok(HTML, "").bytes(true, true)).expect("text");
        assert!(page.contains(&format!("\r\nContent-Security-Policy: {PAGE_POLICY}\r\n")), "{page}");
        let head_only = String::from_utf8(answer.bytes(true, true)).expect("text");
        assert_eq!(head_only, format!("{head}\r\n\r\n"));
        let asks = String::from_utf8(Answer::refusal(Status::Unauthorized).bytes(true, true)).expect("text");
        assert!(asks.contains("\r\nWWW-Authenticate: Basic realm=\"larder\""), "{asks}");
        let refusal =
            String::from_utf8(Answer::refusal(Status::MethodNotAllowed).bytes(false, false)).expect("text");
        assert!(
            refusal.contains("\r\nAllow: GET, HEAD\r\n") && refusal.contains("\r\nConnection: close\r\n")
        );
    }
}
