//! TLS for suites of clients: an authority, a server's and a client's certificate that it has signed, and a user with rules.

use crate::certificates::{Authority, Key};
use crate::run::Outcome;
use std::path::Path;
use std::process::Command;

/// The user of programs, and its password. It may do all but one thing, so that rules are asked for each request.
const USER: &str = "app";
const PASSWORD: &str = "open sesame";
/// The SHA-256 of the password: words of rules are divided at blanks.
const PASSWORD_DIGEST: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";

/// Certificates in a folder: `ca.crt`, `redis.crt` and `redis.key`, `client.crt` and `client.key`, and the latter two as
/// `client.p12`. redis-py's tests want these names.
pub struct Certificates {
    authority: Authority,
}

impl Certificates {
    /// Makes them in this folder.
    pub fn make(folder: &Path) -> Outcome<Certificates> {
        let authority = Authority::make(folder)?;
        for name in ["redis", "client"] {
            authority.sign(name, Key::Ecdsa)?;
        }
        let password = format!("pass:{PASSWORD}");
        let pair = ["-in", "client.crt", "-inkey", "client.key", "-out", "client.p12"];
        authority.openssl(&[&["pkcs12", "-export", "-passout", password.as_str()][..], &pair].concat())?;
        Ok(Certificates { authority })
    }

    /// Options of a server that speaks TLS with Redis clients on this port, and asks these for certificates as `clients` says.
    pub fn options(&self, port: &str, clients: &str) -> Vec<String> {
        let path = |name: &str| self.authority.file(name).to_string_lossy().into_owned();
        let words = [
            ("--tls-port", port.to_owned()),
            ("--tls-cert-file", path("redis.crt")),
            ("--tls-key-file", path("redis.key")),
            ("--tls-ca-cert-file", path("ca.crt")),
            ("--tls-auth-clients", clients.to_owned()),
        ];
        words.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
    }

    /// Options by which clients have to log in.
    pub fn users() -> Vec<String> {
        let app = format!("{USER} on #{PASSWORD_DIGEST} ~* &* +@all -debug");
        ["--acl-user", app.as_str(), "--acl-user", "default off"].map(str::to_owned).into()
    }

    /// Tells a program where the certificates are, which of them it shows, and its user.
    pub fn tell(&self, program: &mut Command, shown: Option<&str>) {
        program
            .env("LARDER_TLS", self.authority.folder())
            .env("LARDER_USER", USER)
            .env("LARDER_PASSWORD", PASSWORD);
        if let Some(name) = shown {
            program.env("LARDER_CERTIFICATE", name);
        }
    }
}
