//! Traces: recorded requests to a cache, one by one, in formats of other programs.
//!
//! | format | is |
//! |---|---|
//! | `twitter` | lines of Twitter's cache traces: time, key, bytes of the key, bytes of the value, client, operation, TTL |
//! | `oracle` | libCacheSim's oracleGeneral: records of 24 bytes, `u32` time, `u64` object, `u32` bytes, `i64` next access |
//! | `memcached` | the output of memcached's `watch fetchers mutations` or `watch rawcmds`, or of a server started with `-vv` |
//! | `monitor` | the output of Redis's MONITOR |
//!
//! A file is read as needed, a line at a time, so that only the requests under way are in memory. Lines of another format are
//! skipped and counted. A request that stores a whole value is a write, and so is one that changes a value in part (append, incr
//! …), whose new value a trace does not contain: these are counted, too.

mod memcached;
mod monitor;
mod times;
mod twitter;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::error::Error;
use crate::value;
pub use times::Times;

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Twitter's CSV.
    Twitter,
    /// libCacheSim's oracleGeneral.
    Oracle,
    /// memcached's watch, or -vv.
    Memcached,
    /// Redis's MONITOR.
    Monitor,
}

impl Format {
    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Format::Twitter => "twitter",
            Format::Oracle => "oracle",
            Format::Memcached => "memcached",
            Format::Monitor => "monitor",
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    /// recognised by the beginning of the file
    Auto,
    /// Twitter's CSV
    Twitter,
    /// libCacheSim's oracleGeneral, 24 bytes a request
    Oracle,
    /// memcached's watch, or -vv
    Memcached,
    /// Redis's MONITOR
    Monitor,
}

/// The trace to replay, and its format.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Options {
    /// Ask again what this trace has
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// How it is written [default: auto]
    #[arg(long, value_enum, value_name = "FORMAT", requires = "trace")]
    trace_format: Option<FormatName>,
}

impl Options {
    /// The named format; `None` if it has to be recognised.
    pub fn format(&self) -> Option<Format> {
        match self.trace_format? {
            FormatName::Auto => None,
            FormatName::Twitter => Some(Format::Twitter),
            FormatName::Oracle => Some(Format::Oracle),
            FormatName::Memcached => Some(Format::Memcached),
            FormatName::Monitor => Some(Format::Monitor),
        }
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a value.
    Read,
    /// Stores a value.
    Write,
    /// Deletes a key.
    Delete,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The time in µs; `None` if the trace has none.
    pub at_us: Option<u64>,
    /// The kind.
    pub kind: Kind,
    /// The key.
    pub key: Vec<u8>,
    /// Bytes of its value, if the trace has them.
    pub value_bytes: Option<u32>,
    /// Seconds that a written value lives; 0 for ever.
    pub ttl_s: u32,
    /// Whether it changed a value in part.
    pub partly: bool,
}

impl Op {
    fn new(at_us: Option<u64>, kind: Kind, key: &[u8]) -> Op {
        Op { at_us, kind, key: key.to_vec(), value_bytes: None, ttl_s: 0, partly: false }
    }
}

/// A number for a key; two keys have the same one by a chance of 2^-64.
pub fn hash(key: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let fnv = key.iter().fold(OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    value::seed(fnv, 0, key.len())
}

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// A line of requests, which were appended.
    Asks,
    /// A line of the format without requests for values.
    Other,
    /// A line of another format.
    Bad,
}

/// Counts of the lines of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Lines, or records.
    pub lines: u64,
    /// Requests in them.
    pub requests: u64,
    /// Those that changed a value in part.
    pub partly: u64,
    /// Lines of the format without requests for values: other commands, connections.
    pub others: u64,
    /// Lines of another format, and the first of them.
    pub bad: u64,
    /// Its number, from 1 on.
    pub first_bad: Option<u64>,
}

impl Seen {
    /// Remarks about the trace.
    pub fn remarks(&self, format: Format) -> Vec<String> {
        let Seen { lines, requests, partly, others, bad, first_bad } = *self;
        let what = if format == Format::Oracle { "record" } else { "line" };
        let mut remarks = vec![format!("trace ({}): {lines} {what}s, {requests} requests", format.name())];
        if let Some(first) = first_bad {
            remarks.push(format!(
                "left out: {bad} {what}s that are none of this format, the first is {what} {first}"
            ));
        }
        if others > 0 {
            remarks.push(format!("left out: {others} {what}s that ask for no value"));
        }
        if partly > 0 {
            remarks.push(format!(
                "{partly} requests that change a value in part (append, incr …) are sent as writes"
            ));
        }
        remarks
    }
}

/// A longer line is not of the format: a write of the largest value that servers accept, each byte escaped, is shorter.
const LINE_BYTES_MAX: usize = 8 << 20;
/// Bytes of a record of oracleGeneral.
const RECORD_BYTES: usize = 24;
/// Bytes by which a format is recognised.
const SAMPLE_BYTES: usize = 64 << 10;

/// A trace that is being read.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    format: Format,
    file: BufReader<File>,
    line: Vec<u8>,
    /// Requests of the line that was read last.
    pending: VecDeque<Op>,
    first_us: Option<u64>,
    latest_us: u64,
    seen: Seen,
}

impl Reader {
    /// Opens a trace. Unless a format is given, it is recognised by the beginning of the file.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read, is compressed, or has no known format.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Reader, Error> {
        let refuse = |why: String| Error::File(path.to_owned(), why);
        let mut file = File::open(path).map_err(|error| refuse(error.to_string()))?;
        let of = file.metadata().map_err(|error| refuse(error.to_string()))?;
        if !of.is_file() {
            return Err(refuse("a trace is a file: it is read twice".to_owned()));
        }
        let mut sample = Vec::new();
        let take = file.by_ref().take(SAMPLE_BYTES as u64).read_to_end(&mut sample);
        take.map_err(|error| refuse(error.to_string()))?;
        for (magic, unpack) in
            [(&b"\x28\xb5\x2f\xfd"[..], "zstd -d"), (b"\x1f\x8b", "gzip -d"), (b"\xfd7zXZ", "xz -d")]
        {
            if sample.starts_with(magic) {
                return Err(refuse(format!("it is packed: {unpack} unpacks it")));
            }
        }
        let format = match format.or_else(|| told(&sample, of.len())) {
            Some(format) => format,
            None => {
                return Err(refuse(
                    "of which format it is cannot be told: --trace-format says it".to_owned(),
                ));
            }
        };
        let file = File::open(path).map_err(|error| refuse(error.to_string()))?;
        Ok(Reader {
            path: path.to_owned(),
            format,
            file: BufReader::with_capacity(1 << 20, file),
            line: Vec::new(),
            pending: VecDeque::new(),
            first_us: None,
            latest_us: 0,
            seen: Seen::default(),
        })
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The counts so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// The next request, its time counted from the first one's on; times that go back are replaced by the one before.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be read.
    pub fn next_op(&mut self) -> Result<Option<Op>, Error> {
        loop {
            if let Some(mut op) = self.pending.pop_front() {
                self.seen.requests += 1;
                self.seen.partly += u64::from(op.partly);
                if let Some(at_us) = op.at_us {
                    let first = *self.first_us.get_or_insert(at_us);
                    self.latest_us = self.latest_us.max(at_us.saturating_sub(first));
                    op.at_us = Some(self.latest_us);
                }
                return Ok(Some(op));
            }
            let line = match self.format {
                Format::Oracle => self.record(),
                Format::Twitter | Format::Memcached | Format::Monitor => self.text(),
            };
            let Some(line) = line.map_err(|error| Error::File(self.path.clone(), error.to_string()))? else {
                return Ok(None);
            };
            self.seen.lines += 1;
            match line {
                Line::Asks => {}
                Line::Other => self.seen.others += 1,
                Line::Bad => {
                    self.seen.bad += 1;
                    self.seen.first_bad.get_or_insert(self.seen.lines);
                }
            }
        }
    }

    /// The next line.
    fn text(&mut self) -> std::io::Result<Option<Line>> {
        self.line.clear();
        let mut whole = true;
        loop {
            let bytes = match self.file.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if bytes.is_empty() && self.line.is_empty() && whole {
                return Ok(None);
            }
            let end = memchr::memchr(b'\n', bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            whole &= self.line.len() + part.len() <= LINE_BYTES_MAX;
            if whole {
                self.line.extend_from_slice(part);
            } else {
                self.line.clear();
            }
            let (used, last) = (part.len() + usize::from(end.is_some()), end.is_some() || bytes.is_empty());
            self.file.consume(used);
            if last {
                break;
            }
        }
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        Ok(Some(if whole { parse(self.format, line, &mut self.pending) } else { Line::Bad }))
    }

    /// The next record.
    fn record(&mut self) -> std::io::Result<Option<Line>> {
        let (mut record, mut have) = ([0; RECORD_BYTES], 0);
        while have < RECORD_BYTES {
            match self.file.read(&mut record[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                // The last record was cut.
                Ok(0) => return Ok(Some(Line::Bad)),
                Ok(more) => have += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let time = u32::from_le_bytes(record[..4].try_into().expect("4 bytes"));
        let object = u64::from_le_bytes(record[4..12].try_into().expect("8 bytes"));
        let bytes = u32::from_le_bytes(record[12..16].try_into().expect("4 bytes"));
        let mut op = Op::new(Some(u64::from(time) * 1_000_000), Kind::Read, object.to_string().as_bytes());
        op.value_bytes = Some(bytes);
        self.pending.push_back(op);
        Ok(Some(Line::Asks))
    }
}

/// Reads a line of a text.
fn parse(format: Format, line: &[u8], ops: &mut VecDeque<Op>) -> Line {
    match format {
        Format::Twitter => twitter::parse(line, ops),
        Format::Memcached => memcached::parse(line, ops),
        Format::Monitor => monitor::parse(line, ops),
        Format::Oracle => unreachable!("it has no lines"),
    }
}

/// The format of a file that begins with `sample` and has this many bytes.
fn told(sample: &[u8], bytes: u64) -> Option<Format> {
    let texts = [Format::Monitor, Format::Memcached, Format::Twitter];
    for line in sample.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let asks = |format: &&Format| parse(**format, line, &mut VecDeque::new()) == Line::Asks;
        if let Some(&format) = texts.iter().find(asks) {
            return Some(format);
        }
    }
    let records = bytes > 0 && bytes.is_multiple_of(RECORD_BYTES as u64) && sample.contains(&0);
    records.then_some(Format::Oracle)
}

/// A number in decimal digits, and nothing else.
fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// Seconds and µs of a time like `1339518083.107412`; a fraction has as many digits as it has.
fn seconds_us(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let seconds: u64 = number(parts.next()?)?;
    let us: u64 = match parts.next() {
        None => 0,
        Some(fraction) => {
            let digits = &fraction[..fraction.len().min(6)];
            number::<u64>(digits)? * 10_u64.pow(6 - digits.len() as u32)
        }
    };
    seconds.checked_mul(1_000_000)?.checked_add(us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("larder-trace-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn all(path: &Path, format: Option<Format>) -> (Vec<Op>, Seen, Format) {
        let mut reader = Reader::open(path, format).unwrap();
        let mut ops = Vec::new();
        while let Some(op) = reader.next_op().unwrap() {
            ops.push(op);
        }
        (ops, reader.seen(), reader.format())
    }

    fn record(time: u32, object: u64, bytes: u32) -> Vec<u8> {
        [&time.to_le_bytes()[..], &object.to_le_bytes(), &bytes.to_le_bytes(), &(-1_i64).to_le_bytes()]
            .concat()
    }

    #[test]
    fn a_format_is_told_from_what_a_file_begins_with() {
        let records = [record(5, 77, 100), record(6, 78, 200)].concat();
        for (name, bytes, format) in [
            ("t", &b"0,k:1,3,12,7,get,0\n1,k:2,3,9,7,set,60\n"[..], Format::Twitter),
            ("o", &records[..], Format::Oracle),
            (
                "v",
                b"slab class   1: chunk size 96\n<28 new auto-negotiating client connection\n<28 get foo\n",
                Format::Memcached,
            ),
            (
                "w",
                b"OK\r\nts=1.5 gid=1 type=item_get key=k status=found clsid=1 cfd=2 size=3\r\n",
                Format::Memcached,
            ),
            ("m", b"OK\n1339518083.107412 [0 127.0.0.1:60866] \"get\" \"k\"\n", Format::Monitor),
        ] {
            let path = file(name, bytes);
            let (ops, seen, found) = all(&path, None);
            assert_eq!((found, seen.bad, ops.len() as u64), (format, 0, seen.requests));
            assert!(!ops.is_empty());
            std::fs::remove_file(path).unwrap();
        }
        for (bytes, why) in [
            (&b"\x28\xb5\x2f\xfd1234"[..], "zstd -d unpacks it"),
            (b"what is this\n", "--trace-format says it"),
            (b"", "--trace-format says it"),
        ] {
            let path = file("none", bytes);
            let error = Reader::open(&path, None).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            std::fs::remove_file(path).unwrap();
        }
        assert!(
            Reader::open(Path::new("/dev/null"), None).unwrap_err().to_string().contains("a trace is a file")
        );
    }

    #[test]
    fn bad_lines_are_counted_and_the_first_is_told() {
        let long = [&b"3,"[..], &vec![b'k'; LINE_BYTES_MAX][..], b",3,1,7,get,0\n"].concat();
        let text =
            [&b"5,a,1,10,7,get,0\n5,a\n\n"[..], &long[..], b"4,b,1,10,7,get,0\n9,c,1,1,7,get,0"].concat();
        let path = file("bad", &text);
        let (ops, seen, _) = all(&path, Some(Format::Twitter));
        std::fs::remove_file(path).unwrap();
        let times: Vec<_> = ops.iter().map(|op| op.at_us.unwrap()).collect();
        assert_eq!(times, [0, 0, 4_000_000], "a time that goes back is the last one's");
        assert_eq!((seen.lines, seen.requests, seen.bad, seen.first_bad), (6, 3, 3, Some(2)));
    }

    #[test]
    fn records_are_read_and_one_that_is_cut_is_bad() {
        let bytes = [record(100, 7, 50), record(102, u64::MAX, 60), vec![1; 10]].concat();
        let path = file("records", &bytes);
        let (ops, seen, _) = all(&path, Some(Format::Oracle));
        std::fs::remove_file(path).unwrap();
        assert_eq!((ops[0].key.as_slice(), ops[0].value_bytes, ops[0].at_us), (&b"7"[..], Some(50), Some(0)));
        assert_eq!((ops[1].key.as_slice(), ops[1].at_us), (&b"18446744073709551615"[..], Some(2_000_000)));
        assert_eq!((seen.requests, seen.bad, seen.first_bad), (2, 1, Some(3)));
    }

    #[test]
    fn times_have_as_many_digits_as_they_have() {
        for (text, us) in [("1.5", Some(1_500_000)), ("7", Some(7_000_000)), ("1.1234567", Some(1_123_456))] {
            assert_eq!(seconds_us(text.as_bytes()), us, "{text}");
        }
        for bad in ["", "a", "1.", "1.x", "-1", "99999999999999999999"] {
            assert_eq!(seconds_us(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_panic(line in proptest::collection::vec(any::<u8>(), 0..120)) {
            for format in [Format::Twitter, Format::Memcached, Format::Monitor] {
                let mut ops = VecDeque::new();
                prop_assert_eq!(parse(format, &line, &mut ops) == Line::Asks, !ops.is_empty());
            }
        }

        #[test]
        fn lines_with_a_flaw_are_read_without_a_panic(
            start in prop::sample::select(vec![
                "1339518083.107412 [0 127.0.0.1:60866] \"set\" \"k\\x00\" \"v\" \"ex\" \"5\"",
                "ts=1.5 gid=1 type=item_store key=k%20l status=stored cmd=set ttl=5 clsid=1 cfd=2 size=3",
                "<28 set k 0 60 5",
                "0,k:1,3,12,7,get,0",
            ]),
            at in 0_usize..90,
            byte in any::<u8>(),
        ) {
            let mut line = start.as_bytes().to_vec();
            let at = at % line.len();
            line[at] = byte;
            for format in [Format::Twitter, Format::Memcached, Format::Monitor] {
                let mut ops = VecDeque::new();
                prop_assert_eq!(parse(format, &line, &mut ops) == Line::Asks, !ops.is_empty());
            }
        }
    }
}
