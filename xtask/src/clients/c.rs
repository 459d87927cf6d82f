//! The C client: built and installed as its users do it, then tested in C, plainly and under memory checkers.

use super::server::{Server, larder};
use crate::install::debian;
use crate::programs::steady;
use crate::run::{Outcome, all_of, capture, command, root, run, target};
use std::fs;
use std::path::{Path, PathBuf};

/// Programs that build and test it.
const TOOLS: &[(&str, &str)] = &[
    ("make", "make"),
    ("cc", "gcc"),
    ("c++", "g++"),
    ("nm", "binutils"),
    ("pkg-config", "pkg-config"),
    ("openssl", "openssl"),
    ("valgrind", "valgrind"),
    ("/usr/include/stdio.h", "libc6-dev"),
];

/// The largest size of the stripped shared library, of which rustls and its arithmetic are the larger part.
const LIBRARY_BYTES_MAX: u64 = 3 << 20;

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
const ASAN: &[&str] = &["-fsanitize=address,undefined", "-fno-omit-frame-pointer"];
const VALGRIND: &[&str] = &["valgrind", "--quiet", "--error-exitcode=9", "--errors-for-leak-kinds=definite"];
const LEAKS: &str = "--leak-check=full";
/// Valgrind does not know the instructions that encrypt, and takes what they write for uninitialised.
const SEALED: &str = "--undef-value-errors=no";

/// Builds the library, installs it below the target directory, and tests it.
pub fn c() -> Outcome {
    debian(TOOLS)?;
    let kit = Kit::install()?;
    all_of([kit.header(), kit.library(), kit.tests(), steady("the documents", || kit.documents())])
}

/// An installed library, and the folder where programs that use it are built.
struct Kit {
    prefix: PathBuf,
}

impl Kit {
    fn install() -> Outcome<Kit> {
        let prefix = root().join(target()).join("c");
        let _ = fs::remove_dir_all(&prefix);
        let mut make = command("make", &["--directory=clients/c", "--no-print-directory", "install"]);
        make.arg(format!("prefix={}", prefix.display()));
        make.env("CARGO_TARGET_DIR", root().join(target()));
        run(make)?;
        Ok(Kit { prefix })
    }

    /// Checks that the header is C11 and C++17.
    fn header(&self) -> Outcome {
        let header = self.prefix.join("include/larder.h");
        for (compiler, language) in [("cc", ["-std=c11", "-xc"]), ("c++", ["-std=c++17", "-xc++"])] {
            let mut compiler = command(compiler, &WARNINGS);
            compiler.args(language).arg("-fsyntax-only").arg(&header);
            run(compiler)?;
        }
        Ok(())
    }

    /// Checks that the shared library has the symbols that are listed and no others, needs the C library alone, and is small.
    fn library(&self) -> Outcome {
        let library = self.prefix.join("lib/liblarder-client.so");
        let path = library.to_string_lossy();
        let (works, symbols) = capture(command("nm", &["--dynamic", "--defined-only", &path]))?;
        let mut exported: Vec<&str> = symbols
            .lines()
            .filter_map(|line| line.split(" T ").nth(1))
            .filter_map(|symbol| symbol.strip_suffix("@@LARDER_0"))
            .collect();
        let script = root().join("clients/c/larder.map");
        let script = fs::read_to_string(&script).map_err(|error| format!("larder.map: {error}"))?;
        let mut listed: Vec<&str> = script
            .lines()
            .filter_map(|line| line.trim().strip_suffix(';'))
            .filter(|name| name.starts_with("larder_"))
            .collect();
        exported.sort_unstable();
        listed.sort_unstable();
        // The version itself is a symbol.
        if !works || exported != listed || symbols.lines().count() != listed.len() + 1 {
            return Err(format!("{path} does not export what larder.map lists: {symbols}"));
        }
        let (_, needed) = capture(command("readelf", &["--dynamic", &path]))?;
        let strange = |line: &&str| {
            line.contains("(NEEDED)")
                && !["[libc.so", "[ld-linux", "[ld64"].iter().any(|known| line.contains(known))
        };
        if let Some(line) = needed.lines().find(strange) {
            return Err(format!("{path} needs more than the C library: {line}"));
        }
        let bytes = fs::metadata(&library).map_err(|error| format!("{path}: {error}"))?.len();
        if bytes > LIBRARY_BYTES_MAX {
            return Err(format!("{path} has {bytes} bytes"));
        }
        println!("{path}: {} symbols, {bytes} bytes", listed.len());
        Ok(())
    }

    /// Runs the tests, plainly, under AddressSanitizer, and in valgrind.
    fn tests(&self) -> Outcome {
        let (spec, vectors) = (root().join("spec/client"), root().join("clients/vectors.txt"));
        let (spec, vectors) = (spec.to_string_lossy(), vectors.to_string_lossy());
        let certificates = self.certificates()?;
        let program = |name: &str, suffix: &str, flags: &[&str]| {
            let source = root().join("clients/c/tests").join(name).with_extension("c");
            self.compile(&source, &format!("{name}{suffix}"), flags)
        };
        let with_leaks = [VALGRIND, &[LEAKS]].concat();
        let of_sealed = [VALGRIND, &[LEAKS, SEALED]].concat();
        let mut checks = Vec::new();
        // A child process loses what its parent owned: leaks are not checked there. AddressSanitizer's allocator cannot fork
        // beside other threads.
        for (name, arguments, in_valgrind, valgrind, under_asan) in [
            ("spec", &[&*spec][..], &["brief"][..], &with_leaks[..], &["untimed"][..]),
            ("calls", &[], &[], &with_leaks, &[]),
            ("place", &[&*vectors], &[], &with_leaks, &[]),
            ("pipe", &[], &["unforked"], &with_leaks, &["unforked"]),
            ("life", &[], &["brief"], VALGRIND, &["unforked"]),
            ("tls", &[&*certificates], &["unforked"], &of_sealed, &["unforked"]),
        ] {
            let plain = program(name, "", &[]).and_then(|plain| {
                all_of([
                    self.check(&[&plain], arguments),
                    self.check(&[valgrind, &[&plain]].concat(), &[arguments, in_valgrind].concat()),
                ])
            });
            let asan = program(name, "-asan", ASAN);
            let asan = asan.and_then(|asan| self.check(&[&asan], &[arguments, under_asan].concat()));
            checks.extend([plain, asan]);
        }
        // The test of calls is also linked with the static library.
        let archive = self.prefix.join("lib/liblarder-client.a");
        let objects = [&*archive.to_string_lossy(), "-lpthread", "-ldl", "-lm"];
        let source = root().join("clients/c/tests/calls.c");
        let linked = self.build(&source, "calls-static", &objects);
        checks.push(linked.and_then(|linked| self.check(&[&linked], &[])));
        all_of(checks)
    }

    /// Makes the certificates and keys of the test of TLS, and returns their folder. The certificates are not authorities', as
    /// openssl's are by default: clients refuse a server that shows an authority's certificate as its own.
    fn certificates(&self) -> Outcome<String> {
        let folder = self.prefix.join("certificates");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let config = folder.join("openssl.cnf");
        let text = "[req]\nprompt=no\ndistinguished_name=dn\nx509_extensions=v3\n[dn]\nCN=larder\n[v3]\n\
            basicConstraints=critical,CA:FALSE\nsubjectAltName=IP:127.0.0.1,DNS:cache.internal\n";
        fs::write(&config, text).map_err(|error| format!("openssl.cnf: {error}"))?;
        for name in ["server", "client"] {
            let mut make = command("openssl", &["req", "-x509", "-nodes", "-days", "30", "-newkey", "ec"]);
            make.args(["-pkeyopt", "ec_paramgen_curve:P-256", "-config"]).arg(&config);
            make.arg("-keyout").arg(folder.join(format!("{name}.key")));
            make.arg("-out").arg(folder.join(format!("{name}.crt")));
            run(make)?;
        }
        Ok(folder.to_string_lossy().into_owned())
    }

    /// Compiles a program with the flags of pkg-config.
    fn compile(&self, source: &Path, name: &str, flags: &[&str]) -> Outcome<String> {
        let mut question = command("pkg-config", &["--cflags", "--libs", "larder-client"]);
        question.env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        let (works, words) = capture(question)?;
        if !works {
            return Err(format!("pkg-config: {words}"));
        }
        let found = format!("-Wl,-rpath,{}", self.prefix.join("lib").display());
        let words: Vec<&str> = words.split_whitespace().chain([&*found, "-lpthread"]).collect();
        self.build(source, name, &[flags, &words].concat())
    }

    fn build(&self, source: &Path, name: &str, flags: &[&str]) -> Outcome<String> {
        let program = self.prefix.join(name);
        let mut compiler = command("cc", &["-std=c11", "-g", "-O1"]);
        compiler.args(WARNINGS).arg("-I").arg(self.prefix.join("include"));
        compiler.arg("-o").arg(&program).arg(source).args(flags);
        run(compiler)?;
        Ok(program.to_string_lossy().into_owned())
    }

    fn check(&self, words: &[&str], arguments: &[&str]) -> Outcome {
        let (program, rest) = words.split_first().expect("a program at least");
        steady(&words.join(" "), || {
            let mut check = command(program, rest);
            check.args(arguments).env("LARDER_SERVER", larder());
            run(check)
        })
    }

    /// Checks that programs in C of the documents work as they are, except for the server's address.
    fn documents(&self) -> Outcome {
        let server = Server::start()?;
        let mut programs = 0;
        for document in ["README.md", "docs/clients.md"] {
            let text =
                fs::read_to_string(root().join(document)).map_err(|error| format!("{document}: {error}"))?;
            for block in text.split("```c\n").skip(1) {
                let program = block.split("```").next().unwrap_or_default();
                let told = program.split("// Output: ").nth(1).and_then(|rest| rest.lines().next());
                let Some(wanted) = told else {
                    return Err(format!("{document}: a program says nothing about its output:\n{program}"));
                };
                let source = self.prefix.join("document.c");
                let program = program.replace("127.0.0.1:11211", &server.address);
                fs::write(&source, &program).map_err(|error| format!("document.c: {error}"))?;
                let built = self.compile(&source, "document", &[])?;
                let (works, output) = capture(command(&built, &[]))?;
                if !works || output.trim() != wanted {
                    return Err(format!("{document}: a program says {output}, not {wanted}:\n{program}"));
                }
                programs += 1;
            }
        }
        if programs < 3 { Err(format!("the documents have {programs} programs in C")) } else { Ok(()) }
    }
}
