//! Compares the clients' claims with the counters and with the server's own figures.

use larder_protocol::client::{Answer, Asked, Protocol, command, counter};

use super::client::{Counts, Task};
use super::method::{INITIAL, Method, Stamp};
use crate::control::{Control, Counters, Family};
use crate::dialog::answer;
use crate::error::Error;
use crate::experiment::Experiment;

/// Counters before a visit.
#[derive(Debug)]
pub struct Ledger {
    control: Control,
    task: Task,
    before: Counters,
}

/// Bytes of questions sent at once.
const BATCH: usize = 500;

impl Ledger {
    /// Stores the counters anew and reads the server's figures.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not do it.
    pub fn open(control: &Control, task: &Task) -> Result<Ledger, Error> {
        let protocol = control.family.protocol(Protocol::Classic);
        for (batch, names) in task.names.chunks(BATCH).enumerate() {
            let mut question = Vec::new();
            for (index, name) in names.iter().enumerate() {
                let key = (batch * BATCH + index) as u32;
                let value = match task.method.is_server_side() {
                    true => INITIAL.to_string(),
                    false => Stamp { counter: INITIAL, key, client: 0, seq: 0 }.text(),
                };
                protocol.set(&mut question, name.as_bytes(), value.as_bytes(), 0);
            }
            let stored = match control.family {
                Family::Memcached => "STORED\r\n",
                Family::Redis => "+OK\r\n",
            };
            let reply = control.ask(question, &stored.repeat(names.len()))?;
            if reply.len() != stored.len() * names.len() {
                return Err(Error::Peer(format!("{} does not store the counters: {reply}", control.name)));
            }
        }
        Ok(Ledger { control: control.clone(), task: task.clone(), before: control.counters()? })
    }

    /// Compares the server's figures, each counter and every reply. Returns what is missing from the sum of the counters.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not answer.
    pub fn compare(
        self,
        experiment: &mut Experiment,
        name: &str,
        counts: &Counts,
        acknowledged: &[u64],
    ) -> Result<u64, Error> {
        let after = self.control.counters()?;
        let checks = &mut experiment.checks;
        checks.add("every reply was the right one", counts.wrong == 0, || match &counts.first_wrong {
            Some(first) => format!("{name}: {} wrong, the first: {first}", counts.wrong),
            None => format!("{name}: {} replies", counts.reads + counts.attempts),
        });
        for (what, ours, theirs) in self.figures(counts, &after) {
            let claim = format!("the server counted the same {what}");
            checks.equal(&claim, ours, theirs, name);
        }
        let mut missing = 0;
        for (key, (&acknowledged, now)) in acknowledged.iter().zip(self.counters()?).enumerate() {
            let gone = INITIAL.saturating_sub(now);
            missing += gone;
            if self.task.method != Method::Blind {
                let claim = "of each counter, what is missing was acknowledged";
                checks.equal(claim, acknowledged, gone, &format!("{name}, counter {key}"));
            }
        }
        Ok(missing)
    }

    /// What both sides count: the name, the clients' number, the server's number.
    fn figures(&self, counts: &Counts, after: &Counters) -> Vec<(&'static str, u64, u64)> {
        let grown = |name| {
            let read = |counters: &Counters| counters.number(name).unwrap_or(0);
            read(after).wrapping_sub(read(&self.before))
        };
        let called = |command| after.called_since(&self.before, command);
        // A server may count no commands: then only the counters themselves are compared.
        let counted = |figures: &[(&'static str, u64, Option<u64>)]| -> Vec<(&'static str, u64, u64)> {
            figures.iter().filter_map(|&(what, ours, theirs)| Some((what, ours, theirs?))).collect()
        };
        let Counts { reads, attempts, stored, refused, .. } = *counts;
        match (self.task.method, self.control.family) {
            (Method::GetsCas | Method::Meta, _) => vec![
                ("reads", reads, grown("get_hits")),
                ("successes", stored, grown("cas_hits")),
                ("refusals", refused, grown("cas_badval")),
            ],
            (Method::Decr | Method::Ma, Family::Memcached) => vec![("successes", stored, grown("decr_hits"))],
            (Method::Decr | Method::Ma, Family::Redis) => counted(&[("successes", stored, called("decr"))]),
            // SET counts as called when EXEC runs it, not when it is queued.
            (Method::Watch, _) => counted(&[
                ("reads", reads, called("get")),
                ("attempts", attempts, called("exec")),
                ("successes", stored, called("set")),
            ]),
            (Method::Blind, Family::Memcached) => {
                vec![("reads", reads, grown("get_hits")), ("writes", stored, grown("cmd_set"))]
            }
            (Method::Blind, Family::Redis) => {
                counted(&[("reads", reads, called("get")), ("writes", stored, called("set"))])
            }
        }
    }

    /// The counters as they are now.
    fn counters(&self) -> Result<Vec<u64>, Error> {
        let protocol = self.control.family.protocol(Protocol::Classic);
        let lost = || Error::Peer(format!("{} has lost counters", self.control.name));
        let mut all = Vec::new();
        for names in self.task.names.chunks(BATCH) {
            let mut question = Vec::new();
            names.iter().for_each(|name| protocol.get(&mut question, [name.as_bytes()]));
            // Values have no end mark of their own, so another question follows whose answer ends the reply.
            let (last, end) = match self.control.family {
                Family::Memcached => ("mn\r\n", "MN\r\n"),
                Family::Redis => ("PING\r\n", "+PONG\r\n"),
            };
            question.extend_from_slice(last.as_bytes());
            let reply = self.control.ask(question, end)?;
            let mut rest = reply.as_bytes();
            for _ in names {
                let (found, used) = answer(protocol, Asked::Get, rest)?.ok_or_else(lost)?;
                let Answer::Value(value) = found else { return Err(lost()) };
                let digits = value.split(|&byte| byte == b' ').next().unwrap_or_default();
                all.push(counter(digits).unwrap_or(u64::MAX));
                rest = &rest[used..];
            }
        }
        Ok(all)
    }
}

/// Proves before anything is measured that this server refuses a write if the counter has changed since it was read.
///
/// # Errors
/// [`Error::Peer`] when the server does not answer.
pub fn deliberate_conflict(experiment: &mut Experiment, contender: usize) -> Result<(), Error> {
    let control = &experiment.contenders[contender].control;
    let methods: &[Method] = match control.family {
        Family::Memcached => &[Method::GetsCas, Method::Meta],
        Family::Redis => &[Method::Watch],
    };
    let key = super::method::key_name(0);
    for &method in methods {
        let (refused, found) = match control.family {
            Family::Memcached => {
                control.ask(format!("set {key} 0 0 1\r\n1\r\n"), "STORED\r\n")?;
                let reply = control.ask(format!("gets {key}\r\n"), "END\r\n")?;
                let token =
                    reply.lines().next().and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
                control.ask(format!("set {key} 0 0 1\r\n2\r\n"), "STORED\r\n")?;
                let mut write = Vec::new();
                method.ask_write(control.family, &mut write, &key, "3", token.unwrap_or(0));
                let reply = control.ask(write, "\r\n")?;
                (token.is_some() && matches!(reply.as_str(), "EXISTS\r\n" | "EX\r\n"), reply)
            }
            Family::Redis => {
                // Within one connection: a write by the same client breaks a watch as any other does.
                let (mut question, name) = (Vec::new(), key.as_bytes());
                let words: [&[&[u8]]; 7] = [
                    &[b"SET", name, b"1"],
                    &[b"WATCH", name],
                    &[b"SET", name, b"2"],
                    &[b"MULTI"],
                    &[b"SET", name, b"3"],
                    &[b"EXEC"],
                    &[b"PING"],
                ];
                words.iter().for_each(|words| command(&mut question, words));
                let reply = control.ask(question, "+PONG\r\n")?;
                (reply.ends_with("+QUEUED\r\n*-1\r\n+PONG\r\n"), reply)
            }
        };
        let now = match control.family {
            Family::Memcached => control.ask(format!("get {key}\r\n"), "END\r\n")?,
            Family::Redis => control.ask(format!("GET {key}\r\nPING\r\n"), "+PONG\r\n")?,
        };
        let kept = now.contains("\r\n2\r\n");
        let name = control.name.clone();
        experiment.checks.add("a deliberate conflict is refused", refused && kept, || {
            format!("{name}, {}: {}", method.name(), found.trim_end().replace("\r\n", " "))
        });
    }
    Ok(())
}
