//! Certificates of this machine for suites and benchmarks, made by openssl: an authority, and what it signs.
//!
//! They have all that strict readers ask for (Python from 3.13 on, Java): what an authority may sign, what keys are for, and by
//! which key a certificate was signed. They are good for 30 days; those that are signed are of 127.0.0.1 and localhost.
//!
//! ```text
//! folder ─┬─ openssl.cnf
//!         ├─ ca.crt, ca.key
//!         └─ NAME.crt, NAME.key, NAME.csr      for each that is signed
//! ```

use crate::run::{Outcome, command, run};
use std::fs;
use std::path::{Path, PathBuf};

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
/// How long certificates are good, in days.
const DAYS: &str = "30";

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// ECDSA on P-256.
    Ecdsa,
    /// RSA of 2048 bits.
    Rsa,
}

impl Key {
    /// Words for `openssl req` that ask for such a key.
    fn words(self) -> &'static [&'static str] {
        match self {
            Key::Ecdsa => &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            Key::Rsa => &["-newkey", "rsa:2048"],
        }
    }
}

/// An authority, and the folder of its certificates.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Makes an authority in this folder, in place of an older one.
    pub fn make(folder: &Path) -> Outcome<Authority> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        fs::write(folder.join("openssl.cnf"), CONFIG).map_err(failed)?;
        let authority = Authority { folder: folder.to_owned() };
        let whose = ["-x509", "-days", DAYS, "-extensions", "authority", "-subj", "/CN=larder authority"];
        let files = ["-keyout", "ca.key", "-out", "ca.crt"];
        authority.request(Key::Ecdsa, &[&whose[..], &files].concat())?;
        Ok(authority)
    }

    /// Makes `name.key` of this kind, and `name.crt`, which the authority has signed.
    pub fn sign(&self, name: &str, key: Key) -> Outcome {
        let subject = format!("/CN=larder {name}");
        let [file, asked, signed] = ["key", "csr", "crt"].map(|end| format!("{name}.{end}"));
        self.request(key, &["-subj", &subject, "-keyout", &file, "-out", &asked])?;
        let by = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", DAYS];
        let how = ["-extfile", "openssl.cnf", "-extensions", "signed", "-out", &signed];
        self.openssl(&[&["x509", "-req", "-in", &asked][..], &by, &how].concat())
    }

    /// Runs openssl in the folder.
    pub fn openssl(&self, words: &[&str]) -> Outcome {
        let mut openssl = command("openssl", words);
        openssl.current_dir(&self.folder);
        run(openssl)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file of the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a key, and a certificate or a request for one.
    fn request(&self, key: Key, words: &[&str]) -> Outcome {
        let begin = ["req", "-new", "-nodes", "-config", "openssl.cnf"];
        self.openssl(&[&begin[..], key.words(), words].concat())
    }
}
