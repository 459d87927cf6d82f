//! Whether two replies to one command are alike: byte for byte, but for what no two servers share
//! (order of keys, clocks, numbers of connections).

use super::frame::Frame;

/// Milliseconds that may pass between two servers' replies, on a machine that does other things, too.
const CLOCKS_MS: i64 = 10_000;

/// What is owed to a connection: EXEC's reply is compared by the commands that were queued.
#[derive(Clone, Debug, Default)]
pub struct Comparer {
    queued: Vec<Vec<Vec<u8>>>,
}

/// A command and two replies to it that are not alike.
pub type Unlike = (Vec<Vec<u8>>, Frame, Frame);

impl Comparer {
    /// Compares the replies to a command, and remembers it if it was queued; of what EXEC replies, each
    /// by its command.
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
        // Whose order is the server's own.
        (
            "keys" | "hkeys" | "hvals" | "smembers" | "sinter" | "sunion" | "sdiff" | "spop" | "srandmember",
            _,
        ) => sorted(one) == sorted(two),
        // Names alone, or pairs that are arrays.
        ("hrandfield" | "zrandmember", _)
            if command.len() < 4 || one.inside.iter().any(|pair| !pair.inside.is_empty()) =>
        {
            sorted(one) == sorted(two)
        }
        ("hgetall" | "hrandfield" | "zrandmember", _) => paired(one) == paired(two),
        ("hscan" | "zscan", _) => {
            one.inside.len() == two.inside.len()
                && one.inside.iter().zip(&two.inside).all(|(one, two)| paired(one) == paired(two))
        }
        ("sscan", _) => {
            one.inside.len() == two.inside.len()
                && one.inside.iter().zip(&two.inside).all(|(one, two)| sorted(one) == sorted(two))
        }
        ("scan", _) => {
            let whole = |frame: &Frame| {
                frame.inside.first().is_some_and(|cursor| cursor.body.as_deref() == Some(b"0"))
            };
            // A cursor means something only to the server it is from.
            second.as_deref() != Some("0")
                || !(whole(one) && whole(two))
                || sorted(&one.inside[1]) == sorted(&two.inside[1])
        }
        ("randomkey", _) => (one.body.is_some(), &one.line[..1]) == (two.body.is_some(), &two.line[..1]),
        ("ttl" | "expiretime", _) | ("object", Some("idletime")) => near(1000),
        ("pttl" | "pexpiretime", _) => near(1),
        ("httl" | "hexpiretime", _) => near_each(one, two, 1000),
        ("hpttl" | "hpexpiretime", _) => near_each(one, two, 1),
        // Which of two equal times is later depends on when they were set.
        ("expire" | "pexpire" | "expireat" | "pexpireat", _) if compares_times(command) => {
            one.number().is_some() && two.number().is_some()
        }
        ("hexpire" | "hpexpire" | "hexpireat" | "hpexpireat", _) if compares_times(command) => {
            one.line == two.line
        }
        ("hello", _) => one.line == two.line,
        // Libraries, their functions, and flags of these come in any order.
        ("function", Some("list")) => sorted_all(one) == sorted_all(two),
        ("client", Some("list" | "info")) => one.line[..1] == two.line[..1],
        ("slowlog", Some("len" | "get")) | ("client", Some("id")) => one.line[..1] == two.line[..1],
        _ => one == two,
    }
}

fn is_script(command: &[Vec<u8>]) -> bool {
    let is =
        |word: &[u8], names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    is(&command[0], &["EVAL", "EVAL_RO", "FCALL", "FCALL_RO"])
        || is(&command[0], &["FUNCTION"]) && command.get(1).is_some_and(|word| is(word, &["LOAD"]))
}

/// A script's reply with maps and sets in one order, and without what servers say otherwise of an error: the digest that the
/// script is called by, as what a function was called that was given something wrong, and the place in the script where it
/// is part of a text. The place behind an error that has ended the script is compared.
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

/// Words of errors that Valkey says, and those that Redis says.
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

/// A text without places in scripts and names of functions, and the words of Redis where Valkey has others.
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

/// Times of clocks that are not the same.
fn near(one: &Frame, two: &Frame, unit_ms: i64) -> bool {
    match (one.number(), two.number()) {
        (Some(a), Some(b)) if a >= 0 && b >= 0 => (a - b).abs() <= CLOCKS_MS / unit_ms,
        _ => one == two,
    }
}

/// The same of each of several.
fn near_each(one: &Frame, two: &Frame, unit_ms: i64) -> bool {
    one.line == two.line && one.inside.iter().zip(&two.inside).all(|(one, two)| near(one, two, unit_ms))
}

fn compares_times(command: &[Vec<u8>]) -> bool {
    command.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"GT") || word.eq_ignore_ascii_case(b"LT"))
}

/// The frame with its pairs in one order, where it has some.
fn paired(frame: &Frame) -> (Frame, Vec<Vec<Frame>>) {
    let mut pairs: Vec<Vec<Frame>> = frame.inside.chunks(2).map(<[Frame]>::to_vec).collect();
    pairs.sort();
    (Frame { inside: Vec::new(), ..frame.clone() }, pairs)
}

/// The same, and whatever is inside of what is inside.
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
