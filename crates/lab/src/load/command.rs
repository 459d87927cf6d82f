//! Commands of the user, with checks of their replies.
//!
//! A turn is a key with all commands for it, one after the other. A client sends some turns together and reads their replies. It
//! continues when they are answered, or at times of a clock.

use std::time::{Duration, Instant};

use larder_protocol::client::{Malformed, Protocol};

use super::pace::{Pace, share};
use super::{Options, Ran, shared_cores};
use crate::contender::Target;
use crate::control::Control;
use crate::dialog::{Agent, Dialog, Outcome, Step, Taken};
use crate::error::Error;
use crate::experiment::Checks;
use crate::keys::{Chooser, Prefix};
use crate::progress::Progress;
use crate::results::number;
use crate::tally::Tally;
use crate::template::{Present, Reply, Template, reply};
use crate::value;
use crate::workload::Workload;

/// Bytes that all clients send together at most.
const WINDOWS_BYTES_MAX: u64 = 1 << 30;

/// One client.
#[derive(Debug)]
struct Client<'t> {
    templates: &'t [Template],
    workload: &'t Workload,
    chooser: Chooser,
    pace: Pace,
    version: u64,
    /// Keys of the window under way, and the number of replies so far.
    keys: Vec<u32>,
    answered: usize,
    /// Counts are kept by the second, from this time on.
    origin: Option<Instant>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'t> Client<'t> {
    fn new(args: &Options, templates: &'t [Template], workload: &'t Workload, number: u64) -> Client<'t> {
        let seed = args.seed.wrapping_add(number);
        Client {
            templates,
            workload,
            chooser: Chooser::new(workload.keyspace, workload.choice, seed),
            pace: Pace::new(args, seed),
            version: number << 40,
            keys: Vec::new(),
            answered: 0,
            origin: None,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Begins a run of `left` windows now.
    fn start(&mut self, now: Instant, left: u64, by_second: bool) {
        self.origin = by_second.then_some(now);
        self.pace.start(now, left);
    }

    fn take_turn(&mut self, id: u32, version: u64) {
        self.key.clear();
        self.workload.keyspace.write(&mut self.key, Prefix::Present, id);
        self.value.clear();
        value::write(&mut self.value, id, version, self.workload.value_bytes(id));
    }
}

impl Agent for Client<'_> {
    type Tally = Tally;

    fn next(&mut self, now: Instant, ending: bool, tally: &mut Tally, out: &mut Vec<u8>) -> Step {
        if self.origin.is_some() && tally.series.is_none() {
            tally.series = Tally::since(self.origin).series;
        }
        if let Some(step) = self.pace.next(now, ending) {
            return step;
        }
        self.keys.clear();
        self.answered = 0;
        for _ in 0..self.workload.pipeline {
            let id = self.chooser.next_key();
            self.keys.push(id);
            self.version += 1;
            self.take_turn(id, self.version);
            let turn = Present { id, key: &self.key, value: &self.value };
            self.templates.iter().for_each(|template| template.write(out, turn));
        }
        Step::Request
    }

    fn reply(&mut self, bytes: &[u8], now: Instant, tally: &mut Tally) -> Result<Taken, Error> {
        let read = reply(self.workload.protocol, bytes).map_err(|Malformed| Error::malformed(bytes))?;
        let Some((reply, used)) = read else { return Ok(Taken::Nothing) };
        tally.turn_at(now);
        let which = self.answered % self.templates.len();
        let turn = self.answered / self.templates.len();
        let id = self.keys[turn];
        let templates = self.templates;
        let template = &templates[which];
        // The version at the time when the turn was sent: each turn has its own.
        self.take_turn(id, self.version - (self.keys.len() - 1 - turn) as u64);
        let turn = Present { id, key: &self.key, value: &self.value };
        if !template.holds(&reply, turn) {
            tally.mistake(|| {
                let key = self.key.escape_ascii();
                format!("command {} for {key} is answered by {}", which + 1, reply.words())
            });
        }
        match reply {
            Reply::Value(_) => tally.hits += 1,
            Reply::Nil => tally.misses += 1,
            Reply::Text(_) | Reply::Error(_) | Reply::Number(_) | Reply::Many(_) => {}
        }
        (tally.requests, tally.keys) = (tally.requests + 1, tally.keys + 1);
        self.answered += 1;
        if self.answered < self.keys.len() * self.templates.len() {
            return Ok(Taken::More(used));
        }
        self.pace.answered(now, tally);
        Ok(Taken::All(used))
    }
}

/// The commands, each with its expected reply.
fn templates(args: &Options, protocol: Protocol) -> Result<Vec<Template>, Error> {
    let (commands, expected) = (&args.command, &args.expect);
    if !expected.is_empty() && expected.len() != commands.len() {
        let why = format!("{} --command, {} --expect: one for each, or none", commands.len(), expected.len());
        return Err(Error::Usage(why));
    }
    let read = |(at, command): (usize, &String)| {
        let expected = expected.get(at).map_or("any", String::as_str);
        Template::parse(protocol, command, expected)
            .map_err(|why| Error::Usage(format!("--command {command:?} --expect {expected:?}: {why}")))
    };
    commands.iter().enumerate().map(read).collect()
}

/// The counts of all threads of a dialog.
pub(super) fn counted(outcome: Outcome<Tally>, threads: usize) -> Tally {
    let (elapsed, busy, waited) = (outcome.elapsed, outcome.busy, outcome.waited);
    let mut tally = Tally::default();
    for mut part in outcome.tallies {
        part.end();
        tally.merge(part);
    }
    (tally.elapsed, tally.waited) = (elapsed, waited);
    // It is known of the busiest thread, and the others were no busier.
    tally.generator_cpu = elapsed.mul_f64(busy * threads as f64);
    tally
}

/// Runs the commands.
pub(super) fn run(
    args: &Options,
    control: &Control,
    protocol: Protocol,
    cores: &[Option<usize>],
) -> Result<Ran, Error> {
    let templates = templates(args, protocol)?;
    let workload = args.workload(protocol)?;
    let window =
        workload.pipeline as u64 * templates.len() as u64 * (workload.value_bytes_max() as u64 + 128);
    if window.saturating_mul(workload.connections as u64) > WINDOWS_BYTES_MAX {
        let why = "what is sent together takes more than 1 GiB: fewer connections or requests at a time";
        return Err(Error::Usage(why.to_owned()));
    }
    let Target { name, endpoint, .. } = &args.target;
    eprintln!("{name} {}; it is written to", control.claim(args.flush_target)?);
    let clients = workload.connections as u64;
    let all = (0..clients).map(|number| Client::new(args, &templates, &workload, number)).collect();
    let mut dialog = Dialog::connect(endpoint, all, cores)?;
    if !shared_cores(control, &args.placement(cores)).is_empty() {
        dialog.sleep();
    }
    let mut others = Tally::default();
    if let Some(seconds) = args.warm_up {
        let now = Instant::now();
        dialog.agents_mut().for_each(|client| client.start(now, u64::MAX, false));
        let time = Duration::from_secs_f64(seconds);
        let outcome = Progress::seconds("warm-up", Some(time), || dialog.run(time))?;
        outcome.tallies.into_iter().for_each(|part| others.merge(part));
    }
    let windows =
        args.requests.map(|requests| requests.div_ceil((workload.pipeline * templates.len()) as u64));
    let (outcome, started, server) = args.watched(|| {
        let now = Instant::now();
        for (client, number) in dialog.agents_mut().zip(0..) {
            client.start(now, share(windows, number, clients), true);
        }
        dialog.run(args.time())
    })?;
    let tally = counted(outcome, cores.len());
    let mut settings: Vec<(String, String)> = Vec::new();
    for (at, command) in args.command.iter().enumerate() {
        let expected = args.expect.get(at).map_or("any", String::as_str);
        settings.push((format!("command {}", at + 1), format!("{command} → {expected}")));
    }
    for (name, value) in [
        ("protocol", format!("{protocol:?}")),
        ("keys", workload.keyspace.count.to_string()),
        ("choice of keys", format!("{:?}", workload.choice)),
        ("bytes of values", args.request.value_bytes.to_string()),
        ("seconds at most", args.time().as_secs_f64().to_string()),
        ("seconds of warming up", args.warm_up.unwrap_or(0.0).to_string()),
    ] {
        settings.push((name.to_owned(), value));
    }
    Ok(Ran {
        tally,
        others,
        back: Tally::default(),
        placement: args.placement(cores),
        started,
        server,
        books: None,
        checks: Checks::default(),
        pipeline: workload.pipeline * templates.len(),
        offered: args.rate.map(|rate| format!("{} windows a second that were offered", number::text(rate))),
        settings,
        remarks: vec![
            "what the server counted is not compared: only it knows what these commands count".to_owned(),
        ],
        ceiling: None,
    })
}
