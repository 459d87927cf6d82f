//! The cases as they are in the files of `spec/client`.

use std::collections::HashMap;
use std::path::Path;

#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub with: HashMap<String, String>,
    pub calls: Vec<Call>,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub verb: String,
    pub fields: HashMap<String, String>,
    pub acts: Vec<Act>,
    pub want: String,
}

#[derive(Clone, Debug)]
pub enum Act {
    Expect(String),
    Answer(Vec<u8>),
    Close,
    Dial,
}

/// Replaces the escapes `\r \n \\ \x20 \{N:c}` in a text; the last stands for N times `c`.
pub fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, more)) = rest.split_first() {
        rest = more;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (&kind, more) = rest.split_first().expect("an escape");
        rest = more;
        match kind {
            b'r' => out.push(b'\r'),
            b'n' => out.push(b'\n'),
            b'\\' => out.push(b'\\'),
            b'x' => {
                let digits = std::str::from_utf8(&rest[..2]).expect("two digits");
                out.push(u8::from_str_radix(digits, 16).expect("two digits"));
                rest = &rest[2..];
            }
            b'{' => {
                let end = rest.iter().position(|&byte| byte == b'}').expect("an end");
                let inner = std::str::from_utf8(&rest[..end]).expect("text");
                let (times, what) = inner.split_once(':').expect("N:c");
                out.extend(unescaped(what).repeat(times.parse().expect("a number")));
                rest = &rest[end + 1..];
            }
            _ => panic!("{text}"),
        }
    }
    out
}

fn fields(text: &str) -> HashMap<String, String> {
    let pair = |word: &str| match word.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (word.to_owned(), String::new()),
    };
    text.split_whitespace().map(pair).collect()
}

pub fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/client");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("spec/client").map(|entry| entry.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(files.len() > 5);
    let mut cases: Vec<Case> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a file of cases");
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let rest = rest.trim();
            if word == "==" {
                let file = file.file_stem().expect("a name").to_string_lossy();
                cases.push(Case { name: format!("{file}: {rest}"), with: HashMap::new(), calls: Vec::new() });
                continue;
            }
            let Some(case) = cases.last_mut() else { continue };
            let act = match word {
                "" | "#" => continue,
                "with" => {
                    case.with = fields(rest);
                    continue;
                }
                "call" => {
                    let (verb, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                    let (verb, fields) = (verb.to_owned(), fields(rest));
                    case.calls.push(Call { verb, fields, acts: Vec::new(), want: String::new() });
                    continue;
                }
                "=" => {
                    case.calls.last_mut().expect("a call").want = rest.to_owned();
                    continue;
                }
                ">" => Act::Expect(rest.to_owned()),
                "<" => Act::Answer(unescaped(rest)),
                "close" => Act::Close,
                "dial" => Act::Dial,
                _ => panic!("{line}"),
            };
            case.calls.last_mut().expect("a call").acts.push(act);
        }
    }
    cases
}
