//! Where the server listens: reading `-l`, binding, and telling which ports were taken.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use larder_commands::Speaks;
use larder_eventloop::socket::{Address, Listener};
use larder_tls::{ClientAuth, Options};

use crate::config::Config;
use crate::process;

/// What a prefix in `-l` says of TLS at that address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressTls {
    /// `notls:`: none.
    Plain,
    /// `tls:`: as `-Z` and `-o ssl_verify_mode` say.
    Usual,
    /// `btls:`: clients show no certificate.
    Basic,
    /// `mtls:`: clients must show one.
    Mutual,
}

/// The prefixes that say it.
const TLS_PREFIXES: [(&str, AddressTls); 4] = [
    ("notls:", AddressTls::Plain),
    ("tls:", AddressTls::Usual),
    ("btls:", AddressTls::Basic),
    ("mtls:", AddressTls::Mutual),
];

/// One part of `-l`: an address or host name, and perhaps a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Host name or address, without brackets.
    pub host: String,
    /// Its own port, in place of `-p`.
    pub port: Option<u16>,
    /// TLS there, in place of what `-Z` and `-o ssl_verify_mode` say.
    pub tls: Option<AddressTls>,
}

impl ListenAddress {
    /// Reads `host`, `host:port`, `[v6]:port`, with memcached's prefixes `notls:`, `tls:`, `btls:`, `mtls:`, and
    /// `proto[ascii]:`, `tag[NAME]:` and `tag_NAME_:`, which change nothing here.
    ///
    /// # Errors
    /// What cannot be served (other protocols), or is no address.
    pub fn parse(text: &str) -> Result<ListenAddress, String> {
        let (mut rest, mut tls) = (text, None);
        loop {
            let prefix = |&(prefix, tls): &(&str, AddressTls)| Some((rest.strip_prefix(prefix)?, tls));
            if let Some((after, said)) = TLS_PREFIXES.iter().find_map(prefix) {
                (rest, tls) = (after, Some(said));
            } else if let Some(after) = rest.strip_prefix("proto[") {
                let (name, after) = after.split_once("]:").ok_or_else(|| unreadable(text))?;
                if !matches!(name, "ascii" | "negotiating") {
                    return Err(format!("{text}: the protocol {name} is not spoken"));
                }
                rest = after;
            } else if let Some(after) = rest.strip_prefix("tag[") {
                rest = after.split_once("]:").ok_or_else(|| unreadable(text))?.1;
            } else if let Some(after) = rest.strip_prefix("tag_") {
                rest = after.split_once("_:").ok_or_else(|| unreadable(text))?.1;
            } else {
                break;
            }
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or_else(|| unreadable(text))?;
                match after.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if after.is_empty() => (host, None),
                    None => return Err(unreadable(text)),
                }
            }
            // More than one colon is an IPv6 address without a port.
            None => match rest.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (rest, None),
            },
        };
        let port = match port {
            None => None,
            Some(port) => Some(port.parse().map_err(|_| format!("{text}: {port} is not a port"))?),
        };
        if host.is_empty() {
            return Err(unreadable(text));
        }
        Ok(ListenAddress { host: host.to_owned(), port, tls })
    }
}

/// `--http-host`: where HTTP is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpHost {
    /// Address or name that is listened on, without brackets.
    pub host: String,
    /// Further names that a request may ask for.
    pub others: Vec<String>,
}

impl HttpHost {
    /// Reads `HOST[,NAME…]`.
    ///
    /// # Errors
    /// What is no address or name: one with a port, or nothing.
    pub fn parse(text: &str) -> Result<HttpHost, String> {
        let mut parts = text.split(',').map(|part| {
            let part = part.trim();
            let bare = part.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(part);
            let is_name = |name: &str| {
                !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            };
            if is_name(bare) || bare.parse::<IpAddr>().is_ok() {
                return Ok(bare.to_owned());
            }
            Err(format!("{part:?} is not an address or a host name; the port is --http-port"))
        });
        let host = parts.next().expect("a split has a part")?;
        Ok(HttpHost { host, others: parts.collect::<Result<_, _>>()? })
    }

    /// Names that a request may ask for.
    pub fn names(&self) -> Vec<String> {
        std::iter::once(&self.host).chain(&self.others).cloned().collect()
    }
}

fn unreadable(text: &str) -> String {
    format!("{text} is not an address, a host name, or one of them with a port")
}

/// The option that a listener is from: what a user has to change if it cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// `-p`.
    Port,
    /// An address of `-l` with a port of its own, or a name without an address.
    Address,
    /// `-s`.
    UnixSocket,
    /// `--redis-port`.
    Redis,
    /// `--tls-port`.
    RedisTls,
    /// `--http-port`, `--http-host`.
    Http,
}

impl Origin {
    /// Text behind the address in an error: what it is for, where the address does not say it.
    fn purpose(self) -> &'static str {
        match self {
            Origin::Port | Origin::Address | Origin::UnixSocket => "",
            Origin::Redis => " for Redis clients",
            Origin::RedisTls => " for Redis clients by TLS",
            Origin::Http => " for HTTP",
        }
    }

    /// Advice where the address is another server's.
    fn advice(self) -> &'static str {
        match self {
            Origin::Port => "choose another port with -p",
            Origin::Address => "choose another address or port with -l",
            Origin::UnixSocket => "choose another path with -s",
            Origin::Redis => "choose another port with --redis-port, or none with --redis-port 0",
            Origin::RedisTls => "choose another port with --tls-port",
            Origin::Http => "choose another port with --http-port, or none with --http-port 0",
        }
    }
}

/// Why the server cannot listen.
#[derive(Debug)]
pub struct ListenError {
    address: String,
    reason: String,
}

impl ListenError {
    fn new(address: impl fmt::Display, origin: Origin, error: &io::Error) -> ListenError {
        let reason = match error.kind() {
            io::ErrorKind::AddrInUse => format!("the address is in use; {}", origin.advice()),
            _ => error.to_string(),
        };
        ListenError { address: format!("{address}{}", origin.purpose()), reason }
    }

    /// The error of two parts of `-l` that are one address, and differ in TLS.
    fn two_kinds(host: &str, address: SocketAddr) -> ListenError {
        let reason = format!("-l {host} and another -l are {address}, and differ in TLS");
        ListenError { address: address.to_string(), reason }
    }

    /// The error of a path; it names a folder that is missing.
    fn of_path(path: &Path, error: &io::Error) -> ListenError {
        let refused = ListenError::new(path.display(), Origin::UnixSocket, error);
        ListenError { reason: process::missing_folder(path).unwrap_or(refused.reason), ..refused }
    }
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ListenError { address, reason } = self;
        write!(f, "cannot listen on {address}: {reason}")
    }
}

impl std::error::Error for ListenError {}

/// A listener and the address it got.
#[derive(Debug)]
pub struct Bound {
    /// The listener.
    pub listener: Listener,
    /// The address, with the real port.
    pub address: Address,
    /// What its connections speak.
    pub speaks: Speaks,
    /// By TLS with these options.
    pub tls: Option<Options>,
}

/// Opens all listeners of a configuration.
///
/// # Errors
/// The first that cannot be opened; none stays open then.
pub fn open(config: &Config) -> Result<Vec<Bound>, ListenError> {
    let mut bound = Vec::new();
    if let Some(path) = &config.unix_socket {
        bound.push(open_unix(path, config)?);
    } else {
        for (address, origin, tls) in tcp_addresses(config, config.text_port(), Origin::Port)? {
            bound.push(Bound { tls: options_at(config, tls), ..bind(address, origin, config)? });
        }
    }
    for (address, origin, _) in tcp_addresses(config, config.resp_port(), Origin::Redis)? {
        bound.push(Bound { speaks: Speaks::Redis, ..bind(address, origin, config)? });
    }
    for (address, origin, _) in tcp_addresses(config, config.redis_tls_port, Origin::RedisTls)? {
        let tls = Some(config.tls_options.redis.clone());
        bound.push(Bound { speaks: Speaks::Redis, tls, ..bind(address, origin, config)? });
    }
    Ok(bound)
}

/// The listener for monitors.
#[derive(Debug)]
pub struct Http {
    /// It listens already.
    pub listener: TcpListener,
    /// Where, with the real port.
    pub address: SocketAddr,
}

/// Listens for monitors, unless that is off; on this machine alone unless `--http-host` says otherwise, whatever `-l` says. If
/// the port was not asked for and is taken, the server does without it, since another server may run beside this one. What to
/// warn of is returned then, as the log has not begun.
///
/// # Errors
/// What the system says of a port or a host that was asked for.
pub fn open_http(config: &Config) -> Result<(Option<Http>, Option<String>), ListenError> {
    let Some(port) = config.http_port else { return Ok((None, None)) };
    let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    // The first of a name's addresses that can be listened on.
    let opened = match &config.http_host {
        None => TcpListener::bind(local),
        Some(HttpHost { host, .. }) => TcpListener::bind((host.as_str(), port)),
    };
    let opened = opened.and_then(|listener| {
        let address = listener.local_addr()?;
        Ok(Http { listener, address })
    });
    match opened {
        Ok(http) => Ok((Some(http), None)),
        Err(error) if !config.http_port_given && config.http_host.is_none() && !config.http_tls => {
            let warning = format!(
                "metrics are not served: cannot listen on {local} ({error}); choose another port with --http-port, or none with --http-port 0"
            );
            Ok((None, Some(warning)))
        }
        Err(error) => match &config.http_host {
            None => Err(ListenError::new(local, Origin::Http, &error)),
            Some(HttpHost { host, .. }) => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                Err(ListenError::new(format!("{host}:{port}"), Origin::Http, &error))
            }
        },
    }
}

/// TLS options of a listener, by what `-l` says of its address.
fn options_at(config: &Config, tls: Option<AddressTls>) -> Option<Options> {
    let options = || config.tls_options.cache.clone();
    match tls {
        _ if !config.tls => None,
        None | Some(AddressTls::Usual) => Some(options()),
        Some(AddressTls::Plain) => None,
        Some(AddressTls::Basic) => Some(Options { clients: ClientAuth::None, ..options() }),
        Some(AddressTls::Mutual) => Some(Options { clients: ClientAuth::Required, ..options() }),
    }
}

/// An address to listen at, what it is from, and what `-l` says of TLS there.
type TcpAddress = (SocketAddr, Origin, Option<AddressTls>);

/// Addresses at which to listen on the port of an option. An address of `-l` that has a port of its own has that in place of
/// `-p`, and not in place of the ports for Redis clients.
fn tcp_addresses(config: &Config, port: Option<u16>, origin: Origin) -> Result<Vec<TcpAddress>, ListenError> {
    if config.listen.is_empty() {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        return Ok(port.map(|port| (SocketAddr::new(local, port), origin, None)).into_iter().collect());
    }
    let mut addresses: Vec<TcpAddress> = Vec::new();
    for listed in &config.listen {
        let own = listed.port.filter(|_| origin == Origin::Port);
        let origin = if own.is_some() { Origin::Address } else { origin };
        let Some(port) = own.or(port) else { continue };
        let found = (listed.host.as_str(), port).to_socket_addrs();
        let found = found.map_err(|error| ListenError::new(&listed.host, Origin::Address, &error))?;
        for address in found {
            match addresses.iter().find(|(known, ..)| *known == address) {
                None => addresses.push((address, origin, listed.tls)),
                Some((.., tls))
                    if matches!(origin, Origin::Port | Origin::Address)
                        && options_at(config, *tls) != options_at(config, listed.tls) =>
                {
                    return Err(ListenError::two_kinds(&listed.host, address));
                }
                Some(_) => {}
            }
        }
    }
    Ok(addresses)
}

fn bind(address: SocketAddr, origin: Origin, config: &Config) -> Result<Bound, ListenError> {
    let refused = |error: io::Error| ListenError::new(address, origin, &error);
    let listener = Listener::bind(&Address::Tcp(address), i32::from(config.backlog)).map_err(refused)?;
    let address = listener.local_address().map_err(refused)?;
    Ok(Bound { listener, address, speaks: Speaks::Any, tls: None })
}

fn open_unix(path: &Path, config: &Config) -> Result<Bound, ListenError> {
    let refused = |error: io::Error| ListenError::of_path(path, &error);
    // A socket that a server left behind is in the way. One that a server listens on is not ours to
    // remove, and neither is anything else.
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        if UnixStream::connect(path).is_ok() {
            return Err(refused(io::ErrorKind::AddrInUse.into()));
        }
        let _ = std::fs::remove_file(path);
    }
    // It listens under another name first: a client that sees the path can connect. The mode, too, holds from the first moment,
    // so that at no time others can connect.
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".lck");
    let _ = std::fs::remove_file(&unfinished);
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(!config.unix_mode & 0o777));
    let bound = Listener::bind(&Address::Unix(unfinished.clone().into()), i32::from(config.backlog));
    rustix::process::umask(before);
    // A link, not a renaming: what is at the path and not ours stays.
    let linked = std::fs::hard_link(&unfinished, path);
    let _ = std::fs::remove_file(&unfinished);
    let listener = bound.map_err(refused)?;
    linked.map_err(refused)?;
    Ok(Bound { listener, address: Address::Unix(path.to_owned()), speaks: Speaks::Any, tls: None })
}

/// Writes the ports to the file that MEMCACHED_PORT_FILENAME names, as memcached does, so that the program that
/// started us with `-p -1` can find them. Complete when it appears.
///
/// # Errors
/// What writing the file says.
pub fn write_port_file(path: &Path, bound: &[Bound], http: Option<SocketAddr>) -> io::Result<()> {
    let mut text = String::new();
    for Bound { address, speaks, tls, .. } in bound {
        if let Address::Tcp(address) = address {
            let kind = match (speaks, tls) {
                (Speaks::Any, _) => "TCP",
                (Speaks::Redis, None) => "RESP",
                (Speaks::Redis, Some(_)) => "RESPS",
            };
            let family = if address.is_ipv4() { "INET" } else { "INET6" };
            text.push_str(&format!("{kind} {family}: {}\n", address.port()));
        }
    }
    if let Some(address) = http {
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        text.push_str(&format!("HTTP {family}: {}\n", address.port()));
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".lck");
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(host: &str, port: Option<u16>) -> Result<ListenAddress, String> {
        Ok(ListenAddress { host: host.into(), port, tls: None })
    }

    #[test]
    fn an_address_that_two_places_name_has_one_kind_of_tls() {
        let addresses = |listed: &[&str], tls: bool, origin| {
            let listen = listed.iter().map(|text| ListenAddress::parse(text).expect("an address")).collect();
            tcp_addresses(&Config { listen, tls, ..Config::default() }, Some(1), origin)
        };
        for (listed, good) in [
            (&["notls:127.0.0.1", "mtls:127.0.0.1"][..], false),
            (&["127.0.0.1", "btls:localhost"], true),
            (&["mtls:127.0.0.1", "btls:localhost"], false),
            (&["127.0.0.1", "tls:127.0.0.1"], true),
            (&["notls:127.0.0.1:2", "mtls:127.0.0.1:3"], true),
            (&["notls:127.0.0.1:2", "mtls:127.0.0.1:2"], false),
        ] {
            let found = addresses(listed, true, Origin::Port);
            assert_eq!(found.is_ok(), good, "{listed:?}");
            if let Err(error) = found {
                assert!(error.to_string().contains("127.0.0.1:"), "{error}");
            }
            // Where it says nothing of a port's TLS, nothing contradicts.
            assert!(addresses(listed, false, Origin::Port).is_ok());
            assert!(addresses(listed, true, Origin::RedisTls).is_ok());
        }
    }

    #[test]
    fn places_are_read_with_ports_brackets_and_prefixes() {
        assert_eq!(ListenAddress::parse("10.0.0.1"), listed("10.0.0.1", None));
        assert_eq!(ListenAddress::parse("localhost:80"), listed("localhost", Some(80)));
        assert_eq!(ListenAddress::parse("::1"), listed("::1", None));
        assert_eq!(ListenAddress::parse("[::1]"), listed("::1", None));
        assert_eq!(ListenAddress::parse("[::1]:80"), listed("::1", Some(80)));
        let tls = |text: &str| ListenAddress::parse(text).map(|listed| listed.tls);
        assert_eq!(tls("notls:proto[ascii]:tag[abc]:h:1"), Ok(Some(AddressTls::Plain)));
        assert_eq!(tls("btls:h:1"), Ok(Some(AddressTls::Basic)));
        assert_eq!(tls("mtls:proto[ascii]:h"), Ok(Some(AddressTls::Mutual)));
        assert_eq!(ListenAddress::parse("proto[ascii]:tag[abc]:h:1"), listed("h", Some(1)));
        assert_eq!(ListenAddress::parse("tag_abc_:h"), listed("h", None));
        for bad in ["", ":80", "h:port", "h:65536", "[::1", "[::1]80", "mtls:", "proto[binary]:h", "tag[x:h"]
        {
            assert!(ListenAddress::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_place_named_twice_is_opened_once_and_a_free_port_is_found() {
        let listen = vec![listed("127.0.0.1", None).unwrap(), listed("127.0.0.1", None).unwrap()];
        let config = Config { port: Some(0), redis_port: None, listen, ..Config::default() };
        let bound = open(&config).unwrap();
        assert_eq!(bound.len(), 1);
        let Address::Tcp(address) = bound[0].address else { panic!("TCP was asked for") };
        assert_ne!(address.port(), 0);
        let taken = Config { port: Some(address.port()), listen: Vec::new(), ..config };
        assert_eq!(
            open(&taken).unwrap_err().to_string(),
            format!("cannot listen on {address}: the address is in use; choose another port with -p")
        );
        let listen = vec![ListenAddress::parse(&address.to_string()).unwrap()];
        let taken = Config { port: None, listen, ..taken };
        let said = open(&taken).unwrap_err().to_string();
        assert!(said.ends_with("in use; choose another address or port with -l"), "{said}");
    }

    #[test]
    fn port_off_listens_on_nothing_but_places_with_their_own() {
        let config = Config { port: None, redis_port: None, ..Config::default() };
        assert!(open(&config).unwrap().is_empty());
        let listen = vec![listed("127.0.0.1", Some(0)).unwrap(), listed("127.0.0.1", None).unwrap()];
        assert_eq!(open(&Config { listen, ..config }).unwrap().len(), 1);
    }

    #[test]
    fn redis_clients_have_a_port_of_their_own() {
        let config = Config { port: None, redis_port: Some(0), redis_port_given: true, ..Config::default() };
        let bound = open(&config).unwrap();
        assert_eq!(bound.len(), 1);
        assert_eq!(bound[0].speaks, Speaks::Redis);
        let Address::Tcp(address) = bound[0].address else { panic!("TCP was asked for") };
        for redis_port_given in [true, false] {
            let taken = Config { redis_port: Some(address.port()), redis_port_given, ..config.clone() };
            assert_eq!(
                open(&taken).unwrap_err().to_string(),
                format!(
                    "cannot listen on {address} for Redis clients: the address is in use; choose another port with --redis-port, or none with --redis-port 0"
                )
            );
        }
    }

    #[test]
    fn monitors_have_a_port_of_this_machine_that_is_done_without_unless_asked_for() {
        let config = Config { http_port: Some(0), http_port_given: true, ..Config::default() };
        let (http, warning) = open_http(&config).unwrap();
        let http = http.expect("a free port");
        assert!(http.address.ip().is_loopback() && http.address.port() != 0 && warning.is_none());
        let taken = Config { http_port: Some(http.address.port()), ..config };
        assert_eq!(
            open_http(&taken).unwrap_err().to_string(),
            format!(
                "cannot listen on {} for HTTP: the address is in use; choose another port with --http-port, or none with --http-port 0",
                http.address
            )
        );
        let (none, warning) = open_http(&Config { http_port_given: false, ..taken.clone() }).unwrap();
        let said = format!("metrics are not served: cannot listen on {} (", http.address);
        assert!(none.is_none() && warning.is_some_and(|warning| warning.starts_with(&said)));
        let asked_for_none = open_http(&Config { http_port: None, ..taken.clone() }).unwrap();
        assert!(matches!(asked_for_none, (None, None)));
        assert!(open_http(&Config { http_port_given: false, http_tls: true, ..taken.clone() }).is_err());
        let host = HttpHost::parse("127.0.0.1").unwrap();
        assert!(open_http(&Config { http_port_given: false, http_host: Some(host), ..taken }).is_err());
    }

    #[test]
    fn monitors_of_other_machines_have_a_host_without_a_port() {
        let read = |text: &str| HttpHost::parse(text).map(|host| host.names().join(" "));
        assert_eq!(read("0.0.0.0").as_deref(), Ok("0.0.0.0"));
        assert_eq!(read("[::1], cache.example,127.0.0.1").as_deref(), Ok("::1 cache.example 127.0.0.1"));
        for bad in ["", ",x", "x,", "0.0.0.0:80", "[::]:80", "http://x", "x y", "user@x"] {
            assert!(read(bad).is_err_and(|why| why.contains("--http-port")), "{bad}");
        }
        let config = Config { http_port: Some(0), http_port_given: true, ..Config::default() };
        for (text, expected) in [("0.0.0.0", "0.0.0.0"), ("127.0.0.2,cache.example", "127.0.0.2")] {
            let config = Config { http_host: Some(HttpHost::parse(text).unwrap()), ..config.clone() };
            let http = open_http(&config).unwrap().0.expect("a free port");
            assert_eq!(http.address.ip().to_string(), expected);
        }
        // An address that no machine here has (TEST-NET-1).
        let config = Config { http_host: Some(HttpHost::parse("192.0.2.1").unwrap()), ..config };
        let said = open_http(&config).unwrap_err().to_string();
        assert!(said.starts_with("cannot listen on 192.0.2.1:0 for HTTP: "), "{said}");
    }

    #[test]
    fn a_password_closes_the_port_of_text_clients_who_were_not_asked_for() {
        let config = Config { password: Some("x".into()), ..Config::default() };
        assert_eq!(config.text_port(), None);
        assert_eq!(Config { port_given: true, ..config.clone() }.text_port(), config.port);
        assert_eq!(Config { text_users: Some("/x".into()), ..config.clone() }.text_port(), config.port);
        assert_eq!(config.resp_port(), Some(6379));
        assert_eq!(Config { unix_socket: Some("/x".into()), ..config }.resp_port(), None);
    }

    #[test]
    fn a_unix_socket_gets_its_mode_and_replaces_a_stale_one_only() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("larder-listen-{}", std::process::id()));
        // A process of the same number may have left it.
        let _ = std::fs::remove_file(&path);
        let config = Config { unix_socket: Some(path.clone()), unix_mode: 0o750, ..Config::default() };
        for _ in 0..2 {
            let bound = open(&config).unwrap();
            assert_eq!(bound.len(), 1);
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
        }
        let serving = open(&config).unwrap();
        let said = open(&config).unwrap_err().to_string();
        assert!(said.ends_with("in use; choose another path with -s"), "{said}");
        assert!(UnixStream::connect(&path).is_ok(), "the first server keeps its place");
        drop(serving);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        assert!(open(&config).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        let nowhere = path.join("nowhere/socket");
        let said = open(&Config { unix_socket: Some(nowhere), ..config }).unwrap_err().to_string();
        let folder = path.join("nowhere");
        assert!(said.ends_with(&format!("the folder {} does not exist", folder.display())), "{said}");
    }
}
