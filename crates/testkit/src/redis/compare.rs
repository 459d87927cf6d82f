//! Whether two replies to one command are alike: the same bytes, except where any two servers differ (order
//! of keys, clocks, numbers of connections).

use super::frame::Frame;

/// Milliseconds that may pass between two servers' replies, on a machine that does other things, too.
const CLOCKS_MS: i64 = 10_000;

/// The state of a connection: EXEC's reply is compared by the queued commands.
#[derive(Clone, Debug, Default)]
pub struct Comparer {
    queued: Vec<Vec<Vec<u8>>>,
}

/// A command and two replies to it that are not alike.
pub type Unlike = (Vec<Vec<u8>>, Frame, Frame);

impl Comparer {
    /// Compares the replies to a command, and remembers it if it was queued. Replies inside of EXEC's are compared each by its
    /// command.
    pub fn unlike(&mut self, command: &[Vec<u8>], one: &Frame, two: &Frame) -> Vec<Unlike> {
        let whole = || (command.to_vec(), one.clone(), two.clone());
        if one.line == b"+QUEUED" && one == two {
            self.queued.push(command.to_vec());
            return Vec::new();
        }
        let name = command[0].to_ascii_lowercase();
        let queued = match name.as_slice() {
            b"exec" | b"discard" | b"reset" => std::mem::take(&mut self.queued),
            _ => Vec::new(),
        };
        if name != b"exec" || one.line != two.line || one.inside.len() != queued.len() {
            return if alike(command, one, two) { Vec::new() } else { vec![whole()] };
        }
        let both = one.inside.iter().zip(&two.inside).zip(queued);
        let unlike = both.filter(|((one, two), command)| !alike(command, one, two));
        unlike.map(|((one, two), command)| (command, one.clone(), two.clone())).collect()
    }
}

/// Compares the replies to a command that was carried out at once.
pub fn alike(command: &[Vec<u8>], one: &Frame, two: &Frame) -> bool {
    if is_script(command) {
        return unnamed(one) == unnamed(two);
    }
    if one.is_error() || two.is_error() {
        return one == two;
    }
    let name = String::from_utf8_lossy(&command[0]).to_ascii_lowercase();
    let second = command.get(1).map(|word| String::from_utf8_lossy(word).to_ascii_lowercase());
    let near = |unit_ms: i64| near(one, two, unit_ms);
    match (name.as_str(), second.as_deref()) {
        // The order is the server's own.
        ("keys" | "hkeys" | "hvals" | "smembers" | "sinter" | "sunion" | "sdiff" | "spop", _) => {
            sorted(one) == sorted(two)
        }
        ("hrandfield" | "srandmember" | "zrandmember", _) if !draws_all(command) => {
            // The element is random, and so is its length.
            let shape = |frame: &Frame| match &frame.body {
                Some(_) => b"$".to_vec(),
                None => frame.line.clone(),
            };
            shape(one) == shape(two)
        }
        // Names alone, or pairs that are arrays.
        ("hrandfield" | "srandmember" | "zrandmember", _)
            if command.len() < 4 || one.inside.iter().any(|pair| !pair.inside.is_empty()) =>
        {
            sorted(one) == sorted(two)
        }
        ("hgetall" | "hrandfield" | "zrandmember", _) => paired(one) == paired(two),
        ("hscan" | "zscan", _) if names_alone(command) => {
            one.inside.len() == two.inside.len()
                && one.inside.iter().zip(&two.inside).all(|(one, two)| sorted(one) == sorted(two))
        }
        ("hscan" | "zscan", _) => {
            // Of a sorted set that is no listpack Redis writes a score with 17 digits.
            let (one, two) =
                if name == "zscan" { (&scores_numbered(one), &scores_numbered(two)) } else { (one, two) };
            one.inside.len() == two.inside.len()
                && one.inside.iter().zip(&two.inside).all(|(one, two)| paired(one) == paired(two))
        }
        // In a set's own order, if it is one: that others keep theirs is for transcripts.
        ("sort" | "sort_ro", _) if is_unsorted(command) => {
            let limited = command.iter().any(|word| word.eq_ignore_ascii_case(b"LIMIT"));
            one.line == two.line && (limited || sorted(one) == sorted(two))
        }
        // Valkey writes 17 digits behind the point.
        ("geopos", _) => numbered(one) == numbered(two),
        ("geosearch" | "georadius" | "georadius_ro" | "georadiusbymember" | "georadiusbymember_ro", _) => {
            places_numbered(one) == places_numbered(two)
        }
        ("sscan", _) => {
            one.inside.len() == two.inside.len()
                && one.inside.iter().zip(&two.inside).all(|(one, two)| sorted(one) == sorted(two))
        }
        ("scan", _) => {
            let whole = |frame: &Frame| {
                frame.inside.first().is_some_and(|cursor| cursor.body.as_deref() == Some(b"0"))
            };
            // A cursor has a meaning only for the server that returned it.
            second.as_deref() != Some("0")
                || !(whole(one) && whole(two))
                || sorted(&one.inside[1]) == sorted(&two.inside[1])
        }
        ("randomkey", _) => (one.body.is_some(), &one.line[..1]) == (two.body.is_some(), &two.line[..1]),
        ("ttl" | "expiretime", _) | ("object", Some("idletime")) => near(1000),
        ("pttl" | "pexpiretime", _) => near(1),
        ("httl" | "hexpiretime", _) => near_each(one, two, 1000),
        ("hpttl" | "hpexpiretime", _) => near_each(one, two, 1),
        // Which of two equal times is later depends on when each server set them.
        ("expire" | "pexpire" | "expireat" | "pexpireat", _) if compares_times(command) => {
            one.number().is_some() && two.number().is_some()
        }
        ("hexpire" | "hpexpire" | "hexpireat" | "hpexpireat", _) if compares_times(command) => {
            one.line == two.line
        }
        ("hello", _) => one.line == two.line,
        // Libraries, their functions, and the functions' flags come in any order.
        ("function", Some("list")) => sorted_all(one) == sorted_all(two),
        ("client", Some("list" | "info")) => one.line[..1] == two.line[..1],
        ("slowlog", Some("len" | "get")) | ("client", Some("id")) => one.line[..1] == two.line[..1],
        _ => one == two,
    }
}

/// Whether SORT sorts by a constant: then the order is the server's own.
fn is_unsorted(command: &[Vec<u8>]) -> bool {
    command.windows(2).any(|pair| pair[0].eq_ignore_ascii_case(b"BY") && !pair[1].contains(&b'*'))
}

/// Whether a command draws all elements: its count is above that of any collection of a stream.
fn draws_all(command: &[Vec<u8>]) -> bool {
    command.get(2).is_some_and(|count| count == b"1000")
}

/// A number in one form, with as many digits behind the point as all servers write; and those inside of the frame.
fn numbered(frame: &Frame) -> Frame {
    let text = frame.body.as_deref().or_else(|| frame.line.strip_prefix(b","));
    let number = text.and_then(|text| std::str::from_utf8(text).ok()?.parse::<f64>().ok());
    let inside = frame.inside.iter().map(numbered).collect();
    match number {
        Some(number) => {
            Frame { line: frame.line[..1].to_vec(), body: Some(format!("{number:.14}").into_bytes()), inside }
        }
        None => Frame { inside, ..frame.clone() },
    }
}

/// The reply of ZSCAN with its scores as numbers: members and the cursor are texts.
fn scores_numbered(frame: &Frame) -> Frame {
    let mut frame = frame.clone();
    if let [_, pairs] = &mut frame.inside[..] {
        pairs.inside.iter_mut().skip(1).step_by(2).for_each(|score| *score = numbered(score));
    }
    frame
}

/// A list of members, with the numbers beside each in one form: the members stay texts.
fn places_numbered(frame: &Frame) -> Frame {
    let mut frame = frame.clone();
    for member in &mut frame.inside {
        member.inside.iter_mut().skip(1).for_each(|told| *told = numbered(told));
    }
    frame
}

/// Whether a scan returns names alone.
fn names_alone(command: &[Vec<u8>]) -> bool {
    command
        .iter()
        .any(|word| word.eq_ignore_ascii_case(b"NOVALUES") || word.eq_ignore_ascii_case(b"NOSCORES"))
}

fn is_script(command: &[Vec<u8>]) -> bool {
    let is =
        |word: &[u8], names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    is(&command[0], &["EVAL", "EVAL_RO", "FCALL", "FCALL_RO"])
        || is(&command[0], &["FUNCTION"]) && command.get(1).is_some_and(|word| is(word, &["LOAD"]))
}

/// A script's reply with maps and sets in one order, and its errors without the parts that differ between
/// servers: the script's digest, a function's name in an error about its argument, and a place in the script
/// within a text. The place behind an error that ended the script stays.
fn unnamed(frame: &Frame) -> Frame {
    let mut inside: Vec<Frame> = frame.inside.iter().map(unnamed).collect();
    match frame.line.first() {
        Some(b'~') => inside.sort(),
        Some(b'%') => {
            let mut pairs: Vec<Vec<Frame>> = inside.chunks(2).map(<[Frame]>::to_vec).collect();
            pairs.sort();
            inside = pairs.concat();
        }
        _ => {}
    }
    let body = frame.body.as_deref().map(placeless);
    let mut line = placeless(&frame.line);
    if body.is_some() {
        // Its length is another.
        line.truncate(1);
    }
    if let (true, Some(at)) = (frame.is_error(), memmem(&line, b" script: ")) {
        let place = memmem(&line[at..], b"on @user_").map(|place| line[at + place..].to_vec());
        line.truncate(at);
        line.extend_from_slice(&place.unwrap_or_default());
    }
    Frame { line, body, inside }
}

/// Words of Valkey's errors, and Redis's words for the same.
const VALKEYS: &[(&str, &str)] = &[
    ("ERR Command arguments must be", "ERR Lua redis lib command arguments must be"),
    ("args calling command from", "args calling Redis command from"),
    ("ERR Unknown command called", "ERR Unknown Redis command called"),
    ("ERR This Valkey command", "ERR This Redis command"),
    ("passed to server.", "passed to redis."),
    ("ERR server.", "ERR redis."),
    ("for this call", "for this redis lib call"),
];

fn memmem(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// A text without places in scripts and names of functions, and with Redis's words in place of Valkey's.
fn placeless(text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    for chunk in [&b"user_script:"[..], b"user_function:"] {
        let mut from = 0;
        while let Some(at) = memmem(&text[from..], chunk).map(|at| from + at) {
            from = at;
            if text[..at].ends_with(b"@") {
                from += chunk.len();
                continue;
            }
            let behind = at + chunk.len();
            let end = behind + text[behind..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let end = if text[end..].starts_with(b": ") { end + 2 } else { end };
            text.drain(at..end);
        }
    }
    for (valkey, redis) in VALKEYS {
        if let Some(at) = memmem(&text, valkey.as_bytes()) {
            text.splice(at..at + valkey.len(), redis.bytes());
        }
    }
    let mut from = 0;
    while let Some(at) = memmem(&text[from..], b" to '").map(|at| from + at) {
        let name = text[at + 5..].iter().take_while(|byte| **byte != b'\'').count();
        text.drain(at..(at + 6 + name).min(text.len()));
        from = at;
    }
    text
}

/// True if the times of two servers are close.
fn near(one: &Frame, two: &Frame, unit_ms: i64) -> bool {
    match (one.number(), two.number()) {
        (Some(a), Some(b)) if a >= 0 && b >= 0 => (a - b).abs() <= CLOCKS_MS / unit_ms,
        _ => one == two,
    }
}

/// As [`near`], for each of several times.
fn near_each(one: &Frame, two: &Frame, unit_ms: i64) -> bool {
    one.line == two.line && one.inside.iter().zip(&two.inside).all(|(one, two)| near(one, two, unit_ms))
}

fn compares_times(command: &[Vec<u8>]) -> bool {
    command.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"GT") || word.eq_ignore_ascii_case(b"LT"))
}

/// The frame with its pairs in one order, if it has pairs.
fn paired(frame: &Frame) -> (Frame, Vec<Vec<Frame>>) {
    let mut pairs: Vec<Vec<Frame>> = frame.inside.chunks(2).map(<[Frame]>::to_vec).collect();
    pairs.sort();
    (Frame { inside: Vec::new(), ..frame.clone() }, pairs)
}

/// Sorts everything inside, at any depth.
fn sorted_all(frame: &Frame) -> Frame {
    let mut frame = frame.clone();
    frame.inside = frame.inside.iter().map(sorted_all).collect();
    frame.inside.sort();
    frame
}

fn sorted(frame: &Frame) -> Frame {
    let mut frame = frame.clone();
    frame.inside.sort();
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(text: &str) -> Frame {
        Frame::read(text.as_bytes()).expect("a reply").expect("all of it").0
    }

    fn are_alike(command: &str, one: &str, two: &str) -> bool {
        let words: Vec<Vec<u8>> = command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        alike(&words, &replies(one), &replies(two))
    }

    #[test]
    fn of_what_is_drawn_only_the_shape_is_compared_unless_all_is_drawn() {
        for name in ["SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER"] {
            assert!(are_alike(&format!("{name} k"), "$1\r\na\r\n", "$2\r\nbb\r\n"));
            assert!(!are_alike(&format!("{name} k"), "$1\r\na\r\n", "$-1\r\n"));
            assert!(are_alike(&format!("{name} k -1"), "*1\r\n$1\r\na\r\n", "*1\r\n$1\r\nb\r\n"));
            assert!(!are_alike(&format!("{name} k -1"), "*1\r\n$1\r\na\r\n", "*0\r\n"));
            let (two, other) = ("*2\r\n$1\r\na\r\n$1\r\nb\r\n", "*2\r\n$1\r\nb\r\n$1\r\na\r\n");
            assert!(are_alike(&format!("{name} k 1000"), two, other));
            assert!(!are_alike(&format!("{name} k 1000"), two, "*2\r\n$1\r\nb\r\n$1\r\nc\r\n"));
        }
    }

    #[test]
    fn a_scan_of_names_alone_has_no_pairs() {
        let scan = |one: &str, two: &str| format!("*2\r\n$1\r\n0\r\n*2\r\n$1\r\n{one}\r\n$1\r\n{two}\r\n");
        assert!(are_alike("ZSCAN z 0 noscores", &scan("a", "b"), &scan("b", "a")));
        assert!(are_alike("HSCAN h 0 NOVALUES", &scan("a", "b"), &scan("b", "a")));
        assert!(!are_alike("HSCAN h 0", &scan("a", "b"), &scan("b", "a")));
    }

    #[test]
    fn what_is_not_sorted_is_compared_in_any_order() {
        let (two, other) = ("*2\r\n$1\r\na\r\n$1\r\nb\r\n", "*2\r\n$1\r\nb\r\n$1\r\na\r\n");
        assert!(are_alike("SORT s by nosort", two, other));
        assert!(!are_alike("SORT s BY nosort", two, "*2\r\n$1\r\nb\r\n$1\r\nc\r\n"));
        assert!(!are_alike("SORT s BY nosort LIMIT 0 2", two, "*1\r\n$1\r\na\r\n"));
        assert!(!are_alike("SORT s BY n*", two, other));
    }

    #[test]
    fn coordinates_and_scanned_scores_are_numbers() {
        let scan = |score: &str| format!("*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n${}\r\n{score}\r\n", score.len());
        assert!(are_alike("ZSCAN z 0", &scan("2.332309249490559e+17"), &scan("233230924949055904")));
        assert!(!are_alike("ZSCAN z 0", &scan("2.5"), &scan("2.25")));
        let named = |name: &str| format!("*2\r\n$1\r\n0\r\n*2\r\n${}\r\n{name}\r\n$1\r\n1\r\n", name.len());
        assert!(!are_alike("ZSCAN z 0", &named("9223372036854775807"), &named("9223372036854775808")));
        let found = |name: &str, far: &str| {
            format!("*1\r\n*2\r\n${}\r\n{name}\r\n${}\r\n{far}\r\n", name.len(), far.len())
        };
        assert!(are_alike("GEOSEARCH z WITHDIST", &found("7", "1.5"), &found("7", "1.50")));
        assert!(!are_alike("GEOSEARCH z WITHDIST", &found("7", "1.5"), &found("007", "1.5")));
        let place = |text: &str| format!("*1\r\n*2\r\n{text}\r\n,1\r\n");
        assert!(are_alike("GEOPOS z a", &place(",-175.87411612272262573"), &place(",-175.87411612272263")));
        assert!(!are_alike("GEOPOS z a", &place(",-175.87411"), &place(",-175.87412")));
        assert!(!are_alike("GEOPOS z a", &place(",1.5"), &place("$3\r\n1.5")));
    }
}
