//! The results of calls when something goes wrong, and the values that were really stored.
//!
//! Each visit has a server of its own. A driver stores one key after the other, each once. In the middle the fault happens. In
//! the end every key is read over another connection:
//!
//! ```text
//! lost without an error = calls that returned OK − keys that exist − errors of the last flush and barrier
//! ```

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::setting::{BUFFER, Client, Handle, Link, Op, Options, Reply, Setting};
use super::visit::{Bench, check_options};
use crate::contender::{Contender, Setup};
use crate::control::Control;
use crate::driver::own::Way;
use crate::driver::reach::Reach;
use crate::driver::{Done, Driver, Ended, Job, Said};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::keys::Keyspace;
use crate::peers::Kind;
use crate::sizes::Sizes;
use crate::walk::{Deed, Keys, walk};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The process exits after its last call, and closes nothing.
    Leaves,
    /// The server stands still for [`STOP`] after half of the calls.
    Stopped,
    /// The server is full, and evicts nothing.
    Full,
    /// One value in the middle is larger than the server takes.
    TooLarge,
    /// The server is killed after half of the calls.
    Killed,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 6] =
        [Fault::None, Fault::Leaves, Fault::Stopped, Fault::Full, Fault::TooLarge, Fault::Killed];

    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Fault::None => "none",
            Fault::Leaves => "exits, closes nothing",
            Fault::Stopped => "server stopped 300 ms",
            Fault::Full => "server full",
            Fault::TooLarge => "a value too large",
            Fault::Killed => "server killed half-way",
        }
    }
}

/// Ways to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The client of the calls.
    pub client: Client,
    /// Whether the calls have replies.
    pub reply: Reply,
}

impl Mode {
    const fn library(options: u8, reply: Reply) -> Mode {
        Mode { client: Client::Library(Options(options)), reply }
    }

    /// All ways to store.
    pub const ALL: [Mode; 9] = [
        Mode::library(0, Reply::Awaited),
        Mode::library(BUFFER, Reply::Awaited),
        Mode::library(0, Reply::Noreply),
        Mode { client: Client::ByHand, reply: Reply::Awaited },
        Mode { client: Client::Batch, reply: Reply::Awaited },
        Mode { client: Client::Own(Way::OneByOne), reply: Reply::Awaited },
        Mode { client: Client::Own(Way::Batch), reply: Reply::Awaited },
        Mode { client: Client::Own(Way::Stream), reply: Reply::Awaited },
        Mode { client: Client::Own(Way::Quiet), reply: Reply::Awaited },
    ];

    /// Its name in options and tables.
    pub fn name(self) -> String {
        match (self.client, self.reply) {
            (Client::Library(Options(0)), Reply::Awaited) => "as shipped".to_owned(),
            (Client::Library(Options(0)), Reply::Noreply) => "NOREPLY".to_owned(),
            (client, _) => client.name(),
        }
    }

    /// The reply to each store is read before, or with, the return of the call: then no value may be lost without an error.
    pub fn is_acknowledged(self) -> bool {
        match self.client {
            Client::Library(options) => self.reply == Reply::Awaited && !options.has(BUFFER),
            Client::ByHand | Client::Batch | Client::Own(Way::OneByOne | Way::Batch) => true,
            Client::Own(Way::Stream | Way::Quiet) => false,
        }
    }

    /// A barrier at the end reports all results: no value that it covers may be lost without an error.
    pub fn reports(self) -> bool {
        matches!(self.client, Client::Own(Way::Stream | Way::Quiet))
    }
}

/// The result of a visit.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Calls that returned.
    pub calls: u64,
    /// Calls that returned done, or queued.
    pub said_ok: u64,
    /// Keys that the server had in the end, or until it was killed.
    pub stored: u64,
    /// Errors that calls returned.
    pub told: u64,
    /// Errors of the flush and the barrier at the end.
    pub late: u64,
    /// The first call that returned an error.
    pub first_error_at: Option<u64>,
    /// The longest call, in ms.
    pub longest_ms: f64,
    /// How long after half of the calls another connection saw all their values, in ms; none if it did not within [`VISIBLE`].
    pub visible_ms: Option<f64>,
    /// How the process ended, if by itself.
    pub ended: Option<Ended>,
}

impl Account {
    /// Stores that were acknowledged and lost, without an error of any call.
    pub fn untold(&self) -> u64 {
        self.said_ok.saturating_sub(self.stored).saturating_sub(self.late)
    }
}

/// Calls of a visit, and bytes of their values.
const CALLS: (u64, usize) = (3_000, 100);
/// The same where the server must become full.
const FULL_CALLS: (u64, usize) = (12_000, 1_000);
/// Memory of a server that must become full, and of others.
const FULL_MB: u32 = 8;
const ROOMY_MB: u32 = 64;
/// Bytes of a value that no server accepts with its default settings.
const LARGE_BYTES: usize = 1_500_000;
/// Time for which a server stands still.
const STOP: Duration = Duration::from_millis(300);
/// How long another connection looks for the stored keys.
pub const VISIBLE: Duration = Duration::from_millis(200);
/// Version of the values.
const VERSION: u64 = 2;

/// Stores in one way on a server of this kind during a fault.
///
/// # Errors
/// When server or driver cannot be asked; a driver that ends by itself is no error.
pub fn visit(
    experiment: &mut Experiment,
    bench: &Bench,
    kind: Kind,
    mode: Mode,
    fault: Fault,
) -> Result<Account, Error> {
    let (calls, value_bytes) = if fault == Fault::Full { FULL_CALLS } else { CALLS };
    let memory_mb = if fault == Fault::Full { FULL_MB } else { ROOMY_MB };
    let setup = Setup { memory_mb, ..experiment.setup.clone() };
    let server = Contender::start_with(kind, &setup, if fault == Fault::Full { &["-M"] } else { &[] })?;
    let Mode { client, reply } = mode;
    let setting =
        Setting { client, op: Op::Set, value_bytes, handle: Handle::Kept, reply, link: Link::Loopback };
    let half = calls / 2;
    let job = Job {
        first: 0,
        keys: calls as u32,
        version: VERSION,
        ops_min: calls,
        ops_max: calls,
        cold: true,
        leave: fault == Fault::Leaves,
        pause_at: if matches!(fault, Fault::None | Fault::Stopped | Fault::Killed) { half } else { 0 },
        large_at: if fault == Fault::TooLarge { half } else { 0 },
        large_bytes: if fault == Fault::TooLarge { LARGE_BYTES } else { 0 },
        ..setting.job().on(Reach::of(&server.control)?)
    };
    let mut driver = bench.another(client)?;
    let name = format!("{}, {}, {}", server.name, mode.name(), fault.name());
    let mut account = Account::default();
    match driver.prepare(&job)? {
        Ok(ready) => check_options(&mut experiment.checks, &name, &setting, &ready),
        Err(ended) => {
            account.ended = Some(ended);
            return Ok(account);
        }
    }
    let counted = || server.control.counters().map(|counters| counters.number("cmd_set").unwrap_or(0));
    let before = counted()?;
    let mut said = driver.go()?;
    let mut killed_with = None;
    if let Said::Paused(paused) = &said {
        match fault {
            Fault::None => account.visible_ms = visible(&server.control, before + paused.paused)?,
            Fault::Killed => {
                killed_with = Some(sets_received(&server.control)? - before);
                server.signal(Signal::KILL)?;
            }
            Fault::Stopped => server.signal(Signal::STOP)?,
            Fault::Leaves | Fault::Full | Fault::TooLarge => {}
        }
        said = go_on(&mut driver, &server, fault)?;
    }
    match said {
        Said::Done(done) => account.take(&done),
        Said::Ended(ended) => {
            (account.calls, account.said_ok) = ended.calls.unwrap_or_default();
            account.ended = Some(ended);
        }
        Said::Paused(_) => return Err(Error::Peer("a driver waits a second time".to_owned())),
    }
    // A driver that is dropped has ended before counting begins.
    drop(driver);
    account.stored = match killed_with {
        Some(stored) => stored,
        None => read_back(experiment, &server, calls as u32, value_bytes, &name)?,
    };
    check(experiment, mode, fault, &account, &name);
    Ok(account)
}

/// Lets a driver that waits go on; a server that stands still does so for a while.
fn go_on(driver: &mut Driver, server: &Contender, fault: Fault) -> Result<Said, Error> {
    if fault != Fault::Stopped {
        return driver.go();
    }
    driver.tell_to_go();
    thread::sleep(STOP);
    server.signal(Signal::CONT)?;
    driver.wait()
}

impl Account {
    fn take(&mut self, done: &Done) {
        self.calls = done.calls;
        self.said_ok = done.ok + done.queued;
        self.told = done.told;
        self.late = done.late;
        self.first_error_at = (done.told > 0).then_some(done.first_error_at);
        self.longest_ms = done.latencies().quantile_us(1.0) / 1e3;
    }
}

/// Checks that every call has one outcome; and that, where every reply is read, no value is lost without an error.
fn check(experiment: &mut Experiment, mode: Mode, fault: Fault, account: &Account, name: &str) {
    if account.ended.is_none() {
        let outcomes = account.said_ok + account.told;
        experiment.checks.equal("every call returned OK or an error", account.calls, outcomes, name);
    }
    if mode.is_acknowledged() {
        let claim = "where every reply is read, nothing is lost without an error";
        experiment.checks.add(claim, account.untold() == 0, || {
            format!("{name}: {} returned OK, {} are stored", account.said_ok, account.stored)
        });
    }
    if mode.reports() && fault != Fault::Leaves {
        let claim = "behind a barrier, what was sent is stored, refused or unknown";
        experiment.checks.add(claim, account.untold() == 0, || {
            let Account { said_ok, stored, late, .. } = account;
            format!("{name}: {said_ok} sent, {stored} are stored, {late} errors")
        });
    }
}

/// How long it takes until the server has counted this many sets; `None` if it has not within [`VISIBLE`].
fn visible(control: &Control, wanted: u64) -> Result<Option<f64>, Error> {
    let began = Instant::now();
    loop {
        let have = control.counters()?.number("cmd_set").unwrap_or(0);
        if have >= wanted {
            return Ok(Some(began.elapsed().as_secs_f64() * 1e3));
        }
        if began.elapsed() > VISIBLE {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Readings in a row of a count that no longer changes.
const RESTING: u32 = 5;

/// How many sets the server has counted when it has received all that were sent.
fn sets_received(control: &Control) -> Result<u64, Error> {
    let mut last = None;
    let mut same = 0;
    loop {
        let now = control.counters()?.number("cmd_set").unwrap_or(0);
        same = if last == Some(now) { same + 1 } else { 0 };
        if same == RESTING {
            return Ok(now);
        }
        last = Some(now);
        thread::sleep(Duration::from_millis(10));
    }
}

/// How many of the keys exist, read over other connections; each must have the value that was set.
fn read_back(
    experiment: &mut Experiment,
    server: &Contender,
    keys: u32,
    value_bytes: usize,
    name: &str,
) -> Result<u64, Error> {
    sets_received(&server.control)?;
    let space = Keyspace { count: keys, ..Keyspace::new(keys, value_bytes) };
    let deed = Deed::Read { sizes: Sizes::Fixed(value_bytes), version: VERSION };
    let counts = walk(server, Keys::all(space), &deed, &experiment.generator_cores)?;
    experiment.checks.add("what is there after a fault is what was set", counts.wrong == 0, || {
        format!(
            "{name}: {} of {} are not: {}",
            counts.wrong,
            counts.done,
            counts.first.as_deref().unwrap_or_default()
        )
    });
    Ok(counts.done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_is_what_was_said_to_be_done_and_is_not_but_for_what_was_told_in_the_end() {
        let account = Account { said_ok: 1_000, stored: 587, ..Account::default() };
        assert_eq!(account.untold(), 413);
        assert_eq!(Account { late: 2, ..account.clone() }.untold(), 411);
        // A call that returned an error, and was done all the same, neither makes up for a loss nor counts as one.
        assert_eq!(Account { stored: 1_001, ..account }.untold(), 0);
    }

    #[test]
    fn ways_to_store_have_names_and_most_of_them_read_every_reply() {
        let names: Vec<String> = Mode::ALL.iter().map(|mode| mode.name()).collect();
        assert_eq!(names[..5], ["as shipped", "BUFFER", "NOREPLY", "by hand", "by hand, 64 together"]);
        assert_eq!(names[7..], ["larder-client, stream", "larder-client, quiet"]);
        let acknowledged: Vec<bool> = Mode::ALL.iter().map(|mode| mode.is_acknowledged()).collect();
        assert_eq!(acknowledged, [true, false, false, true, true, true, true, false, false]);
        assert_eq!(
            Mode::ALL.map(Mode::reports),
            [false, false, false, false, false, false, false, true, true]
        );
    }
}
