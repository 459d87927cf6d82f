//! Options that load, and the errors of options that do not.

use std::sync::Arc;

use larder_tls::{
    Acceptor, ClientAuth, FILES_BYTES_MAX, FOLDER_FILES_MAX, KeyFormat, LoadError, Options, Version,
    cipher_names, suite_names,
};

use crate::pair::{TestFiles, pair, shake_hands};

fn load(options: &Options) -> Result<Acceptor, LoadError> {
    Acceptor::load(options, &Arc::default(), &mut larder_tls::Files::default())
}

/// Options with a new certificate and its key, whose files it writes.
fn good(files: &TestFiles) -> Options {
    let made = rcgen::generate_simple_self_signed(["larder.test".to_owned()]).expect("a certificate");
    let chain = files.put("crt", made.cert.pem());
    let key = files.put("key", made.signing_key.serialize_pem());
    files.put("der", made.signing_key.serialize_der());
    Options { chain, key, ..Options::default() }
}

#[test]
fn files_that_cannot_be_used_are_told_in_memcacheds_words() {
    let (files, others) = (TestFiles::new(), TestFiles::new());
    let options = good(&files);
    load(&options).expect("as it is");
    let missing = files.folder().join("missing");
    let empty = files.put("empty", "");
    let large = files.put("large", vec![b'x'; FILES_BYTES_MAX + 1]);
    let other = good(&others);
    let folder = TestFiles::new();
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
fn what_is_no_file_is_refused_at_once_and_nothing_is_believed_of_lengths() {
    let files = TestFiles::new();
    let options = good(&files);
    let pipe = files.folder().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let socket = files.folder().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a new socket");
    // Special files, some of which report a length of 0 and still deliver bytes.
    for path in
        [pipe, socket, "/dev/zero".into(), "/dev/tty".into(), files.folder(), "/proc/self/maps".into()]
    {
        for wrong in [
            Options { chain: path.clone(), ..options.clone() },
            Options { key: path.clone(), ..options.clone() },
            Options { authorities: Some(path.clone()), ..options.clone() },
        ] {
            load(&wrong).expect_err("it is no certificate, and no key");
        }
    }
    // A folder of authorities is read without such files.
    let folder = files.folder();
    load(&Options { authorities_folder: Some(folder), ..options })
        .expect("there is a certificate among them");
}

#[test]
fn all_files_of_a_load_have_room_for_so_many_bytes_together() {
    let (files, folder) = (TestFiles::new(), TestFiles::new());
    let options = good(&files);
    let bytes = |path: &std::path::Path| std::fs::metadata(path).expect("it is there").len() as usize;
    let left = FILES_BYTES_MAX - bytes(&options.chain) - bytes(&options.key);
    let text = std::fs::read(&options.chain).expect("it is there");
    for (more, fits) in [(left - 1, true), (left, true), (left + 1, false)] {
        let mut padded = text.clone();
        padded.resize(more, b'\n');
        let authorities = Some(files.put("ca", &padded));
        let told = load(&Options { authorities, ..options.clone() });
        assert_eq!(told.is_ok(), fits, "{more}: {told:?}");
        // The same in a folder: files without a certificate are ignored, but their bytes count towards the
        // limit.
        let (half, rest) = padded.split_at(more / 2);
        folder.put("0", half);
        folder.put("1", rest);
        let authorities_folder = Some(folder.folder());
        let told = load(&Options { authorities_folder, ..options.clone() });
        assert_eq!(told.is_ok(), fits, "{more} in two: {told:?}");
    }
}

#[test]
fn a_folder_has_so_many_files_and_each_counts_once() {
    let (files, folder) = (TestFiles::new(), TestFiles::new());
    let options = good(&files);
    let first = folder.put("first", std::fs::read(&options.chain).expect("it is there"));
    for nth in 1..FOLDER_FILES_MAX {
        std::os::unix::fs::symlink(&first, folder.folder().join(nth.to_string())).expect("a new link");
    }
    let options = Options { authorities_folder: Some(folder.folder()), ..options };
    load(&options).expect("as many as may be");
    folder.put("one more", "");
    let told = load(&options).expect_err("one too many").to_string();
    assert!(told.contains("more than"), "{told}");
}

#[test]
fn a_key_may_be_der_and_an_encrypted_one_is_refused_by_name() {
    let files = TestFiles::new();
    let options = good(&files);
    let der = Options { key: files.folder().join("der"), key_format: KeyFormat::Der, ..options.clone() };
    load(&der).expect("DER");
    let text = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let told =
        load(&Options { key: files.put("enc", text), ..options }).expect_err("no password").to_string();
    assert!(told.contains("encrypted"), "{told}");
}

/// OpenSSL does the same. The TLS test of gomemcache has such a key.
#[test]
fn a_key_whose_label_says_another_form_is_read() {
    let files = TestFiles::new();
    let options = good(&files);
    let key = std::fs::read_to_string(&options.key).expect("it is there");
    for label in ["RSA PRIVATE KEY", "EC PRIVATE KEY"] {
        assert!(key.contains("-----BEGIN PRIVATE KEY-----"));
        let key = files.put(label, key.replace("PRIVATE KEY", label));
        load(&Options { key, ..options.clone() }).expect(label);
    }
}

#[test]
fn a_folder_of_authorities_is_read_past_what_is_no_certificate() {
    let (files, folder) = (TestFiles::new(), TestFiles::new());
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
                // The certificate's key is ECDSA: the options load, and the handshake fails.
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
