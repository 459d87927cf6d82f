//! Certificates and keys from files, and the ciphers of the provider.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore, SupportedProtocolVersion, version};
use zeroize::Zeroizing;

use crate::der;
use crate::options::{CIPHERS, ClientAuth, KeyFormat, Options, SUITES, Version};
use crate::provider::default_provider;

/// Why options cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The file of certificates.
    Chain(PathBuf, String),
    /// The file of the key.
    Key(PathBuf, String),
    /// Certificate and key do not belong together, or cannot serve the versions asked for.
    Pair(String),
    /// A file or folder of authorities.
    Authorities(PathBuf, String),
    /// The name of a cipher suite is unknown.
    Cipher(String),
}

impl fmt::Display for LoadError {
    /// Errors in memcached's words, where it has some.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Chain(path, why) => {
                write!(f, "Error loading the certificate chain: {} : {why}", path.display())
            }
            LoadError::Key(path, why) => write!(f, "Error loading the key: {} : {why}", path.display()),
            LoadError::Pair(why) => write!(f, "Error validating the certificate: {why}"),
            LoadError::Authorities(path, _) if path.as_os_str().is_empty() => {
                f.write_str("Error loading the CA certificate: clients are asked for certificates, and no authorities are named")
            }
            LoadError::Authorities(path, why) => {
                write!(f, "Error loading the CA certificate: {} : {why}", path.display())
            }
            LoadError::Cipher(name) => write!(f, "Error setting the provided cipher(s): {name} is unknown"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Most bytes of all files of one load. The authorities of all browsers are 250 KB, and a folder of them has each twice. Reading
/// this much takes 4 ms of the thread that reads it.
pub const FILES_BYTES_MAX: usize = 1 << 20;

/// Most files of a folder of authorities.
pub const FOLDER_FILES_MAX: usize = 512;

/// The files of one load, with a limit on all their bytes. A client that may set options makes the server read any file that it
/// names, on a thread that serves others. So only regular files are read, and the length that the system reports is not trusted.
#[derive(Debug)]
pub struct Files {
    left: usize,
    /// A file was longer than what was left of the limit.
    overrun: bool,
}

impl Default for Files {
    /// A load that may read [`FILES_BYTES_MAX`].
    fn default() -> Files {
        Files { left: FILES_BYTES_MAX, overrun: false }
    }
}

impl Files {
    fn read(&mut self, path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
        let text = |error: io::Error| error.to_string();
        // Non-blocking, since opening a pipe without a writer would wait before it can be recognised as a pipe.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(text)?;
        let said = file.metadata().map_err(text)?;
        if !said.is_file() {
            return Err("it is not a file".to_owned());
        }
        // Allocates enough at once: what is overwritten afterwards has then never been moved.
        let room = usize::try_from(said.len()).unwrap_or(usize::MAX).min(self.left) + 1;
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        file.take(self.left as u64 + 1).read_to_end(&mut bytes).map_err(text)?;
        if bytes.len() > self.left {
            (self.left, self.overrun) = (0, true);
            return Err(format!("all files together have more than {} KiB", FILES_BYTES_MAX >> 10));
        }
        self.left -= bytes.len();
        Ok(bytes)
    }
}

/// The certificates of a PEM file, at least one.
pub(crate) fn certificates(files: &mut Files, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = files.read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| error.to_string())?;
    if all.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(all) }
}

/// The private key of a file.
pub(crate) fn key(
    files: &mut Files,
    path: &Path,
    format: KeyFormat,
) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = files.read(path)?;
    let key = match format {
        KeyFormat::Pem => PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
            let is_encrypted = [&b"ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"];
            let found = |mark: &&[u8]| bytes.windows(mark.len()).any(|window| window == *mark);
            match is_encrypted.iter().any(found) {
                true => "the key is encrypted; decrypt it with `openssl pkey`".to_owned(),
                false => error.to_string(),
            }
        })?,
        KeyFormat::Der => return of_der(&bytes),
    };
    // The key's bytes decide its form, not its label: OpenSSL, too, takes a key with another label.
    of_der(key.secret_der())
}

fn of_der(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::try_from(bytes).map(|key| key.clone_key()).map_err(str::to_owned)
}

/// The provider with the cipher suites asked for.
pub(crate) fn provider(options: &Options) -> Result<CryptoProvider, LoadError> {
    let mut provider = default_provider();
    for (names, known, is_newer) in
        [(&options.suites, &SUITES[..], true), (&options.ciphers, &CIPHERS, false)]
    {
        if names.is_empty() {
            continue;
        }
        provider.cipher_suites.retain(|suite| suite.tls13().is_some() != is_newer);
        for name in names {
            let found = known.iter().find(|(known, _)| known == name);
            let (_, suite) = found.ok_or_else(|| LoadError::Cipher(name.clone()))?;
            provider.cipher_suites.push(*suite);
        }
    }
    Ok(provider)
}

/// The server's certificate with its key.
///
/// # Errors
/// The key is of no kind that the provider knows, or of another certificate.
pub(crate) fn pair(
    provider: &CryptoProvider,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, LoadError> {
    let key = provider.key_provider.load_private_key(key).map_err(|_| {
        let known = "the key is none of ECDSA (P-256, P-384), Ed25519, and RSA of 2048 bits and more";
        LoadError::Pair(known.to_owned())
    })?;
    let certified = CertifiedKey::new(chain, key);
    let other = || LoadError::Pair("the key is of another certificate".to_owned());
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => Err(other()),
        // rustls reads no certificate of version 1, as `openssl x509 -req` makes them without extensions. Clients of OpenSSL do.
        Err(rustls::Error::InvalidCertificate(why)) => {
            let of_leaf = certified.cert.first().and_then(|leaf| der::public_key(leaf));
            let of_key = certified.key.public_key();
            match (of_leaf, of_key) {
                (Some(of_leaf), Some(of_key)) if of_leaf == &of_key[..] => Ok(certified),
                (Some(_), Some(_)) => Err(other()),
                _ => Err(LoadError::Pair(format!("the certificate cannot be read: {why:?}"))),
            }
        }
        Err(error) => Err(LoadError::Pair(error.to_string())),
    }
}

/// The versions that the options allow.
pub(crate) fn versions(options: &Options) -> Vec<&'static SupportedProtocolVersion> {
    let all = [(Version::Tls13, &version::TLS13), (Version::Tls12, &version::TLS12)];
    let spoken =
        |&(version, _): &(Version, _)| version >= options.min_version && version <= options.max_version;
    all.into_iter().filter(spoken).map(|(_, version)| version).collect()
}

/// Makes the verifier of clients' certificates; `None` if the server asks for none. The authorities are read in any case, as
/// memcached does, so that a bad file is reported when it is named.
pub(crate) fn verifier(
    files: &mut Files,
    options: &Options,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, LoadError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &options.authorities {
        add(files, &mut roots, path).map_err(|why| LoadError::Authorities(path.clone(), why))?;
    }
    if let Some(folder) = &options.authorities_folder {
        add_folder(files, &mut roots, folder).map_err(|why| LoadError::Authorities(folder.clone(), why))?;
    }
    if options.clients == ClientAuth::None {
        return Ok(None);
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = match options.clients {
        ClientAuth::Optional => verifier.allow_unauthenticated(),
        ClientAuth::None | ClientAuth::Required => verifier,
    };
    let path =
        || options.authorities.clone().or_else(|| options.authorities_folder.clone()).unwrap_or_default();
    verifier.build().map(Some).map_err(|error| LoadError::Authorities(path(), error.to_string()))
}

pub(crate) fn add(files: &mut Files, roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    for certificate in certificates(files, path)? {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Adds the certificates of a folder's files. OpenSSL's folders have links by hash to each file: a file counts once.
fn add_folder(files: &mut Files, roots: &mut RootCertStore, folder: &Path) -> Result<(), String> {
    let names = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut seen = HashSet::new();
    let before = roots.len();
    for (nth, name) in names.enumerate() {
        if nth == FOLDER_FILES_MAX {
            return Err(format!("the folder has more than {FOLDER_FILES_MAX} files"));
        }
        let path = name.map_err(|error| error.to_string())?.path();
        let Ok(said) = fs::metadata(&path) else { continue };
        if !said.is_file() || !seen.insert((said.dev(), said.ino())) {
            continue;
        }
        match certificates(files, &path) {
            Ok(found) => _ = roots.add_parsable_certificates(found),
            Err(why) if files.overrun => return Err(why),
            Err(_) => {}
        }
    }
    if roots.len() == before { Err("there is no certificate in it".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;
    use crate::der::{SEQUENCE, skip, take};

    /// An element of DER.
    fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
        let length = u16::try_from(contents.len()).expect("it is short").to_be_bytes();
        [&[tag, 0x82], &length[..], contents].concat()
    }

    /// The certificate as of version 1: without its version, and without extensions. Its signature is not good any more.
    fn first_version(certificate: &[u8]) -> Vec<u8> {
        const VERSION: u8 = 0xa0;
        const EXTENSIONS: u8 = 0xa3;
        let (mut certificate, mut fields) = (certificate, Vec::new());
        let mut whole = take(&mut certificate, SEQUENCE).expect("a certificate");
        let mut body = take(&mut whole, SEQUENCE).expect("its body");
        while let Some(&tag) = body.first() {
            let before = body;
            skip(&mut body).expect("a field");
            if tag != VERSION && tag != EXTENSIONS {
                fields.extend(&before[..before.len() - body.len()]);
            }
        }
        element(SEQUENCE, &[&element(SEQUENCE, &fields)[..], whole].concat())
    }

    #[test]
    fn certificates_of_version_1_serve_with_their_key_alone() {
        let made = [(); 2]
            .map(|()| rcgen::generate_simple_self_signed(["larder.test".to_owned()]).expect("a certificate"));
        let provider = default_provider();
        let key = |nth: usize| {
            let key: &rcgen::KeyPair = &made[nth].signing_key;
            PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()))
        };
        let whole = made[0].cert.der().to_vec();
        let first = first_version(&whole);
        for certificate in [whole, first.clone()] {
            let chain = || vec![CertificateDer::from(certificate.clone())];
            assert!(pair(&provider, chain(), key(0)).is_ok());
            let other = pair(&provider, chain(), key(1)).err();
            assert_eq!(other, Some(LoadError::Pair("the key is of another certificate".to_owned())));
        }
        let key_of_first = provider.key_provider.load_private_key(key(0)).expect("a key");
        let refused = CertifiedKey::new(vec![CertificateDer::from(first)], key_of_first).keys_match();
        assert!(
            matches!(refused, Err(rustls::Error::InvalidCertificate(_))),
            "rustls reads it now: {refused:?}"
        );
        let junk = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(vec![1, 2, 3]));
        let why = pair(&provider, Vec::new(), junk).expect_err("no key").to_string();
        assert!(why.contains("none of ECDSA"), "{why}");
        let none = pair(&provider, vec![CertificateDer::from(vec![1, 2, 3])], key(0));
        assert!(none.is_err_and(|why| why.to_string().contains("cannot be read")));
    }
}
