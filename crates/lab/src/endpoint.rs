//! Where a server listens, the login to use, and connections to it.
//!
//! ```text
//! memcached://10.0.0.5:11211            redis://[::1]:6379               TCP, IPv4 and IPv6
//! memcached+unix:///run/m.sock          redis+unix:///run/r.sock         Unix sockets
//! memcached://user:password@host:port   redis://:password@host:port      %40 is @, as in any URL
//! memcacheds://host:port                rediss://host:port               by TLS
//! ```
//!
//! The password is sent first on every connection: to memcached as `-Y` wants it, in the value of a `set`; to Redis by `AUTH`. It
//! is never shown: [`hidden`] removes it from an argument.
//!
//! With TLS, the server has to show a certificate for the host of the URL, signed by one of the system's authorities. A query
//! changes that, with redis-py's names: `?ssl_ca_certs=FILE` gives other authorities, `?ssl_cert_reqs=none` accepts any
//! certificate, and `ssl_certfile=FILE&ssl_keyfile=FILE` is the client's own certificate, for servers that ask for one.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use larder_eventloop::poll::{Events, Interest, Poller};
use larder_eventloop::socket::{Address, Socket};
use larder_protocol::client::{Event, LINE_BYTES_MAX, Malformed, Protocol, command};
use larder_tls::{ClientOptions, Connector, Trust};

use crate::control::Family;
use crate::wire::Wire;

/// The form of a URL.
const FORM: &str = "expected memcached://host:port or redis://host:port, memcached+unix:///path or redis+unix:///path, \
                    with user:password@ in front of the host if there is a password; memcacheds:// and rediss:// by TLS, with \
                    ?ssl_ca_certs=FILE behind the port if the certificate is not of an authority of the system's";

/// The options behind the `?` of a URL of TLS.
const QUERY: &str = "expected ssl_ca_certs=FILE, ssl_cert_reqs=none, ssl_certfile=FILE and ssl_keyfile=FILE behind ?, with & between";

/// The error of a TLS URL whose password has a ? in it.
const QUESTION: &str = "in a URL of TLS, write %3F for a ? of the password: options of TLS follow a ?";

/// The form of a TCP address.
const PLACE: &str = "expected HOST:PORT, such as 127.0.0.1:11211 or [::1]:6379";

/// Why a URL yields no endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// What is wrong with the URL, without its user and password.
    Form(String),
    /// The host has no address, or its name cannot be resolved now.
    Lookup(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Form(why) | Unusable::Lookup(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Unusable {}

impl From<String> for Unusable {
    fn from(why: String) -> Unusable {
        Unusable::Form(why)
    }
}

impl From<&str> for Unusable {
    fn from(why: &str) -> Unusable {
        Unusable::Form(why.to_owned())
    }
}

impl From<Unusable> for crate::error::Error {
    fn from(why: Unusable) -> crate::error::Error {
        match why {
            Unusable::Form(why) => crate::error::Error::Usage(why),
            Unusable::Lookup(why) => crate::error::Error::Peer(why),
        }
    }
}

/// A server's address, and the login for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: Address,
    /// User and password; `None` if the server asks for none.
    pub login: Option<Login>,
    /// The TLS options; `None` for a plain connection.
    pub tls: Option<Connector>,
}

impl From<&Address> for Endpoint {
    fn from(address: &Address) -> Endpoint {
        Endpoint { address: address.clone(), login: None, tls: None }
    }
}

impl From<&Endpoint> for Endpoint {
    fn from(endpoint: &Endpoint) -> Endpoint {
        endpoint.clone()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// A user and a password, which nothing prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    family: Family,
    /// Empty: Redis's default user.
    user: String,
    password: String,
}

impl Login {
    /// User and password, for clients that log in by themselves.
    pub fn words(&self) -> (&str, &str) {
        (&self.user, &self.password)
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

impl Endpoint {
    /// Reads a URL, and the protocol that it names.
    ///
    /// # Errors
    /// What is wrong with the URL, without its user and password; or that its host cannot be resolved.
    pub fn parse(url: &str) -> std::result::Result<(Family, Endpoint), Unusable> {
        let (scheme, rest) = url.split_once("://").ok_or(FORM)?;
        let (family, kind) = match scheme {
            "memcached" => (Family::Memcached, Kind::Tcp),
            "redis" => (Family::Redis, Kind::Tcp),
            "memcached+unix" => (Family::Memcached, Kind::Unix),
            "redis+unix" => (Family::Redis, Kind::Unix),
            "memcacheds" | "memcached+tls" => (Family::Memcached, Kind::Tls),
            "rediss" | "valkeys" | "redis+tls" => (Family::Redis, Kind::Tls),
            _ => return Err(FORM.into()),
        };
        // In other URLs a question mark is part of a path or a password; in those of TLS %3F stands for that of a password.
        let (rest, query) = match kind {
            Kind::Tls => rest.split_once('?').unwrap_or((rest, "")),
            Kind::Tcp | Kind::Unix => (rest, ""),
        };
        let (login, place) = match kind {
            Kind::Unix => {
                let (before, path) = rest.split_at(rest.find('/').ok_or(FORM)?);
                let login =
                    if before.is_empty() { None } else { Some(before.strip_suffix('@').ok_or(FORM)?) };
                (login, path)
            }
            Kind::Tcp | Kind::Tls => match rest.rsplit_once('@') {
                Some((login, place)) => (Some(login), place),
                None => (None, rest),
            },
        };
        let login = login.map(|text| Login::parse(family, text)).transpose()?;
        let (address, tls) = match kind {
            Kind::Unix => (Address::Unix(PathBuf::from(place)), None),
            Kind::Tcp => (Address::Tcp(address(place)?), None),
            Kind::Tls => {
                let cut = login.is_none() && query.contains('@');
                let told = |why: Unusable| if cut { QUESTION.into() } else { why };
                let address = address(place).map_err(told)?;
                let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
                let strange = |why: String| if why == QUERY { told(why.into()) } else { why.into() };
                let trust = trust(query).map_err(strange)?;
                (Address::Tcp(address), Some(Connector::load(host, trust)?))
            }
        };
        Ok((family, Endpoint { address, login, tls }))
    }

    /// Connects, waiting for `patience` at most, and sends the password, if there is one.
    ///
    /// # Errors
    /// The system's error, `TimedOut`, `InvalidData` if the TLS handshake fails, or `PermissionDenied` if the password is
    /// refused.
    pub fn connect(&self, patience: Duration) -> Result<Wire> {
        Ok(self.converse(patience)?.wire)
    }

    /// Begins to connect without waiting: the system reports when bytes can be sent. Only for endpoints without a login.
    ///
    /// # Errors
    /// The system's error.
    pub fn begin(&self) -> Result<Wire> {
        debug_assert!(self.login.is_none(), "a login is waited for");
        self.over(Socket::connect(&self.address)?)
    }

    fn over(&self, socket: Socket) -> Result<Wire> {
        if matches!(self.address, Address::Tcp(_)) {
            socket.set_nodelay(true)?;
        }
        Ok(match &self.tls {
            None => Wire::Plain(socket),
            Some(connector) => Wire::Tls(Box::new(connector.connect(socket)?)),
        })
    }

    /// As [`Endpoint::connect`], but calls of the connection wait, for `patience` at most each.
    ///
    /// # Errors
    /// As [`Endpoint::connect`].
    pub fn converse(&self, patience: Duration) -> Result<Conversation> {
        let wire = self.over(Socket::connect_timeout(&self.address, patience)?)?;
        let poller = Poller::new()?;
        poller.add(&wire, 0, Interest::None)?;
        let mut conversation = Conversation { wire, poller, events: Events::with_capacity(1), patience };
        conversation.agree()?;
        if let Some(login) = &self.login {
            login.say(&mut conversation)?;
        }
        Ok(conversation)
    }
}

impl Login {
    fn parse(family: Family, text: &str) -> std::result::Result<Login, String> {
        let form = match family {
            Family::Memcached => "a login is user:password",
            Family::Redis => "a login is user:password, or :password",
        };
        let (user, password) = text.split_once(':').ok_or(form)?;
        let (user, password) = (decoded(user)?, decoded(password)?);
        // memcached separates them by a space, and knows no user without a name.
        if family == Family::Memcached && (user.is_empty() || user.contains(' ')) {
            return Err(form.to_owned());
        }
        Ok(Login { family, user, password })
    }

    fn say(&self, to: &mut Conversation) -> Result<()> {
        let Login { family, user, password } = self;
        let mut question = Vec::new();
        let protocol = family.protocol(Protocol::Classic);
        match family {
            Family::Memcached => {
                protocol.set(&mut question, b"login", format!("{user} {password}").as_bytes(), 0);
            }
            Family::Redis if user.is_empty() => command(&mut question, &[b"AUTH", password.as_bytes()]),
            Family::Redis => command(&mut question, &[b"AUTH", user.as_bytes(), password.as_bytes()]),
        }
        to.send(&question)?;
        let (mut reply, mut buffer) = (Vec::new(), [0; LINE_BYTES_MAX]);
        let answer = loop {
            match to.receive(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                received => reply.extend_from_slice(&buffer[..received]),
            }
            // The grammar accepts no longer line, so that this ends.
            match protocol.event(&reply) {
                Ok(None) => {}
                Ok(Some((event, used))) if used == reply.len() => break Ok(event),
                Ok(Some(_)) | Err(Malformed) => break Err(Malformed),
            }
        };
        let why = match answer {
            Ok(Event::Stored) => return Ok(()),
            Ok(Event::Refused(line)) => self.without(&String::from_utf8_lossy(line)),
            Ok(_) | Err(Malformed) => "it does not answer as it should".to_owned(),
        };
        Err(Error::new(ErrorKind::PermissionDenied, format!("the login is not taken: {why}")))
    }

    /// The text without the password, in case the text repeats it.
    fn without(&self, text: &str) -> String {
        if self.password.is_empty() { text.to_owned() } else { text.replace(&self.password, HIDDEN) }
    }
}

/// The transport of a scheme.
enum Kind {
    Tcp,
    Tls,
    Unix,
}

/// The TLS options in the query of a URL.
fn trust(query: &str) -> std::result::Result<ClientOptions, String> {
    let mut options = ClientOptions::default();
    let (mut chain, mut key) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        let text = decoded(text)?;
        match (name, text.as_str()) {
            ("ssl_ca_certs", _) => options.trust = Trust::File(text.into()),
            ("ssl_cert_reqs", "none") => options.trust = Trust::Anyone,
            ("ssl_cert_reqs", "required") => {}
            ("ssl_certfile", _) => chain = Some(text.into()),
            ("ssl_keyfile", _) => key = Some(text.into()),
            _ => return Err(QUERY.to_owned()),
        }
    }
    options.pair = match (chain, key) {
        (None, None) => None,
        (Some(chain), Some(key)) => Some((chain, key)),
        _ => return Err("ssl_certfile and ssl_keyfile go together".to_owned()),
    };
    Ok(options)
}

/// The first address of a host, with its port.
fn address(place: &str) -> std::result::Result<SocketAddr, Unusable> {
    let is_one = |(host, port): (&str, &str)| {
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && (is_bracketed || !host.contains(':')) && port.parse::<u16>().is_ok()
    };
    if !place.rsplit_once(':').is_some_and(is_one) {
        return Err(PLACE.into());
    }
    let unknown = |why: String| Unusable::Lookup(format!("{place}: {why}"));
    let mut found = place.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    found.next().ok_or_else(|| unknown("the host has no address".to_owned()))
}

/// The bytes that `%40` and the like stand for.
fn decoded(text: &str) -> std::result::Result<String, String> {
    let bad = || "a % stands before two hexadecimal digits: % itself is %25".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, more)) = rest.split_first() {
        rest = more;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, more) = rest.split_at_checked(2).ok_or_else(bad)?;
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(bad);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = more;
    }
    String::from_utf8(bytes).map_err(|_| "what % stands for is UTF-8".to_owned())
}

/// The text that stands for a password.
pub const HIDDEN: &str = "***";

/// Where an argument has a login: between `://` and the last `@`.
fn login_in(argument: &str) -> Option<Range<usize>> {
    let begins = argument.find("://")? + "://".len();
    let ends = argument.rfind('@').filter(|&at| at > begins)?;
    Some(begins..ends)
}

/// An argument of a command line without its login.
pub fn hidden(argument: &str) -> String {
    match login_in(argument) {
        Some(login) => [&argument[..login.start], HIDDEN, &argument[login.end..]].concat(),
        None => argument.to_owned(),
    }
}

/// A text without the logins of `arguments`, in case it repeats one of their URLs.
pub fn without_logins(text: &str, arguments: impl IntoIterator<Item = String>) -> String {
    arguments.into_iter().fold(text.to_owned(), |text, argument| match login_in(&argument) {
        Some(login) => {
            let said = format!("://{}@", &argument[login]);
            text.replace(&said, &format!("://{HIDDEN}@"))
        }
        None => text,
    })
}

/// A connection whose sends and receives wait.
#[derive(Debug)]
pub struct Conversation {
    wire: Wire,
    poller: Poller,
    events: Events,
    patience: Duration,
}

impl Conversation {
    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// The system's error, or `TimedOut` if the peer took nothing for too long.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.wire.send(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(Interest::Write)?,
                Err(error) => return Err(error),
            }
        }
        while !self.wire.flush()? {
            self.wait(Interest::Write)?;
        }
        Ok(())
    }

    /// Whether its TLS handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        matches!(&self.wire, Wire::Tls(tls) if tls.is_resumed())
    }

    /// Waits for the end of a handshake.
    fn agree(&mut self) -> Result<()> {
        while let Wire::Tls(tls) = &mut self.wire
            && tls.is_handshaking()
        {
            let wants = if tls.agree()? { Interest::Read } else { Interest::Write };
            if !tls.is_handshaking() {
                break;
            }
            self.wait(wants)?;
        }
        Ok(())
    }

    /// Receives what has come, or waits for it; 0 is the end of the stream.
    ///
    /// # Errors
    /// The system's error, or `TimedOut` if nothing came for too long.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.wire.recv(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(Interest::Read)?,
                received => return received,
            }
        }
    }

    fn wait(&mut self, interest: Interest) -> Result<()> {
        self.poller.modify(&self.wire, 0, interest)?;
        let began = Instant::now();
        loop {
            let left = self.patience.checked_sub(began.elapsed()).ok_or(ErrorKind::TimedOut)?;
            self.poller.wait(&mut self.events, Some(left))?;
            // A signal ends a wait too.
            if !self.events.is_empty() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    fn parse(url: &str) -> (Family, Endpoint) {
        Endpoint::parse(url).unwrap_or_else(|why| panic!("{url}: {why}"))
    }

    fn login(family: Family, user: &str, password: &str) -> Option<Login> {
        Some(Login { family, user: user.to_owned(), password: password.to_owned() })
    }

    #[test]
    fn urls_name_a_protocol_an_address_and_perhaps_a_login() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        let (mc, redis) = (Family::Memcached, Family::Redis);
        for (url, family, address, who) in [
            ("memcached://127.0.0.1:11211", mc, tcp("127.0.0.1:11211"), None),
            ("redis://[::1]:6379", redis, tcp("[::1]:6379"), None),
            ("redis://:a%40b%25:@127.0.0.1:1", redis, tcp("127.0.0.1:1"), login(redis, "", "a@b%:")),
            ("redis://me:x@y@127.0.0.1:1", redis, tcp("127.0.0.1:1"), login(redis, "me", "x@y")),
            ("memcached://me:a b@[::1]:1", mc, tcp("[::1]:1"), login(mc, "me", "a b")),
            ("memcached+unix:///run/m.sock", mc, Address::Unix("/run/m.sock".into()), None),
            ("redis+unix://me:x@/r@n/s", redis, Address::Unix("/r@n/s".into()), login(redis, "me", "x")),
        ] {
            assert_eq!(parse(url), (family, Endpoint { address, login: who, tls: None }), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_its_login() {
        for bad in [
            "127.0.0.1:1",
            "http://secret:secret@127.0.0.1:1",
            "redis://secret@127.0.0.1:1",
            "redis://:secret@127.0.0.1",
            "redis://:secret%4@127.0.0.1:1",
            "redis://:secret%zz@127.0.0.1:1",
            "redis://:secret%ff@127.0.0.1:1",
            "memcached://:secret@127.0.0.1:1",
            "memcached://secret%20secret:secret@127.0.0.1:1",
            "memcached+unix://me:secret/run/x",
            "memcached+unix://run",
            "rediss://:secret@127.0.0.1",
            "rediss://:secret@127.0.0.1:1?secret",
        ] {
            let why = Endpoint::parse(bad).unwrap_err();
            assert!(matches!(&why, Unusable::Form(text) if !text.contains("secret")), "{bad}: {why}");
        }
    }

    #[test]
    fn a_place_without_host_or_port_is_told_what_is_expected() {
        for bad in ["nowhere", "nowhere:", ":1", "nowhere:port", "nowhere:65536", "::1", "127.0.0.1:1/0", ""]
        {
            for scheme in ["memcached", "redis"] {
                assert_eq!(Endpoint::parse(&format!("{scheme}://{bad}")), Err(PLACE.into()), "{bad}");
            }
        }
    }

    #[test]
    fn a_host_that_cannot_be_looked_up_is_a_server_that_cannot_be_reached() {
        // No name has a part of this length: no resolver is asked.
        let host = "a".repeat(64) + ".invalid";
        for url in [format!("memcached://{host}:1"), format!("rediss://me:secret@{host}:1")] {
            let why = Endpoint::parse(&url).unwrap_err();
            let Unusable::Lookup(told) = &why else { panic!("{url}: {why:?}") };
            assert!(told.starts_with(&format!("{host}:1: ")) && !told.contains("secret"), "{told}");
            let code = |why: Unusable| crate::error::Error::from(why).exit_code();
            assert_eq!((code(why), code(Unusable::Form(String::new()))), (69, 64));
        }
    }

    #[test]
    fn a_url_of_tls_says_who_is_trusted() {
        let tls = |url: &str| parse(url).1.tls.expect("TLS");
        let anyone = || ClientOptions { trust: Trust::Anyone, pair: None };
        for (url, name, options) in [
            ("rediss://127.0.0.1:1", "127.0.0.1", ClientOptions::default()),
            ("memcacheds://me:x@127.0.0.1:1?ssl_cert_reqs=required", "127.0.0.1", ClientOptions::default()),
            ("valkeys://[::1]:1?ssl_cert_reqs=none", "::1", anyone()),
            ("redis+tls://localhost:1?ssl_cert_reqs=none", "localhost", anyone()),
            ("rediss://me:a%3Fb@localhost:1?ssl_cert_reqs=none", "localhost", anyone()),
        ] {
            assert_eq!(tls(url), Connector::load(name, options).unwrap(), "{url}");
        }
        for (query, why) in [
            ("ssl_ca_certs=/no%20where", "Error loading the CA certificate: /no where : "),
            ("ssl_certfile=/nowhere", "ssl_certfile and ssl_keyfile go together"),
            ("ssl_keyfile=/nowhere&ssl_cert_reqs=none", "ssl_certfile and ssl_keyfile go together"),
            ("ssl_cert_reqs=optional", QUERY),
            ("cacert=x", QUERY),
            ("ssl_ca_certs=/no@where", "Error loading the CA certificate: /no@where : "),
            ("%", "expected ssl_ca_certs"),
        ] {
            let told = Endpoint::parse(&format!("rediss://127.0.0.1:1?{query}")).unwrap_err();
            assert!(told.to_string().starts_with(why), "{query}: {told}");
        }
        assert_eq!(Endpoint::parse("redis://127.0.0.1:1?ssl_cert_reqs=none"), Err(PLACE.into()));
        // The text in front of the question mark may look like an address.
        for url in ["rediss://me:a?b@127.0.0.1:1", "rediss://localhost:12?b@127.0.0.1:1"] {
            assert_eq!(Endpoint::parse(url), Err(QUESTION.into()), "{url}");
        }
    }

    #[test]
    fn logins_are_hidden_in_arguments_and_in_texts_that_have_them() {
        let argument = "--target=a=redis://me:x@y@host:1";
        assert_eq!(hidden(argument), "--target=a=redis://***@host:1");
        assert_eq!(hidden("a=redis://host:1"), "a=redis://host:1");
        let text = "error: 'a=redis://me:x@y@host:1' of me:x@y";
        let said = without_logins(text, ["lab".to_owned(), argument.to_owned()]);
        assert_eq!(said, "error: 'a=redis://***@host:1' of me:x@y");
        assert_eq!(format!("{:?}", login(Family::Redis, "me", "secret")), "Some(Login)");
    }

    /// The bytes that are sent to a server that answers `reply`, and the result.
    fn said(url: &str, reply: &'static str) -> (String, Result<Wire>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = url.replace("HERE", &listener.local_addr().unwrap().to_string());
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut asked = [0; 256];
            let received = client.read(&mut asked).unwrap();
            // In pieces, as they may come.
            for byte in reply.bytes() {
                client.write_all(&[byte]).unwrap();
            }
            String::from_utf8(asked[..received].to_vec()).unwrap()
        });
        let connected = parse(&url).1.connect(Duration::from_secs(600));
        (server.join().unwrap(), connected)
    }

    #[test]
    fn a_login_is_said_before_anything_else() {
        let (asked, connected) = said("memcached://me:a b@HERE", "STORED\r\n");
        assert_eq!(asked, "set login 0 0 6\r\nme a b\r\n");
        assert!(connected.is_ok());
        let (asked, connected) = said("redis://:x@HERE", "+OK\r\n");
        assert_eq!(asked, "*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n");
        assert!(connected.is_ok());
        let (asked, _) = said("redis://me:x@HERE", "+OK\r\n");
        assert_eq!(asked, "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$1\r\nx\r\n");
    }

    #[test]
    fn a_login_that_is_not_taken_is_told_without_it() {
        for (url, reply, why) in [
            ("redis://:secret@HERE", "-WRONGPASS secret is wrong\r\n", "-WRONGPASS *** is wrong"),
            (
                "memcached://me:secret@HERE",
                "CLIENT_ERROR authentication failure\r\n",
                "authentication failure",
            ),
            ("memcached://me:secret@HERE", "HTTP/1.1 400 secret\r\n", "it does not answer as it should"),
        ] {
            let error = said(url, reply).1.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            assert!(error.to_string().contains(why) && !error.to_string().contains("secret"), "{error}");
        }
    }
}
