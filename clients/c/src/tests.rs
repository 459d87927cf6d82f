//! The header, the version script and the code agree.

use crate::shapes;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io::Write as _};

const HEADER: &str = include_str!("../include/larder.h");

/// Runs the C compiler on a text; fails with its output.
fn compile(arguments: &[&str], text: &str) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut compiler = Command::new("cc");
    compiler.arg("-I").arg(include).args(arguments).stdin(Stdio::piped());
    let mut compiler = compiler.spawn().expect("a C compiler, which Rust needs too");
    compiler.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    assert!(compiler.wait().expect("it ends").success(), "{arguments:?}");
}

#[test]
fn structs_have_the_header_s_fields_where_the_header_has_them() {
    let mut asked = String::from("#include <larder.h>\n#include <stdio.h>\nint main(void) {\n");
    let mut known = String::new();
    macro_rules! layout {
        ($($c:ident $rust:ident { $($field:ident)* })*) => { $(
            writeln!(asked, "printf(\"{0} %zu\\n\", sizeof({0}));", stringify!($c)).expect("text");
            writeln!(known, "{} {}", stringify!($c), size_of::<shapes::$rust>()).expect("text");
            // If a field is not listed, this does not compile.
            let _ = |shape: shapes::$rust| { let shapes::$rust { $($field: _),* } = shape; };
            $(
                writeln!(asked, "printf(\"{0}.{1} %zu %zu\\n\", offsetof({0}, {1}), sizeof((({0} *) 0)->{1}));",
                    stringify!($c), stringify!($field)).expect("text");
                writeln!(known, "{}.{} {} {}", stringify!($c), stringify!($field),
                    offset_of!(shapes::$rust, $field), {
                        fn size<S, F>(_: fn(&S) -> &F) -> usize { size_of::<F>() }
                        size(|shape: &shapes::$rust| &shape.$field)
                    }).expect("text");
            )*
        )* };
    }
    layout! {
        larder_bytes Bytes { data len }
        larder_error Error { size status outcome os_error server message }
        larder_config Config {
            size options servers servers_count names weights preset user password key_prefix protocol timeout_ms
            dial_timeout_ms stall_timeout_ms in_flight large_bytes ca_file cert_file key_file server_name
            lanes reserved
        }
        larder_counters Counters { size servers requests writes reads overdue dials unreported }
        larder_read Read { size want touch_ms }
        larder_meta Meta { size flags cas ttl_ms bytes last_access_ms marks reserved }
        larder_store Store { size mode flags options ttl_ms cas }
        larder_remove Remove { size options cas keep_stale_ms }
        larder_count Count { size options initial ttl_ms touch_ms cas }
        larder_lease Lease { size state cas ttl_ms vivify_ms refresh_ms }
        larder_request Request { size verb key value delta ttl_ms read store remove count }
        larder_report Report { size told sent stored refused unknown }
        larder_reply Reply { size status outcome reserved value counted meta error }
    }
    for (name, number) in [
        ("LARDER_BAD_KEY", shapes::Status::BAD_KEY.0),
        ("LARDER_UNSUPPORTED", shapes::Status::UNSUPPORTED.0),
        ("LARDER_PROTOCOL", shapes::Status::PROTOCOL.0),
        ("LARDER_WOULD_BLOCK", shapes::Status::WOULD_BLOCK.0),
        ("LARDER_BUG", shapes::Status::BUG.0),
        ("LARDER_BINARY_KEYS", shapes::BINARY_KEYS),
        ("LARDER_TLS", shapes::TLS),
        ("LARDER_TELL_CAS", shapes::TELL_CAS),
        ("LARDER_KEEP_EMPTY", shapes::KEEP_EMPTY),
        ("LARDER_CREATE", shapes::CREATE),
        ("LARDER_PENDING", shapes::PENDING),
        ("LARDER_VERB_DECR", shapes::VERB_DECR),
        ("LARDER_PIPE_WRITE", shapes::PIPE_WRITE),
    ] {
        writeln!(asked, "printf(\"{name} %u\\n\", (unsigned) {name});").expect("text");
        writeln!(known, "{name} {number}").expect("text");
    }
    asked.push_str("return 0;\n}\n");
    let program = std::env::temp_dir().join(format!("larder-layout-{}", std::process::id()));
    let path = program.to_str().expect("text");
    compile(&["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", path, "-xc", "-"], &asked);
    let output = Command::new(&program).output().expect("it runs").stdout;
    fs::remove_file(&program).expect("it was there");
    assert_eq!(String::from_utf8(output).expect("text"), known);
}

/// Words followed by a parenthesis that look like functions of the library.
fn functions(text: &str) -> BTreeSet<&str> {
    let words = text.match_indices('(').filter_map(|(at, _)| {
        let begins = text[..at].rfind(|letter: char| !letter.is_alphanumeric() && letter != '_')? + 1;
        text[begins..at].starts_with("larder_").then_some(&text[begins..at])
    });
    words.collect()
}

#[test]
fn what_the_header_declares_is_exported_and_nothing_else() {
    // A declaration begins its line. The header's own functions are static, and names in comments are indented.
    let mut declared = BTreeSet::new();
    for line in HEADER.lines() {
        let begins = |word: &str| line.starts_with(word);
        if !begins("larder_")
            && !begins("void ")
            && !begins("size_t ")
            && !begins("const char ")
            && !begins("int ")
            && !begins("uint32_t ")
        {
            continue;
        }
        declared.extend(functions(line).into_iter().next());
    }
    let files = [
        include_str!("abi/client.rs"),
        include_str!("abi/verbs.rs"),
        include_str!("abi/batch.rs"),
        include_str!("abi/stream.rs"),
        include_str!("abi/pipe.rs"),
    ];
    let exported: BTreeSet<&str> = files
        .iter()
        .flat_map(|code| code.split("#[unsafe(no_mangle)]").skip(1))
        .filter_map(|rest| functions(&rest[..rest.find('{').unwrap_or(rest.len())]).into_iter().next())
        .collect();
    assert_eq!(declared, exported);
    let script = include_str!("../larder.map");
    let listed: BTreeSet<&str> = script
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("larder_"))
        .collect();
    assert_eq!(declared, listed);
    assert!(declared.len() > 30, "{}", declared.len());
}
