//! A real server's options of TLS, over sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_testkit::PATIENCE;
use larder_testkit::client::Client;
use larder_testkit::process::{Program, Server};
use larder_testkit::resp::{ask_text, line};
use larder_testkit::talk::encode_text;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::client::{Identity, connection, trusting};

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

fn connect(server: &Server, config: &Arc<ClientConfig>) -> Tls {
    StreamOwned::new(connection(config), server.connect().expect("it listens"))
}

/// Sends a request and reads exactly as many bytes as `wanted` has; an error if they differ or the connection fails.
fn says(stream: &mut Tls, request: &str, wanted: &str) -> std::io::Result<()> {
    stream.write_all(request.as_bytes())?;
    let mut reply = vec![0; wanted.len()];
    stream.read_exact(&mut reply)?;
    assert_eq!(String::from_utf8_lossy(&reply), wanted);
    Ok(())
}

fn text_server(identity: &Identity, more: &[&str]) -> Server {
    let pair = format!("ssl_chain_cert={},ssl_key={}", identity.chain_text(), identity.key_text());
    Server::start(&[&["-Z", "-t", "1", "-o", &pair][..], more].concat()).expect("larder starts")
}

pub fn resp_server(identity: &Identity, more: &[&str]) -> (Server, std::net::SocketAddr) {
    let (chain, key) = (identity.chain_text(), identity.key_text());
    let pair = ["--redis-port", "0", "--tls-cert-file", &chain, "--tls-key-file", &key];
    let server = Server::start(&[&["-t", "1", "--tls-port", "-1"][..], &pair, more].concat());
    let server = server.expect("larder starts");
    let output = server.output();
    let place = output.rsplit(" (TLS)").nth(1).and_then(|said| said.split(' ').next_back());
    let address = place.and_then(|place| place.parse().ok());
    let address = address.unwrap_or_else(|| panic!("no listener says TLS: {output}"));
    (server, address)
}

pub fn connect_to(address: std::net::SocketAddr, config: &Arc<ClientConfig>) -> Tls {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    StreamOwned::new(connection(config), stream)
}

#[test]
fn text_and_resp_are_spoken_by_tls_and_values_of_any_length_come_whole() {
    let identity = Identity::new();
    let server = text_server(&identity, &[]);
    assert!(server.output().contains("(TLS)"), "{}", server.output());
    let trust = trusting(&identity, None);
    let mut stream = connect(&server, &trust);
    says(&mut stream, "set k 1 0 5\r\nvalue\r\nget k\r\n", "STORED\r\nVALUE k 1 5\r\nvalue\r\nEND\r\n")
        .expect("an exchange");
    let value = "v".repeat(900_000);
    says(&mut stream, &format!("set l 0 0 900000\r\n{value}\r\n"), "STORED\r\n").expect("an exchange");
    let reply = format!("VALUE l 0 900000\r\n{value}\r\nEND\r\n");
    says(&mut stream, &"get l\r\n".repeat(5), &reply.repeat(5)).expect("an exchange");
    let mut resp = connect(&server, &trust);
    says(&mut resp, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "$5\r\nvalue\r\n").expect("an exchange");
    resp.conn.send_close_notify();
    resp.flush().expect("sent");
    assert_eq!(resp.read(&mut [0; 10]).expect("an end, no truncation"), 0);
}

#[test]
fn settings_and_counters_tell_of_tls() {
    let identity = Identity::new();
    let server = text_server(&identity, &["-o", "ssl_min_version=3"]);
    let mut wrong = server.connect().expect("it listens");
    wrong.write_all(b"get k\r\nget k\r\n").expect("sent");
    let mut rest = Vec::new();
    let _ = wrong.read_to_end(&mut rest);
    assert_eq!(rest.first(), Some(&21), "an alert: {rest:?}");
    let mut stream = connect(&server, &trusting(&identity, None));
    let mut page = |command: &str| {
        stream.write_all(command.as_bytes()).expect("sent");
        let mut page = Vec::new();
        while !page.ends_with(b"END\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a page");
            page.extend(byte);
        }
        String::from_utf8(page).expect("text")
    };
    let settings = page("stats settings\r\n");
    for line in ["ssl_enabled yes", &format!("ssl_key {}", identity.key_text()), "ssl_min_version tlsv1.3"] {
        assert!(settings.contains(&format!("STAT {line}\r\n")), "{line}: {settings}");
    }
    let counters = page("stats\r\n");
    for line in ["ssl_handshake_errors 1", "ssl_proto_errors 0"] {
        assert!(counters.contains(&format!("STAT {line}\r\n")), "{line}: {counters}");
    }
    assert!(counters.contains("STAT time_since_server_cert_refresh "), "{counters}");
}

#[test]
fn watchers_are_told_why_a_handshake_failed() {
    let identity = Identity::new();
    let server = text_server(&identity, &[]);
    let mut watcher = connect(&server, &trusting(&identity, None));
    watcher.write_all(b"watch connevents\r\n").expect("sent");
    let mut said = Vec::new();
    let mut until = |end: &[u8]| {
        while !said.ends_with(end) {
            let mut byte = [0];
            watcher.read_exact(&mut byte).expect("more lines");
            said.extend(byte);
        }
        String::from_utf8(std::mem::take(&mut said)).expect("text")
    };
    assert_eq!(until(b"\r\n"), "OK\r\n");
    let mut wrong = server.connect().expect("it listens");
    wrong.write_all(b"get k\r\nget k\r\n").expect("sent");
    _ = wrong.read_to_end(&mut Vec::new());
    let lines = until(b" reason=error cfd=");
    let told = lines.lines().find(|line| line.contains(" type=conntlserr fd=")).expect(&lines);
    assert!(told.ends_with(" msg=received corrupt message of type InvalidContentType"), "{told}");
}

#[test]
fn certificates_are_read_anew_when_asked_and_bad_ones_leave_the_old() {
    let (identity, next) = (Identity::new(), Identity::new());
    let server = text_server(&identity, &[]);
    let old = trusting(&identity, None);
    let mut stream = connect(&server, &old);
    std::fs::write(&identity.key, "no key").expect("written");
    stream.write_all(b"refresh_certs\r\n").expect("sent");
    let mut reply = [0; 23];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(String::from_utf8_lossy(&reply), "Error loading the key: ");
    let mut again = connect(&server, &old);
    says(&mut again, "mn\r\n", "MN\r\n").expect("as before");
    identity.replace_by(&next);
    says(&mut again, "refresh_certs\r\n", "OK\r\n").expect("an exchange");
    says(&mut again, "mn\r\n", "MN\r\n").expect("who is there stays");
    says(&mut connect(&server, &trusting(&next, None)), "mn\r\n", "MN\r\n").expect("the new one is shown");
    says(&mut connect(&server, &old), "mn\r\n", "MN\r\n").expect_err("and the old one no more");
}

#[test]
fn clients_show_certificates_where_they_have_to() {
    let (identity, known, stranger) = (Identity::new(), Identity::new(), Identity::new());
    let authority = format!("ssl_ca_cert={}", known.chain_text());
    let nobody = trusting(&identity, None);
    let good = trusting(&identity, Some(&known));
    let bad = trusting(&identity, Some(&stranger));
    for (mode, nobody_may, stranger_may) in [(0, true, true), (1, true, false), (2, false, false)] {
        let server = text_server(&identity, &["-o", &format!("{authority},ssl_verify_mode={mode}")]);
        let may = |config| says(&mut connect(&server, config), "mn\r\n", "MN\r\n").is_ok();
        assert_eq!((may(&nobody), may(&good), may(&bad)), (nobody_may, true, stranger_may), "{mode}");
    }
    // Redis clients need a certificate unless an option says otherwise.
    let authority = known.chain_text();
    let ping = "*1\r\n$4\r\nPING\r\n";
    for (says_so, nobody_may) in [(&[][..], false), (&["--tls-auth-clients", "optional"][..], true)] {
        let (_server, address) =
            resp_server(&identity, &[&["--tls-ca-cert-file", &authority][..], says_so].concat());
        let may = |config| says(&mut connect_to(address, config), ping, "+PONG\r\n").is_ok();
        assert_eq!((may(&nobody), may(&good), may(&bad)), (nobody_may, true, false));
    }
}

#[test]
fn a_port_for_redis_by_tls_stands_beside_one_without() {
    let identity = Identity::new();
    let (server, address) = resp_server(&identity, &["--tls-auth-clients", "no"]);
    let mut stream = connect_to(address, &trusting(&identity, None));
    let set = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
    says(&mut stream, set, "+OK\r\n").expect("an exchange");
    let mut plain = server.connect().and_then(Client::new).expect("text without TLS");
    plain.line("get k");
    plain.flush().expect("sent");
    assert_eq!(plain.hits().expect("a reply")[0].value, b"v");
}

#[test]
fn info_tells_which_listeners_speak_tls() {
    let identity = Identity::new();
    let (server, address) = resp_server(&identity, &["--tls-auth-clients", "no"]);
    let mut stream = connect_to(address, &trusting(&identity, None));
    let page = resp(&mut stream, &["INFO", "server"]);
    let told: Vec<&str> = page.lines().filter(|line| line.starts_with("listener")).collect();
    let plain = format!("listener0:name=tcp,bind=127.0.0.1,port={}", server.address().port());
    let tls = format!("listener1:name=tls,bind=127.0.0.1,port={}", address.port());
    assert_eq!(told, [plain, tls]);
}

#[test]
fn client_list_says_who_speaks_tls() {
    let identity = Identity::new();
    let (server, address) = resp_server(&identity, &["--tls-auth-clients", "no"]);
    let mut plain = server.connect().expect("it listens");
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").expect("sent");
    plain.read_exact(&mut [0; 7]).expect("a reply");
    let mut stream = connect_to(address, &trusting(&identity, None));
    let page = resp(&mut stream, &["CLIENT", "LIST"]);
    let speaks: Vec<&str> = page.lines().filter(|line| line.ends_with(" tls=yes")).collect();
    assert_eq!((page.lines().count(), speaks.len(), page.matches("tls=").count()), (2, 1, 1), "{page}");
    assert!(speaks[0].contains(&format!(" laddr={address} ")), "{page}");
}

/// A request in RESP, and its reply: the first line, or the text of a bulk string.
pub fn resp(stream: &mut Tls, words: &[&str]) -> String {
    ask_text(stream, &encode_text(words))
}

/// The value of a parameter, as CONFIG GET tells it.
pub fn parameter(stream: &mut Tls, name: &str) -> String {
    assert_eq!(resp(stream, &["CONFIG", "GET", name]), "*2");
    let told = [(); 4].map(|()| line(stream));
    assert_eq!(told[1], name);
    told[3].clone()
}

#[test]
fn config_set_puts_a_certificate_and_its_key_in_force_together_or_neither() {
    let (first, second) = (Identity::new(), Identity::new());
    let pair = format!("ssl_chain_cert={},ssl_key={}", first.chain_text(), first.key_text());
    let (server, address) = resp_server(&first, &["--tls-auth-clients", "no", "-Z", "-o", &pair]);
    let old = trusting(&first, None);
    let mut stream = connect_to(address, &old);
    let (chain, key) = (second.chain_text(), second.key_text());
    let ping = "*1\r\n$4\r\nPING\r\n";
    for (words, wanted) in [
        (
            &["tls-cert-file", &chain][..],
            "argument 'tls-cert-file') - Unable to update TLS configuration: Error validating",
        ),
        (
            &["tls-cert-file", "/no/such", "tls-key-file", &key],
            "Error loading the certificate chain: /no/such",
        ),
        (&["tls-cert-file", &chain, "tls-key-file", &key, "maxmemory", "1tb"], "argument 'maxmemory'"),
        (
            &["tls-cert-file", &chain, "tls-key-file", &key, "tls-protocols", "TLSv1.1"],
            "argument 'tls-protocols'",
        ),
        (&["tls-auth-clients", "yes"], "Error loading the CA certificate"),
        (&["tls-port", "1"], "can't set immutable config"),
    ] {
        let said = resp(&mut stream, &[&["CONFIG", "SET"], words].concat());
        assert!(said.starts_with("-ERR CONFIG SET failed") && said.contains(wanted), "{said}");
        says(&mut connect_to(address, &old), ping, "+PONG\r\n").expect("as before");
    }
    let set = ["CONFIG", "SET", "tls-cert-file", &chain, "tls-key-file", &key];
    assert_eq!(resp(&mut stream, &set), "+OK");
    says(&mut stream, ping, "+PONG\r\n").expect("an open connection stays");
    let new = trusting(&second, None);
    says(&mut connect_to(address, &old), ping, "+PONG\r\n").expect_err("the old one is shown no more");
    let mut stream = connect_to(address, &new);
    says(&mut stream, ping, "+PONG\r\n").expect("the new one is");
    let mut get = |name: &str| parameter(&mut stream, name);
    assert_eq!((get("tls-cert-file"), get("tls-key-file")), (chain.clone(), key));
    assert_eq!((get("tls-auth-clients"), get("tls-port")), ("no".into(), address.port().to_string()));
    // The cache's port uses the new files, and reports them.
    let mut text = connect(&server, &new);
    text.write_all(b"stats settings\r\n").expect("sent");
    let mut page = Vec::new();
    while !page.ends_with(b"END\r\n") {
        let mut byte = [0];
        text.read_exact(&mut byte).expect("a page");
        page.extend(byte);
    }
    assert!(String::from_utf8_lossy(&page).contains(&format!("STAT ssl_chain_cert {chain}\r\n")));
}

#[test]
fn sighup_reads_certificates_again() {
    let (identity, next) = (Identity::new(), Identity::new());
    let server = text_server(&identity, &[]);
    let mut open = connect(&server, &trusting(&identity, None));
    says(&mut open, "mn\r\n", "MN\r\n").expect("an exchange");
    identity.replace_by(&next);
    server.hang_up();
    let new = trusting(&next, None);
    let begun = Instant::now();
    while says(&mut connect(&server, &new), "mn\r\n", "MN\r\n").is_err() {
        assert!(begun.elapsed() < PATIENCE, "the old certificate is still shown");
    }
    says(&mut open, "mn\r\n", "MN\r\n").expect("an open connection stays");
}

#[test]
#[ignore = "peers: openssl"]
fn openssl_agrees_on_each_version_and_suite_and_on_no_older_one() {
    let identity = Identity::new();
    let server = text_server(&identity, &["-o", "ssl_session_cache"]);
    let address = server.address().to_string();
    let speaks = |options: &[&str]| {
        let mut client = Command::new("openssl")
            .args([
                "s_client",
                "-connect",
                &address,
                "-CAfile",
                &identity.chain_text(),
                "-quiet",
                "-no_ign_eof",
            ])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is there");
        let mut stdin = client.stdin.take().expect("a pipe");
        let _ = stdin.write_all(b"version\r\nquit\r\n");
        let output = client.wait_with_output().expect("it ends");
        String::from_utf8_lossy(&output.stdout).contains("VERSION ")
    };
    for options in [
        &["-tls1_2"][..],
        &["-tls1_3"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
        &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
        &["-tls1_3", "-groups", "P-256"],
        &["-tls1_3", "-groups", "P-384:X25519"],
        &["-tls1_2", "-no_ticket"],
    ] {
        assert!(speaks(options), "{options:?}");
    }
    for options in [
        &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"][..],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "AES128-GCM-SHA256"],
    ] {
        assert!(!speaks(options), "{options:?}");
    }
}

#[test]
fn silent_connections_make_room_for_a_client_that_waits_and_none_is_refused() {
    let identity = Identity::new();
    let server = text_server(&identity, &["-c", "64"]);
    let trust = trusting(&identity, None);
    let mut open = connect(&server, &trust);
    says(&mut open, "mn\r\n", "MN\r\n").expect("an exchange");
    let mut silent: Vec<TcpStream> = (0..16).map(|_| server.connect().expect("it listens")).collect();
    // The seventeenth handshake waits until one of the silent ones is closed.
    says(&mut connect(&server, &trust), "mn\r\n", "MN\r\n").expect("its turn comes");
    says(&mut open, "mn\r\n", "MN\r\n").expect("an open one is served");
    let closed = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        matches!(stream.read(&mut [0]), Ok(0))
    };
    let closed: Vec<bool> = silent.iter_mut().map(closed).collect();
    assert!(closed[0] && !closed[15], "those that came first: {closed:?}");
}

/// A silent handshake is closed after a second if others wait. A client whose thread is off its core is
/// silent, too: it connects again. If its handshake was closed sooner, it was refused.
fn comes_until_served(server: &Server, trust: &Arc<ClientConfig>) {
    let first = Instant::now();
    loop {
        let begun = Instant::now();
        let Err(error) = says(&mut connect(server, trust), "mn\r\n", "MN\r\n") else { return };
        // Half of that second: the server's clock is not the test's.
        assert!(begun.elapsed() > Duration::from_millis(500), "it was not silent, and is closed: {error}");
        assert!(first.elapsed() < PATIENCE, "its turn does not come: {error}");
    }
}

#[test]
fn more_clients_than_the_share_of_handshakes_that_come_at_once_are_all_served() {
    let identity = Identity::new();
    let server = text_server(&identity, &["-c", "160"]);
    let trust = trusting(&identity, None);
    std::thread::scope(|scope| {
        for _ in 0..120 {
            scope.spawn(|| comes_until_served(&server, &trust));
        }
    });
}

#[test]
fn a_tls_client_of_a_plain_port_is_closed_counted_and_logged_once() {
    let identity = Identity::new();
    let server = Server::start(&["-t", "1"]).expect("larder starts");
    let trust = trusting(&identity, None);
    for _ in 0..3 {
        says(&mut connect(&server, &trust), "mn\r\n", "MN\r\n").expect_err("it speaks no TLS");
    }
    // The log is written by a thread of its own.
    let lines = || server.output().matches("TLS on a plain port").count();
    let begun = Instant::now();
    while lines() == 0 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(lines(), 1, "{}", server.output());
}

#[test]
fn files_that_are_none_are_refused_while_the_server_runs_and_hold_nobody_up() {
    let identity = Identity::new();
    let (_server, address) = resp_server(&identity, &["--tls-auth-clients", "no"]);
    let trust = trusting(&identity, None);
    let mut stream = connect_to(address, &trust);
    for path in ["/dev/zero", "/dev/tty", "/proc/self/maps", "/"] {
        let said = resp(&mut stream, &["CONFIG", "SET", "tls-cert-file", path]);
        assert!(said.contains("Error loading the certificate chain"), "{said}");
    }
    says(&mut connect_to(address, &trust), "*1\r\n$4\r\nPING\r\n", "+PONG\r\n").expect("as before");
}

#[test]
fn two_families_that_name_two_certificates_are_refused_by_both_names() {
    let (identity, other) = (Identity::new(), Identity::new());
    let pair = format!("ssl_chain_cert={},ssl_key={}", identity.chain_text(), identity.key_text());
    let options = ["-Z", "-o", &pair, "--tls-port", "1", "--tls-cert-file", &other.chain_text()];
    let (status, said) = Server::refused(&Program::Larder, &options).expect("it does not start");
    assert_eq!(status.code(), Some(64), "{said}");
    assert!(said.contains("-o ssl_chain_cert") && said.contains("--tls-cert-file"), "{said}");
}

#[test]
fn what_cannot_be_used_is_said_in_one_line() {
    let (identity, other) = (Identity::new(), Identity::new());
    let refused = |chain: &str, key: &str| {
        let pair = format!("ssl_chain_cert={chain},ssl_key={key}");
        let (status, said) =
            Server::refused(&Program::Larder, &["-Z", "-o", &pair]).expect("it does not start");
        assert!(!status.success() && said.trim_end().lines().count() == 1, "{said}");
        said
    };
    let (chain, key) = (identity.chain_text(), identity.key_text());
    assert!(refused("/no/such", &key).contains("Error loading the certificate chain: /no/such"));
    assert!(refused(&chain, "/no/such").contains("Error loading the key: /no/such"));
    assert!(refused(&key, &key).contains("Error loading the certificate chain"));
    assert!(refused(&chain, &other.key_text()).contains("Error validating the certificate"));
}

/// A server whose HTTP port speaks TLS, and the port's address.
fn https_server(identity: &Identity) -> (Server, std::net::SocketAddr) {
    let (chain, key) = (identity.chain_text(), identity.key_text());
    let http = ["-t", "1", "--http-port", "-1", "--http-tls", "yes"];
    let pair = ["--tls-cert-file", &chain, "--tls-key-file", &key];
    let server = Server::start(&[&http[..], &pair].concat()).expect("larder starts");
    let output = server.output();
    let told = output.split_once("https://").and_then(|(_, rest)| rest.split_once('/'));
    let address = told.and_then(|(address, _)| address.parse().ok());
    let address = address.unwrap_or_else(|| panic!("nothing is told by https: {output}"));
    (server, address)
}

/// The complete HTTP response, after which the server has sent close_notify.
fn get(stream: &mut Tls, path: &str) -> std::io::Result<String> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn metrics_and_the_page_are_told_by_tls_with_the_certificates_of_the_other_ports() {
    let (identity, next) = (Identity::new(), Identity::new());
    let (server, address) = https_server(&identity);
    let trust = trusting(&identity, None);
    let answer = get(&mut connect_to(address, &trust), "/metrics").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\nlarder_memory_limit_bytes "), "{answer}");
    let page = get(&mut connect_to(address, &trust), "/").expect("an answer");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html"), "{page}");
    // Plain HTTP on this port gets an alert.
    let mut plain = TcpStream::connect(address).expect("it listens");
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut alert = Vec::new();
    let _ = plain.read_to_end(&mut alert);
    assert_eq!(alert.first(), Some(&21), "an alert: {alert:?}");
    // The ports of clients still speak plain text, and can have the files read again.
    let mut text = server.connect().expect("it listens");
    identity.replace_by(&next);
    text.write_all(b"mn\r\nrefresh_certs\r\n").expect("sent");
    let mut reply = [0; 8];
    text.read_exact(&mut reply).expect("replies");
    assert_eq!(&reply, b"MN\r\nOK\r\n");
    let answer = get(&mut connect_to(address, &trusting(&next, None)), "/healthz").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    get(&mut connect_to(address, &trust), "/healthz").expect_err("the old one is shown no more");
}

#[test]
fn http_by_tls_needs_a_certificate_and_a_port() {
    let identity = Identity::new();
    let (chain, key) = (identity.chain_text(), identity.key_text());
    let refused = |options: &[&str]| {
        let (status, said) = Server::refused(&Program::Larder, options).expect("it does not start");
        assert_eq!(status.code(), Some(64), "{said}");
        said
    };
    let said = refused(&["--http-port", "-1", "--http-tls", "yes"]);
    assert!(said.contains("--http-tls needs --tls-cert-file or -o ssl_chain_cert"), "{said}");
    let said = refused(&["--http-port", "-1", "--http-tls", "yes", "--tls-cert-file", &chain]);
    assert!(said.contains("--http-tls needs --tls-key-file or -o ssl_key"), "{said}");
    let pair = ["--tls-cert-file", &chain, "--tls-key-file", &key];
    let said = refused(&[&["--http-port", "0", "--http-tls", "yes"][..], &pair].concat());
    assert!(said.contains("--http-tls, --http-port 0: "), "{said}");
}

/// A browser's request with the default user's password, "boss".
const WITH_PASSWORD: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
    Authorization: Basic ZGVmYXVsdDpib3Nz\r\n\r\n";

#[test]
fn passwords_of_clients_who_have_tls_are_taken_by_https_and_not_in_the_clear() {
    let identity = Identity::new();
    let http = ["--requirepass", "boss", "--http-host", "0.0.0.0", "--http-port", "-1"];
    for (by_tls, status) in [("yes", "200 OK"), ("no", "403 Forbidden")] {
        let server = text_server(&identity, &[&http[..], &["--http-tls", by_tls]].concat());
        let output = server.output();
        let told = output.rsplit_once("://").and_then(|(_, rest)| rest.split_once('/'));
        let address: Option<std::net::SocketAddr> = told.and_then(|(address, _)| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address of HTTP: {output}"));
        let mut answer = String::new();
        if by_tls == "yes" {
            let mut stream = connect_to(address, &trusting(&identity, None));
            stream.write_all(WITH_PASSWORD.as_bytes()).expect("sent");
            stream.read_to_string(&mut answer).expect("an answer");
        } else {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(WITH_PASSWORD.as_bytes()).expect("sent");
            stream.read_to_string(&mut answer).expect("an answer");
        }
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{by_tls}: {answer}");
    }
}
