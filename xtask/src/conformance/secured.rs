//! TLS for suites of clients: an authority, a server's and a client's certificate that it has signed, and a user with rules.
//!
//! The certificates have all that strict readers ask for (Python from 3.13 on, Java): the right to sign, what keys are for, and
//! which key of the authority's has signed.

use crate::run::{Outcome, command, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user of programs, and its password. It may do all but one thing, so that each request is asked for.
const USER: &str = "app";
const PASSWORD: &str = "open sesame";
/// The SHA-256 of the password: words of rules are divided at blanks.
const PASSWORD_DIGEST: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";

const CONFIG: &str = "\
[req]
prompt=no
distinguished_name=dn
[dn]
CN=larder
[authority]
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
[signed]
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName=IP:127.0.0.1,DNS:localhost
";

/// A folder with `ca.crt`, `redis.crt` and `redis.key`, `client.crt` and `client.key`, and the latter two as `client.p12`: by the
/// names that redis-py's tests want.
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes them in this folder.
    pub fn make(folder: &Path) -> Outcome<Certificates> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        fs::write(folder.join("openssl.cnf"), CONFIG).map_err(failed)?;
        let openssl = |words: &[&str]| {
            let mut openssl = command("openssl", words);
            openssl.current_dir(folder);
            run(openssl)
        };
        let curve = "ec_paramgen_curve:P-256";
        let key = ["-nodes", "-newkey", "ec", "-pkeyopt", curve, "-config", "openssl.cnf"];
        let request = |words: &[&str]| openssl(&[&["req", "-new"][..], &key, words].concat());
        request(&[
            "-x509",
            "-days",
            "30",
            "-extensions",
            "authority",
            "-subj",
            "/CN=larder authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
        ])?;
        for name in ["redis", "client"] {
            let subject = format!("/CN=larder {name}");
            let [key, asked, signed] = ["key", "csr", "crt"].map(|end| format!("{name}.{end}"));
            request(&["-subj", &subject, "-keyout", &key, "-out", &asked])?;
            openssl(&[
                "x509",
                "-req",
                "-in",
                &asked,
                "-CA",
                "ca.crt",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                "30",
                "-extfile",
                "openssl.cnf",
                "-extensions",
                "signed",
                "-out",
                &signed,
            ])?;
        }
        let password = format!("pass:{PASSWORD}");
        let pair = ["-in", "client.crt", "-inkey", "client.key", "-out", "client.p12"];
        openssl(&[&["pkcs12", "-export", "-passout", password.as_str()][..], &pair].concat())?;
        Ok(Certificates { folder: folder.to_owned() })
    }

    /// Options of a server that speaks TLS with Redis clients on this port, and has clients show certificates as this says.
    pub fn options(&self, port: &str, clients: &str) -> Vec<String> {
        let path = |name: &str| self.folder.join(name).to_string_lossy().into_owned();
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

    /// Tells a program where the certificates are, and its user.
    pub fn tell(&self, program: &mut Command) {
        program.env("LARDER_TLS", &self.folder).env("LARDER_USER", USER).env("LARDER_PASSWORD", PASSWORD);
    }
}
