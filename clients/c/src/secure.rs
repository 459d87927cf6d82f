//! TLS: reads the files that a configuration names into the Rust client's configuration.
//!
//! Sessions are not resumed: their cache has a lock, which a forked process could find locked for ever. That costs little, as a
//! client makes few connections to a server (one for each lane, and one for large values), and seldom.

use crate::failure::{Failure, wrong};
use larder_client::Tls;
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

/// The largest file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The fields of a configuration that need TLS. Files are paths.
#[derive(Clone, Debug, Default)]
pub struct Files {
    pub ca: Option<String>,
    pub cert: Option<String>,
    pub key: Option<String>,
    /// The name in the servers' certificates.
    pub name: Option<String>,
}

impl Files {
    /// Whether one of the fields is set.
    pub fn any(&self) -> bool {
        [&self.ca, &self.cert, &self.key, &self.name].iter().any(|field| field.is_some())
    }

    /// Reads the files, which may wait.
    ///
    /// # Errors
    /// Which field cannot be used, by its name, and why.
    pub fn load(&self) -> Result<Tls, Failure> {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::Bug(error.to_string()))?
            .with_root_certificates(roots(self.ca.as_deref())?);
        let mut config = match (&self.cert, &self.key) {
            (None, None) => config.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain = certificates("cert_file", cert)?;
                let own = private(key)?;
                config.with_client_auth_cert(chain, own).map_err(|error| unusable("key_file", key, &error))?
            }
            _ => return wrong("cert_file and key_file go together"),
        };
        config.resumption = Resumption::disabled();
        let tls = Tls::from(Arc::new(config));
        Ok(match &self.name {
            Some(name) => tls.name(name),
            None => tls,
        })
    }
}

fn unusable(field: &str, path: &str, why: &dyn Display) -> Failure {
    Failure::Argument(format!("{field} {path}: {why}").into())
}

/// The authorities that may sign servers' certificates: those of this file, or the system's.
fn roots(path: Option<&str>) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    let Some(path) = path else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() { wrong("ca_file is NULL, and the system has none") } else { Ok(roots) };
    };
    for certificate in certificates("ca_file", path)? {
        roots.add(certificate).map_err(|error| unusable("ca_file", path, &error))?;
    }
    Ok(roots)
}

/// Reads a private key. Its bytes say its form, whatever its label says; OpenSSL does the same.
fn private(path: &str) -> Result<PrivateKeyDer<'static>, Failure> {
    let key = PrivateKeyDer::from_pem_slice(&read("key_file", path)?)
        .map_err(|error| unusable("key_file", path, &error))?;
    PrivateKeyDer::try_from(key.secret_der())
        .map(|key| key.clone_key())
        .map_err(|error| unusable("key_file", path, &error))
}

fn certificates(field: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let text = read(field, path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match all {
        Ok(all) if all.is_empty() => Err(unusable(field, path, &"there is no certificate in it")),
        Ok(all) => Ok(all),
        Err(error) => Err(unusable(field, path, &error)),
    }
}

fn read(field: &str, path: &str) -> Result<Vec<u8>, Failure> {
    let bytes = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match bytes() {
        Ok(bytes) if bytes.len() as u64 > FILE_BYTES_MAX => Err(unusable(field, path, &"above 1 MiB")),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(unusable(field, path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Texts, builder};
    use crate::shapes::{self, Bytes, Status, TLS};
    use larder_client::{Client, Error, Outcome};
    use larder_testkit::PATIENCE;
    use larder_testkit::process::Server;
    use std::path::PathBuf;
    use std::ptr;

    const NAME: &str = "cache.internal";

    /// A certificate and its key, in files that are gone with it.
    struct Pair {
        cert: PathBuf,
        key: PathBuf,
    }

    impl Pair {
        fn new(name: &str) -> Pair {
            let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
            let folder = std::env::temp_dir();
            let path = |end: &str| folder.join(format!("larder-c-{name}-{}.{end}", std::process::id()));
            let pair = Pair { cert: path("crt"), key: path("key") };
            std::fs::write(&pair.cert, made.cert.pem()).expect("written");
            std::fs::write(&pair.key, made.signing_key.serialize_pem()).expect("written");
            pair
        }

        fn cert(&self) -> String {
            self.cert.display().to_string()
        }

        fn key(&self) -> String {
            self.key.display().to_string()
        }

        /// Files of a client that trusts this one.
        fn trusted(&self) -> Files {
            Files { ca: Some(self.cert()), name: Some(NAME.to_owned()), ..Files::default() }
        }
    }

    impl Drop for Pair {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.cert);
            let _ = std::fs::remove_file(&self.key);
        }
    }

    fn config(options: u32) -> shapes::Config {
        let patience = u32::try_from(PATIENCE.as_millis()).expect("some minutes");
        shapes::Config {
            size: 0,
            options,
            servers: ptr::null(),
            servers_count: 0,
            names: ptr::null(),
            weights: ptr::null(),
            preset: ptr::null(),
            user: ptr::null(),
            password: ptr::null(),
            key_prefix: Bytes::default(),
            protocol: 0,
            timeout_ms: patience,
            dial_timeout_ms: patience,
            stall_timeout_ms: patience,
            in_flight: 0,
            large_bytes: 0,
            ca_file: ptr::null(),
            cert_file: ptr::null(),
            key_file: ptr::null(),
            server_name: ptr::null(),
            lanes: 0,
            reserved: 0,
        }
    }

    fn client(address: &str, tls: Files) -> Result<Client, Failure> {
        let servers = vec![(address.to_owned(), None, None)];
        Ok(builder(&config(TLS), Texts { servers, tls, ..Texts::default() })?.build()?)
    }

    fn server(pair: &Pair, more: &str) -> Server {
        let options = format!("ssl_chain_cert={},ssl_key={}{more}", pair.cert(), pair.key());
        Server::start(&["-Z", "-o", &options, "--threads", "1"]).expect("a server")
    }

    #[test]
    fn a_client_speaks_with_the_servers_that_it_trusts_and_with_no_others() {
        let (pair, other) = (Pair::new("server"), Pair::new("other"));
        let server = server(&pair, "");
        let address = server.address().to_string();
        let cache = client(&address, pair.trusted()).expect("a client");
        for bytes in [0, 100, 16_384, 70_000] {
            let value = vec![b'v'; bytes];
            cache.set(b"k", &value).send().expect("stored");
            assert!(cache.get(b"k").expect("an answer").expect("a hit").bytes == value, "{bytes}");
        }
        let named = Files { name: Some("other.internal".to_owned()), ..pair.trusted() };
        let unnamed = Files { name: None, ..pair.trusted() };
        for (what, tls) in [("authority", other.trusted()), ("name", named), ("address", unnamed)] {
            let error = client(&address, tls).expect("a client").get(b"k").expect_err("nobody to talk to");
            assert!(matches!(error, Error::Down(..)), "another {what}: {error}");
            assert_eq!(error.outcome(), Outcome::NotSent);
        }
    }

    #[test]
    fn a_client_shows_its_certificate_to_a_server_that_asks() {
        let (pair, own, strange) = (Pair::new("asks"), Pair::new("own"), Pair::new("strange"));
        let server = server(&pair, &format!(",ssl_ca_cert={},ssl_verify_mode=2", own.cert()));
        let address = server.address().to_string();
        let shows = |own: &Pair| Files { cert: Some(own.cert()), key: Some(own.key()), ..pair.trusted() };
        let cache = client(&address, shows(&own)).expect("a client");
        cache.set(b"k", b"v").send().expect("stored");
        for tls in [pair.trusted(), shows(&strange)] {
            let error = client(&address, tls).expect("a client").get(b"k").expect_err("it is refused");
            assert!(matches!(error, Error::Down(..)), "{error}");
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_told_by_their_fields() {
        let (pair, other) = (Pair::new("files"), Pair::new("mixed"));
        let with = |change: &dyn Fn(&mut Files)| {
            let mut files = pair.trusted();
            change(&mut files);
            files
        };
        for (files, begins) in [
            (with(&|files| files.ca = Some("/no/such".to_owned())), "ca_file /no/such: "),
            (with(&|files| files.ca = Some(pair.key())), "ca_file "),
            (with(&|files| files.cert = Some(pair.cert())), "cert_file and key_file go together"),
            (with(&|files| files.key = Some(pair.key())), "cert_file and key_file go together"),
            (with(&|files| (files.cert, files.key) = (Some(pair.cert()), Some(pair.cert()))), "key_file "),
            (with(&|files| (files.cert, files.key) = (Some(pair.cert()), Some(other.key()))), "key_file "),
        ] {
            let failure = files.load().expect_err("it cannot be used");
            assert_eq!(failure.status(), Status::BAD_ARGUMENT);
            assert!(matches!(&failure, Failure::Argument(why) if why.starts_with(begins)), "{failure:?}");
        }
    }

    #[test]
    fn a_file_has_1_mib_at_most() {
        let pair = Pair::new("long");
        let text = std::fs::read(&pair.cert).expect("it was written");
        for bytes in [FILE_BYTES_MAX - 1, FILE_BYTES_MAX, FILE_BYTES_MAX + 1] {
            let mut longer = text.clone();
            longer.resize(bytes as usize, b'#');
            std::fs::write(&pair.cert, longer).expect("written");
            let refused = pair.trusted().load().err().map(|failure| format!("{failure:?}"));
            assert_eq!(refused.is_some(), bytes > FILE_BYTES_MAX, "{bytes}: {refused:?}");
            assert!(refused.is_none_or(|why| why.contains(": above 1 MiB")));
        }
    }

    #[test]
    fn nothing_of_tls_is_passed_over_in_silence() {
        let pair = Pair::new("silence");
        let texts = Texts { tls: pair.trusted(), ..Texts::default() };
        let Err(Failure::Argument(message)) = builder(&config(0), texts) else { panic!("it is refused") };
        assert_eq!(message, "ca_file, cert_file, key_file and server_name take LARDER_TLS");
        // A path has no name that a certificate could have.
        let nameless = Files { name: None, ..pair.trusted() };
        let refused = client("/run/cache.sock", nameless).expect_err("there is no name");
        assert_eq!(refused.status(), Status::BAD_ARGUMENT);
    }
}
