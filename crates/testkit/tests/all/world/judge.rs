//! Checks every byte that a client receives: it belongs to the reply to the client's next request, or to a message of a channel
//! to which the client has subscribed.

use crate::world::asking_user::{ALL_TO_NOBODY, TO_NOBODY};
use crate::world::books::contest_name;
use crate::world::client::{Client, Contesting, Role, doubts};
use crate::world::line::Line;
use crate::world::listener::{Heard, hear};
use crate::world::model::{Answer, Doubts, Outcome, Verb};
use crate::world::part::{Contest, Dialect, Part};
use crate::world::plan::Memory;
use crate::world::scene::{Flush, Scene};

/// The result of comparing a part with the front of the input.
enum Match {
    /// The part is this many bytes long.
    Is(usize),
    /// More bytes are needed to decide.
    More,
}

impl Client {
    /// Compares the received bytes with the right replies.
    pub fn judge(&mut self, scene: &mut Scene) -> Result<(), String> {
        let mut line = self.line.take().expect("it is connected");
        let judged = match line.wire.wrong() {
            Some(wrong) => Err(format!("{}: {wrong}, {}", self.name, line.shown())),
            None => self.judge_line(scene, &mut line),
        };
        self.line = Some(line);
        judged
    }

    fn judge_line(&mut self, scene: &mut Scene, line: &mut Line) -> Result<(), String> {
        while !line.rest().is_empty() {
            if let Role::Listener(subscriptions) = &mut self.role {
                match hear(subscriptions, self.dialect, line.rest(), &scene.books) {
                    Ok(Heard::Message(bytes)) => {
                        line.judged(bytes);
                        continue;
                    }
                    Ok(Heard::More) => return Ok(()),
                    Ok(Heard::Nothing) => {}
                    Err(wrong) => return Err(format!("{}: {wrong}", self.name)),
                }
            }
            if scene.users.removing.contains(&line.address) {
                // The user is removed. The server finishes commands that have begun, and refuses the rest
                // until it closes the connection.
                line.is_refused |= TO_NOBODY.iter().any(|refusal| line.rest().starts_with(refusal));
                if line.is_refused {
                    let Some(end) = line_end(line.rest()) else { return Ok(()) };
                    if !ALL_TO_NOBODY.iter().any(|refusal| line.rest().starts_with(refusal)) {
                        let rest = shown(line.rest());
                        return Err(format!("{} was removed and refused, and is sent {rest}", self.name));
                    }
                    line.judged(end);
                    continue;
                }
                if TO_NOBODY.iter().any(|refusal| refusal.starts_with(line.rest())) {
                    return Ok(());
                }
            }
            let Some(request) = line.requests.front_mut() else {
                return Err(format!(
                    "{} is sent what it has not asked for: {}",
                    self.name,
                    shown(line.rest())
                ));
            };
            if request.is_void {
                let text = request.text.clone();
                let rest = shown(line.rest());
                return Err(format!("{} was removed before it asked {text}, and is sent {rest}", self.name));
            }
            let Some(part) = request.parts.pop_front() else {
                line.end_request();
                scene.books.replies += 1;
                continue;
            };
            match self.judge_part(scene, &part, line.rest()) {
                Ok(Match::Is(bytes)) => line.judged(bytes),
                Ok(Match::More) => {
                    line.requests.front_mut().expect("seen above").parts.push_front(part);
                    return Ok(());
                }
                Err(wrong) => {
                    let text = &line.requests.front().expect("seen above").text;
                    return Err(format!(
                        "{} ({}), asked {text}: {wrong}; it is sent {}",
                        self.name,
                        line.address,
                        shown(line.rest())
                    ));
                }
            }
        }
        while line.requests.front().is_some_and(|request| request.parts.is_empty()) {
            line.end_request();
            scene.books.replies += 1;
        }
        Ok(())
    }

    fn judge_part(&mut self, scene: &mut Scene, part: &Part, rest: &[u8]) -> Result<Match, String> {
        let text = |bytes: usize| std::str::from_utf8(&rest[..bytes]).map_err(|_| "no text".to_owned());
        match part {
            Part::Bytes(bytes) => match_bytes(bytes, rest),
            Part::Key { .. } => self.judge_key(scene, part, rest),
            Part::Names { doubtful, asked_at } => {
                let doubts = doubts(scene, *asked_at, *doubtful);
                self.judge_names(*doubtful, doubts, rest)
            }
            Part::Count { counter, by, before } => {
                let Some((bytes, number)) = self.number(rest)? else { return Ok(Match::More) };
                scene.books.counters[*counter].answered(number, *by, *before)?;
                Ok(Match::Is(bytes))
            }
            Part::Contest { key, what: Contest::Read } => {
                let Some((bytes, number, token)) = self.contested(*key, rest)? else {
                    return Ok(Match::More);
                };
                self.contesting = Some(Contesting::Knows { key: *key, number, token });
                Ok(Match::Is(bytes))
            }
            Part::Contest { key, what: Contest::Write } => {
                let Some(end) = line_end(rest) else { return Ok(Match::More) };
                let line = text(end)?;
                let contest = &mut scene.books.contests[*key];
                match line {
                    "STORED\r\n" | "HD\r\n" => contest.sure += 1,
                    "*1\r\n" if rest.len() < end + 5 => return Ok(Match::More),
                    "*1\r\n" if &rest[end..end + 5] == b"+OK\r\n" => {
                        contest.sure += 1;
                        return Ok(Match::Is(end + 5));
                    }
                    "EXISTS\r\n" | "EX\r\n" | "*-1\r\n" | "_\r\n" => {}
                    _ => return Err(format!("this is no answer: {line}")),
                }
                Ok(Match::Is(end))
            }
            Part::Pushed { first, count } => {
                let Some(end) = line_end(rest) else { return Ok(Match::More) };
                let line = text(end)?;
                let length = line.trim_end().strip_prefix(':').and_then(|length| length.parse().ok());
                if length.is_none_or(|length: usize| length < *count) {
                    return Err(format!("this is no length of a list with {count} more: {line}"));
                }
                scene.books.queues.pushed(*first..*first + *count as u64);
                Ok(Match::Is(end))
            }
            Part::Popped { lists, waits, asked } => {
                Ok(self.judge_pop(scene, (lists, *waits, *asked), rest)?.map_or(Match::More, Match::Is))
            }
            Part::Published(number) => {
                let Some(end) = line_end(rest) else { return Ok(Match::More) };
                if rest[0] != b':' {
                    return Err("this is no count of listeners".into());
                }
                scene.books.channels[self.index].published(*number);
                Ok(Match::Is(end))
            }
            Part::Hello { logs_in } => {
                const BEGIN: &[u8] = b"%7\r\n";
                const END: &[u8] = b"$7\r\nmodules\r\n*0\r\n";
                if !rest.starts_with(&BEGIN[..rest.len().min(BEGIN.len())]) {
                    return Err("this is no answer to HELLO".into());
                }
                let end = rest.windows(END.len()).position(|bytes| bytes == END);
                if end.is_some() && *logs_in {
                    scene.users.admitted(self.index);
                }
                Ok(end.map_or(Match::More, |at| Match::Is(at + END.len())))
            }
            Part::Refused(bytes) => {
                let matched = match_bytes(bytes, rest)?;
                scene.users.counts.refused += u64::from(matches!(matched, Match::Is(_)));
                Ok(matched)
            }
            Part::Login { right, stamp } => {
                Ok(self.judge_login(scene, (*right, *stamp), rest)?.map_or(Match::More, Match::Is))
            }
            Part::Lent { add, stamp } => {
                Ok(self.judge_lent(scene, (*add, *stamp), rest)?.map_or(Match::More, Match::Is))
            }
            Part::Changed { client, change, address } => {
                let judged = Client::judge_change(scene, (*client, *change), *address, rest)?;
                Ok(judged.map_or(Match::More, Match::Is))
            }
            Part::Line => Ok(line_end(rest).map_or(Match::More, Match::Is)),
            Part::Lines => {
                let mut at = 0;
                while let Some(end) = line_end(&rest[at..]) {
                    let goes_on = rest[at..].starts_with(b"STAT");
                    at += end;
                    if !goes_on {
                        return Ok(Match::Is(at));
                    }
                }
                Ok(Match::More)
            }
            Part::Bulk => {
                let Some((bytes, _)) = bulk_at(rest)? else { return Ok(Match::More) };
                Ok(Match::Is(bytes))
            }
            Part::Flushed => {
                let Some(end) = line_end(rest) else { return Ok(Match::More) };
                scene.flush = Flush::Done;
                Ok(Match::Is(end))
            }
            Part::Killed(address) => {
                let Some(end) = line_end(rest) else { return Ok(Match::More) };
                if rest.starts_with(b":1") {
                    scene.killed.push((*address, scene.fair_us));
                }
                Ok(Match::Is(end))
            }
            Part::Bank { told, since } => {
                Ok(self.judge_bank(scene, *told, *since, rest)?.map_or(Match::More, Match::Is))
            }
            Part::ScriptsKilled => {
                let Some(end) = line_end(rest) else { return Ok(Match::More) };
                const ANSWERS: [&str; 3] = ["+OK\r\n", "-NOTBUSY ", "-UNKILLABLE "];
                if !ANSWERS.iter().any(|answer| rest.starts_with(answer.as_bytes())) {
                    return Err("this is no answer to SCRIPT KILL".into());
                }
                scene.books.bank.kills_done += 1;
                Ok(Match::Is(end))
            }
            Part::Shared(ask) => Ok(scene.books.shared.judge(ask, rest)?.map_or(Match::More, Match::Is)),
            Part::Subscribed { subscription, reply } => {
                let matched = match_bytes(reply, rest)?;
                if let (Match::Is(_), Role::Listener(subscriptions)) = (&matched, &mut self.role) {
                    let subscription = &mut subscriptions[*subscription];
                    subscription.next = Some(scene.books.channels[subscription.owner].next);
                }
                Ok(matched)
            }
        }
    }

    fn judge_key(&mut self, scene: &mut Scene, part: &Part, rest: &[u8]) -> Result<Match, String> {
        let Part::Key { key, verb, form, doubtful, asked_at } = part else { unreachable!("said so") };
        let key = &mut self.keys[*key];
        let doubts = doubts(scene, *asked_at, *doubtful);
        let resp = form.dialect.is_resp();
        let outcomes = key.outcomes(verb, resp, doubts);
        let bytes = |outcome: &Outcome| form.bytes(&key.name, verb, &outcome.answer);
        let possible: Vec<(Vec<u8>, &Outcome)> =
            outcomes.iter().map(|outcome| (bytes(outcome), outcome)).collect();
        if possible.iter().any(|(bytes, _)| bytes.len() > rest.len() && bytes.starts_with(rest)) {
            return Ok(Match::More);
        }
        let fits = possible.iter().filter(|(bytes, _)| rest.starts_with(bytes));
        let Some(longest) = fits.map(|(bytes, _)| bytes.len()).max() else {
            let told: Vec<String> = possible.iter().map(|(bytes, _)| shown(bytes)).collect();
            return Err(format!("{} must answer {}", key.name, told.join(" or ")));
        };
        let fits = |(bytes, _): &&(Vec<u8>, &Outcome)| bytes.len() == longest && rest.starts_with(bytes);
        let surely = Doubts { gone: *doubtful, ..doubts };
        let lost = scene.plan.memory == Memory::Evicts
            && !form.quiet
            && !key.outcomes(verb, resp, surely).iter().any(|outcome| rest.starts_with(&bytes(outcome)));
        let next: Vec<_> = possible.iter().filter(fits).map(|(_, outcome)| outcome.next.clone()).collect();
        key.answer(doubts.now.1, next.into_iter());
        key.asked -= 1;
        scene.books.lost += u64::from(lost);
        Ok(Match::Is(longest))
    }

    /// Checks a list of names: all that must exist, and none that must not.
    fn judge_names(&self, doubtful: bool, doubts: Doubts, rest: &[u8]) -> Result<Match, String> {
        let Some(end) = line_end(rest) else { return Ok(Match::More) };
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        let count = line.trim_end().strip_prefix('*').and_then(|count| count.parse::<usize>().ok());
        let count = count.ok_or("this is no list")?;
        let (mut at, mut names) = (end, Vec::new());
        for _ in 0..count {
            let Some((bytes, name)) = bulk_at(&rest[at..])? else { return Ok(Match::More) };
            at += bytes;
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        for key in &self.keys {
            let times = names.iter().filter(|name| **name == key.name).count();
            let states = key.outcomes(&Verb::Get, true, doubts);
            let here = states.iter().any(|outcome| outcome.answer != Answer::Nothing);
            let (here, gone) = (
                here || doubtful,
                doubtful || states.iter().any(|outcome| outcome.answer == Answer::Nothing),
            );
            if times > 1 || times == 1 && !here || times == 0 && !gone {
                return Err(format!("{} is listed {times} times", key.name));
            }
        }
        if let Some(other) = names.iter().find(|name| !self.keys.iter().any(|key| key.name == **name)) {
            return Err(format!("{other} is listed, which nobody has written"));
        }
        Ok(Match::Is(at))
    }

    /// The number at the front, as the dialect writes it.
    pub fn number(&self, rest: &[u8]) -> Result<Option<(usize, u64)>, String> {
        let Some(first) = line_end(rest) else { return Ok(None) };
        let (from, to) = match self.dialect {
            Dialect::Classic => (0, first),
            Dialect::Resp2 | Dialect::Resp3 => (1, first),
            Dialect::Meta if rest.starts_with(b"VA ") => match line_end(&rest[first..]) {
                Some(second) => (first, first + second),
                None => return Ok(None),
            },
            Dialect::Meta => return Err("this is no value".into()),
        };
        let text = String::from_utf8_lossy(&rest[from..to]);
        let number = text.trim_end().parse().map_err(|_| format!("this is no number: {text}"))?;
        Ok(Some((to, number)))
    }

    /// The number and the token of a contended key, from the reply to a read.
    fn contested(&self, key: usize, rest: &[u8]) -> Result<Option<(usize, u64, u64)>, String> {
        let lines = if self.dialect == Dialect::Classic { 3 } else { 2 };
        let mut ends = vec![0];
        while ends.len() <= lines {
            let Some(end) = line_end(&rest[ends[ends.len() - 1]..]) else { return Ok(None) };
            ends.push(ends[ends.len() - 1] + end);
        }
        let text = String::from_utf8_lossy(&rest[..ends[lines]]).into_owned();
        let mut lines = text.lines();
        let (head, number) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let token = match self.dialect {
            Dialect::Classic if head.starts_with(&format!("VALUE {} 0 ", contest_name(key))) => {
                head.rsplit(' ').next().unwrap_or_default()
            }
            Dialect::Meta if head.starts_with("VA ") => head.rsplit('c').next().unwrap_or_default(),
            Dialect::Resp2 | Dialect::Resp3 if head.starts_with('$') => "0",
            _ => return Err(format!("this is no value: {text}")),
        };
        let read = |text: &str| text.parse::<u64>().map_err(|_| format!("this is no number: {text}"));
        Ok(Some((text.len(), read(number)?, read(token)?)))
    }
}

fn match_bytes(bytes: &[u8], rest: &[u8]) -> Result<Match, String> {
    if rest.starts_with(bytes) {
        Ok(Match::Is(bytes.len()))
    } else if bytes.starts_with(rest) {
        Ok(Match::More)
    } else {
        Err(format!("the answer goes on with {}", shown(bytes)))
    }
}

/// The length of the first line, with its end.
pub fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\r\n").map(|at| at + 2)
}

/// Reads the bulk string at the front; returns its length in bytes, and its text.
pub fn bulk_at(bytes: &[u8]) -> Result<Option<(usize, &[u8])>, String> {
    let Some(head) = line_end(bytes) else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes[..head]);
    let size = text.trim_end().strip_prefix(['$', '=']).and_then(|size| size.parse::<usize>().ok());
    let size = size.ok_or_else(|| format!("this is no string: {text}"))?;
    Ok((bytes.len() >= head + size + 2).then(|| (head + size + 2, &bytes[head..head + size])))
}

/// The first bytes of a text, in readable form.
pub fn shown(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(300)].escape_ascii().to_string();
    format!("{} bytes \"{text}\"", bytes.len())
}
