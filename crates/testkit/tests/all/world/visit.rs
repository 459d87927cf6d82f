//! Requests that scrapers send by HTTP, and the answers that they must get.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larder_server::http::{JSON, METRICS, Status};

use crate::world::plan::Memory;
use crate::world::random::Random;
use crate::world::scene::Scene;
use crate::world::scrapes::Known;

/// Families of a page of metrics; larder's own number the page.
const FAMILIES: [&str; 4] =
    ["", "?family=larder,redis", "?family=larder%2Cmemcached&classes=larder", "?family=larder&classes=none"];

/// Paths that show figures. They need a password if clients need one.
const FIGURES: [&str; 14] = [
    "now",
    "findings",
    "classes",
    "commands",
    "connections",
    "connections?from=1&max=2",
    "clients?max=3",
    "memory",
    "map",
    "slow",
    "latency",
    "ages",
    "history?step=1",
    "settings",
];

/// Longer than a request's head may be.
const LONG_HEAD: usize = 9 << 10;

/// What the body of an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A page of metrics, by a request that was asked when so much was known.
    Page(Known),
    /// A JSON object with figures.
    Figures,
    /// Anything.
    Any,
}

/// A request.
#[derive(Debug)]
pub struct Visit {
    pub head: Vec<u8>,
    pub status: Status,
    pub body: Body,
    /// The request is HEAD: the answer has no body.
    pub head_only: bool,
    /// The connection ends with the answer.
    pub ends: bool,
    /// The server counts the request.
    pub counts: bool,
    /// The server may refuse it for lack of memory.
    pub may_lack_memory: bool,
}

/// The password that a scraper sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Login {
    None,
    Right,
    Wrong,
}

impl Visit {
    /// A request for all metrics.
    pub fn of_metrics(known: Known) -> Visit {
        let head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
        Visit { body: Body::Page(known), ..Visit::new(head, Status::Ok) }
    }

    fn new(head: Vec<u8>, status: Status) -> Visit {
        Visit {
            head,
            status,
            body: Body::Any,
            head_only: false,
            ends: false,
            counts: status == Status::Ok,
            may_lack_memory: false,
        }
    }

    /// The beginning of a request, which is never completed.
    pub fn half() -> Visit {
        Visit { ends: true, ..Visit::new(b"GET /metrics HTTP/1.1\r\nHo".to_vec(), Status::RequestTimeout) }
    }

    /// True if the request is never completed.
    pub fn is_half(&self) -> bool {
        self.status == Status::RequestTimeout
    }

    /// Any request, asked when so much is known.
    pub fn draw(scene: &Scene, random: &mut Random, known: Known) -> Visit {
        let family = random.of(&FAMILIES);
        match random.below(20) {
            0..8 => {
                let head = format!("GET /metrics{family} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n");
                Visit { body: Body::Page(known), ..Visit::new(head.into(), Status::Ok) }
            }
            8 => {
                let head = "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
                Visit { head_only: true, ..Visit::new(head.into(), Status::Ok) }
            }
            9 => {
                let head = "GET /healthz HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n";
                Visit { ends: true, ..Visit::new(head.into(), Status::Ok) }
            }
            10 => {
                let head = "GET /metrics?family=nobody HTTP/1.1\r\nHost: localhost\r\n\r\n";
                Visit { counts: true, ..Visit::new(head.into(), Status::BadRequest) }
            }
            11 => {
                let (head, status) = random.of(&[
                    ("GET /metrics HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n", Status::Misdirected),
                    ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", Status::MethodNotAllowed),
                    ("GET /metrics HTTP/1.1\r\n\r\n", Status::BadRequest),
                    ("GET /metrics HTTP/2.0\r\nHost: localhost\r\n\r\n", Status::VersionNotSupported),
                ]);
                Visit { ends: true, ..Visit::new(head.into(), status) }
            }
            12 => {
                let head = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(LONG_HEAD));
                Visit { ends: true, ..Visit::new(head.into(), Status::HeadTooLong) }
            }
            13 => Visit::with_login(scene, random, "/", Body::Any),
            14 => Visit::with_login(scene, random, "/nowhere", Body::Any),
            _ => {
                let path = format!("/api/v1/{}", random.of(&FIGURES));
                Visit::with_login(scene, random, &path, Body::Figures)
            }
        }
    }

    /// A request for a path that needs a login if there are users.
    fn with_login(scene: &Scene, random: &mut Random, path: &str, body: Body) -> Visit {
        let login = match random.below(8) {
            _ if !scene.users.any() => Login::None,
            0 => Login::Wrong,
            1 | 2 => Login::None,
            _ => Login::Right,
        };
        // The last client is an administrator, whose password stays.
        let line = match login {
            Login::None => String::new(),
            Login::Right | Login::Wrong => {
                let user = scene.users.last();
                let is_right = login == Login::Right;
                let password = if is_right { user.password() } else { user.wrong_password() };
                let secret = STANDARD.encode(format!("{}:{password}", user.name));
                format!("Authorization: Basic {secret}\r\n")
            }
        };
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{line}\r\n").into_bytes();
        if scene.users.any() && login != Login::Right {
            return Visit::new(head, Status::Unauthorized);
        }
        if path == "/nowhere" {
            return Visit { counts: true, ..Visit::new(head, Status::NotFound) };
        }
        let may_lack_memory = scene.plan.memory != Memory::Ample;
        Visit { body, may_lack_memory, ..Visit::new(head, Status::Ok) }
    }

    /// Checks an answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, answer: &Answer<'_>) -> Result<(), String> {
        let is_unavailable = self.may_lack_memory && answer.status == Status::Unavailable.line();
        if answer.status != self.status.line() && !is_unavailable {
            return Err(format!("{} in place of {}", answer.status, self.status.line()));
        }
        if answer.closes != self.ends {
            return Err(format!("the answer says that the connection ends: {}", answer.closes));
        }
        let content_type = match self.body {
            _ if is_unavailable => return Ok(()),
            Body::Page(_) => METRICS,
            Body::Figures => JSON,
            Body::Any => return Ok(()),
        };
        if answer.content_type != content_type {
            return Err(format!("{} in place of {content_type}", answer.content_type));
        }
        if self.body == Body::Figures && !(answer.body.starts_with('{') && answer.body.ends_with("}\n")) {
            return Err(format!("no object: {}", answer.body));
        }
        Ok(())
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer<'a> {
    /// Status code and reason.
    pub status: &'a str,
    pub content_type: &'a str,
    /// The answer says that the connection ends.
    pub closes: bool,
    /// The body; empty in the answer to HEAD.
    pub body: &'a str,
    /// All bytes of the answer.
    pub bytes: usize,
}

impl Answer<'_> {
    /// The answer at the front of the input, once all of it is there.
    ///
    /// # Errors
    /// These bytes are none.
    pub fn parse(input: &[u8], head_only: bool) -> Result<Option<Answer<'_>>, String> {
        let Some(head_bytes) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = std::str::from_utf8(&input[..head_bytes]).map_err(|error| error.to_string())?;
        let wrong = || format!("this is no head of an answer: {head}");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).ok_or_else(wrong)?;
        let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).collect();
        let field = |name: &str| {
            let mut found = fields.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value);
            found.next().filter(|_| found.next().is_none()).ok_or_else(wrong)
        };
        let length: usize = field("Content-Length")?.parse().map_err(|_| wrong())?;
        let closes = match field("Connection")? {
            "close" => true,
            "keep-alive" => false,
            _ => return Err(wrong()),
        };
        let from = head_bytes + 4;
        let bytes = from + if head_only { 0 } else { length };
        let Some(body) = input.get(from..bytes) else { return Ok(None) };
        let body = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        Ok(Some(Answer { status, content_type: field("Content-Type")?, closes, body, bytes }))
    }
}

#[test]
fn an_answer_is_whole_and_is_what_its_request_must_have() {
    let fields = "Content-Type: application/json\r\nContent-Length: 3\r\nConnection: keep-alive\r\n";
    let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    let bytes = format!("{head}{{}}\nbehind");
    let end = head.len() + 3;
    for cut in 0..end {
        let part = Answer::parse(&bytes.as_bytes()[..cut], false);
        assert!(part.is_ok_and(|answer| answer.is_none()), "{cut}");
    }
    let right = Visit { body: Body::Figures, ..Visit::new(Vec::new(), Status::Ok) };
    let answer = Answer::parse(bytes.as_bytes(), false).expect("an answer").expect("all of it");
    assert_eq!((answer.bytes, answer.body, right.check(&answer)), (end, "{}\n", Ok(())));
    let short = Answer::parse(bytes.as_bytes(), true).expect("an answer").expect("its head");
    assert_eq!((short.bytes, short.body), (head.len(), ""));
    for wrong in [
        Visit::new(Vec::new(), Status::NotFound),
        Visit { ends: true, ..Visit::new(Vec::new(), Status::Ok) },
        Visit::of_metrics(Known::default()),
    ] {
        assert!(wrong.check(&answer).is_err(), "{wrong:?}");
    }
    for (old, new) in [("HTTP/1.1 ", "HTTP/1.0 "), ("Content-Length", "Length"), ("keep-alive", "perhaps")] {
        assert!(Answer::parse(bytes.replace(old, new).as_bytes(), false).is_err(), "{new}");
    }
}
