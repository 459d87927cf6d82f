//! Payloads of collections for `RESTORE`, in all forms in which Redis has stored them, written by the
//! formats' descriptions.

use super::payload::checksum;

/// A form of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Entry by entry; scores are doubles.
    Plain,
    /// Entry by entry; scores are text.
    OldPlain,
    /// One string, of Redis before 7.0.
    Ziplist,
    /// One string, of Redis from 7.0 on.
    Listpack,
    /// One string of numbers.
    Intset,
    /// One string, of Redis before 2.6.
    Zipmap,
    /// A list of ziplists.
    Quicklist,
    /// A list of listpacks, and of long elements by themselves.
    Quicklist2,
    /// Entry by entry, and every second field expires: Redis from 7.4 on.
    Timed,
    /// As [`Form::Timed`], in one string.
    TimedListpack,
    /// As [`Form::TimedListpack`], as Valkey from 9.0 on.
    TimedBehind,
}

/// When the first field expires.
pub const FIRST_TIME: u64 = 4_000_000_000_000;

/// When the field with this index expires; 0: never.
pub fn time(place: usize) -> u64 {
    if place.is_multiple_of(2) { 0 } else { FIRST_TIME + place as u64 - 1 }
}

/// The contents of a collection: strings; of a hash fields and values in turn; of a sorted set members and scores as texts.
pub type Words = Vec<Vec<u8>>;

/// Types of collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Elements in their order.
    List,
    /// Members.
    Set,
    /// Members with scores.
    SortedSet,
    /// Fields with values.
    Hash,
}

/// Every form that Redis has had for a type, with its number.
pub const FORMS: &[(Kind, Form, u8)] = &[
    (Kind::List, Form::Plain, 1),
    (Kind::Set, Form::Plain, 2),
    (Kind::SortedSet, Form::OldPlain, 3),
    (Kind::Hash, Form::Plain, 4),
    (Kind::SortedSet, Form::Plain, 5),
    (Kind::Hash, Form::Zipmap, 9),
    (Kind::List, Form::Ziplist, 10),
    (Kind::Set, Form::Intset, 11),
    (Kind::SortedSet, Form::Ziplist, 12),
    (Kind::Hash, Form::Ziplist, 13),
    (Kind::List, Form::Quicklist, 14),
    (Kind::Hash, Form::Listpack, 16),
    (Kind::SortedSet, Form::Listpack, 17),
    (Kind::List, Form::Quicklist2, 18),
    (Kind::Set, Form::Listpack, 20),
    (Kind::Hash, Form::TimedBehind, 22),
    (Kind::Hash, Form::Timed, 24),
    (Kind::Hash, Form::TimedListpack, 25),
];

/// A body with the version and the checksum behind it.
pub fn sealed(body: &[u8], version: u16) -> Vec<u8> {
    let mut payload = body.to_vec();
    payload.extend(version.to_le_bytes());
    let sum = checksum(&payload);
    payload.extend(sum.to_le_bytes());
    payload
}

/// The body of a payload; `packs`: strings that hold several elements are compressed, though they get no
/// shorter.
pub fn body(kind: Kind, form: Form, number: u8, words: &Words, packs: bool) -> Vec<u8> {
    let each = if matches!(kind, Kind::Hash | Kind::SortedSet) { 2 } else { 1 };
    let mut body = vec![number];
    let blob =
        |body: &mut Vec<u8>, bytes: &[u8]| if packs { compressed(body, bytes) } else { string(body, bytes) };
    match form {
        Form::Plain | Form::OldPlain => {
            length(&mut body, words.len() / each);
            for (i, word) in words.iter().enumerate() {
                match (kind, form, i % each) {
                    (Kind::SortedSet, Form::Plain, 1) => body.extend(score(word).to_le_bytes()),
                    (Kind::SortedSet, _, 1) => match score(word) {
                        inf if inf == f64::INFINITY => body.push(254),
                        inf if inf == f64::NEG_INFINITY => body.push(255),
                        nan if nan.is_nan() => body.push(253),
                        _ => {
                            body.push(word.len() as u8);
                            body.extend(word);
                        }
                    },
                    _ => string(&mut body, word),
                }
            }
        }
        Form::Timed => {
            body.extend(FIRST_TIME.to_le_bytes());
            length(&mut body, words.len() / each);
            for (place, pair) in words.chunks(each).enumerate() {
                length(&mut body, if time(place) == 0 { 0 } else { (1 + time(place) - FIRST_TIME) as usize });
                pair.iter().for_each(|word| string(&mut body, word));
            }
        }
        Form::TimedBehind => {
            length(&mut body, words.len() / each);
            for (place, pair) in words.chunks(each).enumerate() {
                pair.iter().for_each(|word| string(&mut body, word));
                body.extend(if time(place) == 0 { -1 } else { time(place) as i64 }.to_le_bytes());
            }
        }
        Form::TimedListpack => {
            body.extend(FIRST_TIME.to_le_bytes());
            let mut all = Words::new();
            for (place, pair) in words.chunks(each).enumerate() {
                all.extend(pair.iter().cloned());
                all.push(time(place).to_string().into_bytes());
            }
            blob(&mut body, &listpack(&all));
        }
        Form::Ziplist => blob(&mut body, &ziplist(words)),
        Form::Listpack => blob(&mut body, &listpack(words)),
        Form::Intset => blob(&mut body, &intset(words)),
        Form::Zipmap => blob(&mut body, &zipmap(words)),
        Form::Quicklist => {
            let nodes: Vec<_> = words.chunks(5).collect();
            length(&mut body, nodes.len());
            nodes.iter().for_each(|node| blob(&mut body, &ziplist(node)));
        }
        Form::Quicklist2 => {
            let nodes: Vec<_> = words.chunk_by(|one, other| one.len().max(other.len()) < 300).collect();
            length(&mut body, nodes.len());
            for node in nodes {
                if node.len() == 1 && node[0].len() >= 300 {
                    length(&mut body, 1);
                    string(&mut body, &node[0]);
                } else {
                    length(&mut body, 2);
                    blob(&mut body, &listpack(node));
                }
            }
        }
    }
    body
}

fn score(word: &[u8]) -> f64 {
    std::str::from_utf8(word).expect("a score").parse().expect("a score")
}

fn number(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?;
    text.parse().ok().filter(|n: &i64| n.to_string() == text)
}

/// Writes a length.
pub fn length(body: &mut Vec<u8>, n: usize) {
    match n {
        0..=63 => body.push(n as u8),
        64..=16383 => body.extend([0x40 | (n >> 8) as u8, n as u8]),
        _ => {
            body.push(0x80);
            body.extend((n as u32).to_be_bytes());
        }
    }
}

/// Writes a string as it is.
pub fn string(body: &mut Vec<u8>, bytes: &[u8]) {
    length(body, bytes.len());
    body.extend(bytes);
}

/// Writes a string in LZF, as literals without references.
pub fn compressed(body: &mut Vec<u8>, bytes: &[u8]) {
    let mut packed = Vec::new();
    for piece in bytes.chunks(32) {
        packed.push(piece.len() as u8 - 1);
        packed.extend(piece);
    }
    body.push(0xc3);
    length(body, packed.len());
    length(body, bytes.len());
    body.extend(packed);
}

/// The bytes of a number, least first, in the smallest of these widths that holds it.
fn int_bytes(n: i64, widths: &[usize]) -> Vec<u8> {
    let fits =
        |width: &usize| *width == 8 || (-(1i64 << (8 * width - 1))..1i64 << (8 * width - 1)).contains(&n);
    let width = widths.iter().copied().find(fits).expect("eight bytes hold any");
    n.to_le_bytes()[..width].to_vec()
}

/// These words as a listpack.
pub fn listpack(words: &[Vec<u8>]) -> Vec<u8> {
    let mut list = vec![0; 6];
    for word in words {
        let mut entry = match number(word) {
            Some(n @ 0..=127) => vec![n as u8],
            Some(n @ -4096..=4095) => vec![0xc0 | (n >> 8 & 0x1f) as u8, n as u8],
            Some(n) => {
                let bytes = int_bytes(n, &[2, 3, 4, 8]);
                let code = match bytes.len() {
                    2 => 0xf1,
                    3 => 0xf2,
                    4 => 0xf3,
                    _ => 0xf4,
                };
                [vec![code], bytes].concat()
            }
            None => match word.len() {
                n @ 0..=63 => [vec![0x80 | n as u8], word.clone()].concat(),
                n @ 64..=4095 => [vec![0xe0 | (n >> 8) as u8, n as u8], word.clone()].concat(),
                n => [vec![0xf0], (n as u32).to_le_bytes().to_vec(), word.clone()].concat(),
            },
        };
        let len = entry.len();
        let groups = match len {
            0..=127 => 1,
            128..=16382 => 2,
            16383..=2_097_150 => 3,
            _ => 4,
        };
        for group in (0..groups).rev() {
            let more = if group + 1 < groups { 0x80 } else { 0 };
            entry.push((len >> (7 * group) & 0x7f) as u8 | more);
        }
        list.extend(entry);
    }
    list.push(0xff);
    let (bytes, count) = (list.len() as u32, words.len().min(65535) as u16);
    list[..4].copy_from_slice(&bytes.to_le_bytes());
    list[4..6].copy_from_slice(&count.to_le_bytes());
    list
}

/// These words as a ziplist.
pub fn ziplist(words: &[Vec<u8>]) -> Vec<u8> {
    let mut list = vec![0; 10];
    let (mut before, mut last) = (0, 10);
    for word in words {
        last = list.len();
        if before < 254 {
            list.push(before as u8);
        } else {
            list.push(254);
            list.extend((before as u32).to_le_bytes());
        }
        match number(word) {
            Some(n @ 0..=12) => list.push(0xf1 + n as u8),
            Some(n) => {
                let bytes = int_bytes(n, &[1, 2, 3, 4, 8]);
                list.push(match bytes.len() {
                    1 => 0xfe,
                    2 => 0xc0,
                    3 => 0xf0,
                    4 => 0xd0,
                    _ => 0xe0,
                });
                list.extend(bytes);
            }
            None => {
                match word.len() {
                    n @ 0..=63 => list.push(n as u8),
                    n @ 64..=16383 => list.extend([0x40 | (n >> 8) as u8, n as u8]),
                    n => {
                        list.push(0x80);
                        list.extend((n as u32).to_be_bytes());
                    }
                }
                list.extend(word);
            }
        }
        before = list.len() - last;
    }
    list.push(0xff);
    let bytes = list.len() as u32;
    list[..4].copy_from_slice(&bytes.to_le_bytes());
    list[4..8].copy_from_slice(&(last as u32).to_le_bytes());
    list[8..10].copy_from_slice(&(words.len().min(65535) as u16).to_le_bytes());
    list
}

/// Numbers as an intset.
pub fn intset(words: &[Vec<u8>]) -> Vec<u8> {
    let mut numbers: Vec<i64> = words.iter().map(|word| number(word).expect("a number")).collect();
    numbers.sort_unstable();
    let width = numbers.iter().map(|n| int_bytes(*n, &[2, 4, 8]).len()).max().unwrap_or(2);
    let mut set = (width as u32).to_le_bytes().to_vec();
    set.extend((numbers.len() as u32).to_le_bytes());
    numbers.iter().for_each(|n| set.extend(&n.to_le_bytes()[..width]));
    set
}

/// Fields and values in turn as a zipmap.
pub fn zipmap(words: &[Vec<u8>]) -> Vec<u8> {
    let mut map = vec![(words.len() / 2).min(254) as u8];
    for (i, word) in words.iter().enumerate() {
        if word.len() < 254 {
            map.push(word.len() as u8);
        } else {
            map.push(254);
            map.extend((word.len() as u32).to_le_bytes());
        }
        // Two of three values have one or two spare bytes behind them.
        let spare = if i % 2 == 1 { i % 3 } else { 0 };
        if i % 2 == 1 {
            map.push(spare as u8);
        }
        map.extend(word);
        map.extend(vec![b'?'; spare]);
    }
    map.push(0xff);
    map
}
