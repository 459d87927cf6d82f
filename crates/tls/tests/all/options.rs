//! Options that can be put in force, and the errors of those that cannot.

use std::sync::Arc;

use larder_tls::{Acceptor, ClientAuth, KeyFormat, LoadError, Options, Version, cipher_names, suite_names};

use crate::pair::{Files, pair, shake_hands};

fn load(options: &Options) -> Result<Acceptor, LoadError> {
    Acceptor::load(options, &Arc::default())
}

/// Options with a certificate and its key, in these files.
fn good(files: &Files) -> Options {
    let made = rcgen::generate_simple_self_signed(["larder.test".to_owned()]).expect("a certificate");
    let chain = files.put("crt", made.cert.pem());
    let key = files.put("key", made.signing_key.serialize_pem());
    files.put("der", made.signing_key.serialize_der());
    Options { chain, key, ..Options::default() }
}

#[test]
fn files_that_cannot_be_used_are_told_in_memcacheds_words() {
    let (files, others) = (Files::new(), Files::new());
    let options = good(&files);
    load(&options).expect("as it is");
    let missing = files.folder().join("missing");
    let empty = files.put("empty", "");
    let large = files.put("large", vec![b'x'; (4 << 20) + 1]);
    let other = good(&others);
    let folder = Files::new();
    for (wrong, error) in [
        (Options { chain: missing.clone(), ..options.clone() }, "Error loading the certificate chain: "),
        (Options { chain: empty.clone(), ..options.clone() }, "Error loading the certificate chain: "),
        (Options { chain: large.clone(), ..options.clone() }, "Error loading the certificate chain: "),
        (Options { chain: options.key.clone(), ..options.clone() }, "Error loading the certificate chain: "),
        (Options { key: missing.clone(), ..options.clone() }, "Error loading the key: "),
        (Options { key: empty.clone(), ..options.clone() }, "Error loading the key: "),
        (Options { key_format: KeyFormat::Der, ..options.clone() }, "Error loading the key: "),
        (Options { key: other.key.clone(), ..options.clone() }, "Error validating the certificate: "),
        (
            Options { authorities: Some(missing.clone()), ..options.clone() },
            "Error loading the CA certificate: ",
        ),
        (
            Options { authorities: Some(empty.clone()), ..options.clone() },
            "Error loading the CA certificate: ",
        ),
        (
            Options { authorities_folder: Some(folder.folder()), ..options.clone() },
            "Error loading the CA certificate: ",
        ),
        (Options { clients: ClientAuth::Required, ..options.clone() }, "Error loading the CA certificate: "),
        (
            Options { ciphers: vec!["RC4-SHA".into()], ..options.clone() },
            "Error setting the provided cipher(s): ",
        ),
    ] {
        let told = load(&wrong).expect_err(error).to_string();
        assert!(told.starts_with(error) && !told.contains('\n'), "{told}");
    }
}

#[test]
fn a_key_may_be_der_and_an_encrypted_one_is_refused_by_name() {
    let files = Files::new();
    let options = good(&files);
    let der = Options { key: files.folder().join("der"), key_format: KeyFormat::Der, ..options.clone() };
    load(&der).expect("DER");
    let text = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let told =
        load(&Options { key: files.put("enc", text), ..options }).expect_err("no password").to_string();
    assert!(told.contains("encrypted"), "{told}");
}

#[test]
fn a_folder_of_authorities_is_read_past_what_is_no_certificate() {
    let (files, folder) = (Files::new(), Files::new());
    let options = good(&files);
    folder.put("ca.pem", std::fs::read(&options.chain).expect("it is there"));
    folder.put("README", "none here");
    let clients = ClientAuth::Required;
    load(&Options { authorities_folder: Some(folder.folder()), clients, ..options }).expect("one is enough");
}

#[test]
fn each_cipher_and_version_can_be_chosen_alone() {
    let kinds =
        [(cipher_names().collect::<Vec<_>>(), Version::Tls12), (suite_names().collect(), Version::Tls13)];
    for (names, version) in kinds {
        for name in names {
            let mut options = Options { min_version: version, max_version: version, ..Options::default() };
            match version {
                Version::Tls12 => options.ciphers = vec![name.into()],
                Version::Tls13 => options.suites = vec![name.into()],
            }
            if name.contains("-RSA-") {
                // The certificate's key is ECDSA: the handshake fails, the options do not.
                continue;
            }
            let pair = pair(options);
            let (mut stream, peer) = pair.accept();
            let mut client = pair.client();
            shake_hands(&mut client, &mut stream, &peer);
            let suite = client.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
            let spoken = suite
                .expect("it was agreed on")
                .replace("TLS13_", "")
                .replace("TLS_", "")
                .replace("_WITH", "");
            let wanted = name
                .replace("TLS_", "")
                .replace('-', "_")
                .replace("AES128", "AES_128")
                .replace("AES256", "AES_256");
            assert!(spoken.starts_with(&wanted), "{name}: {spoken}");
        }
    }
}
