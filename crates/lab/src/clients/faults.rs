//! What clients do when the server does not answer, or answers wrongly.
//!
//! All callers get existing keys, through a relay that is harmless at first, harmful for [`HARM`], and harmless again:
//!
//! ```text
//! 0      BEFORE               BEFORE + HARM           TIME
//! | well | refused, stopped … | recovers: well, again |
//! ```
//!
//! ```text
//! calls = values that were the key's + wrong ones + misses, all of them false + errors, timeouts among them
//! ```

use std::thread;
use std::time::{Duration, Instant};

use larder_eventloop::socket::Address;
use rustix::process::Signal;

use super::roster::{Client, OWN, OWN_VERIFIED};
use super::visit::{Bench, Callers, Op, Setting};
use crate::driver::build::Language;
use crate::driver::{Done, Job};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::relay::{Harm, OFTEN, Trouble};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Connections are closed, and refused.
    Refused,
    /// The server stands still.
    Stopped,
    /// Every reply comes later, within the timeout.
    Slow,
    /// Every reply comes after the timeout.
    Late,
    /// Every reply comes about when its caller gives up.
    Hasty,
    /// Some replies are cut in the middle, and the connection closed.
    Cut,
    /// Some replies come twice, so that those behind them belong to another request.
    Lying,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 7] =
        [Fault::Refused, Fault::Stopped, Fault::Slow, Fault::Late, Fault::Hasty, Fault::Cut, Fault::Lying];

    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Refused => "refused",
            Fault::Stopped => "stopped",
            Fault::Slow => "slow",
            Fault::Late => "late",
            Fault::Hasty => "hasty",
            Fault::Cut => "cut",
            Fault::Lying => "lying",
        }
    }

    /// The fault in words, for the page.
    pub fn words(self) -> String {
        match self {
            Fault::Refused => "connections are closed and refused".to_owned(),
            Fault::Stopped => "the server's process stands still".to_owned(),
            Fault::Slow => format!("replies come {SLOW_MS} ms later"),
            Fault::Late => format!("replies come {LATE_MS} ms later, after the timeout"),
            Fault::Hasty => {
                format!("replies come {HASTY_MS} ms later, and callers give up after {HASTY_MS} ms")
            }
            Fault::Cut => format!("1 of {OFTEN} pieces of replies is cut, and the connection closed"),
            Fault::Lying => format!("1 of {OFTEN} pieces of replies comes twice"),
        }
    }

    /// The clients' timeout, in ms, where they have such an option.
    fn timeout_ms(self) -> u64 {
        if self == Fault::Hasty { HASTY_MS.into() } else { TIMEOUT_MS }
    }

    /// Whether the server's answers are true, if there are any.
    pub fn is_honest(self) -> bool {
        self != Fault::Lying
    }

    fn harm(self) -> Harm {
        match self {
            Fault::Refused => Harm::Refuse,
            Fault::Stopped => Harm::None,
            Fault::Slow => Harm::Slow(SLOW_MS),
            Fault::Late => Harm::Slow(LATE_MS),
            Fault::Hasty => Harm::Slow(HASTY_MS),
            Fault::Cut => Harm::Cut,
            Fault::Lying => Harm::Twice,
        }
    }
}

/// The timeout of most faults, in ms.
pub const TIMEOUT_MS: u64 = 100;
const HASTY_MS: u32 = 2;
const SLOW_MS: u32 = 50;
const LATE_MS: u32 = 150;
/// Time before the fault.
const BEFORE: Duration = Duration::from_millis(200);
/// Time of the fault.
pub const HARM: Duration = Duration::from_millis(1_000);
/// Time of a visit: before, during and after the fault.
const TIME: Duration = Duration::from_millis(2_200);
/// The pause of a caller after a call that failed, as of a program that has other work.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes of the values.
pub const VALUE_BYTES: usize = 100;

/// The number of callers: many where they cost little.
pub fn callers(language: Language) -> u64 {
    match language {
        Language::Go => 256,
        _ => 16,
    }
}

/// The result of a visit.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Calls that returned.
    pub calls: u64,
    /// Calls that returned the key's value.
    pub right: u64,
    /// Calls that returned another value.
    pub wrong: u64,
    /// Calls that returned a miss, although the key exists.
    pub misses: u64,
    /// Calls that returned an error.
    pub told: u64,
    /// Of these, timeouts.
    pub timeouts: u64,
    /// Mean time of a call that returned an error, in µs.
    pub told_us: Option<f64>,
    /// The longest call, in ms.
    pub longest_ms: f64,
    /// Connections a second during the harm; `None` if they cannot be counted.
    pub connects: Option<f64>,
    /// How long after the harm the last error was returned, in ms.
    pub recovered_ms: f64,
    /// How the driver ended, if by itself; then nothing else is known.
    pub ended: Option<String>,
}

/// Has a client make calls during a fault.
///
/// # Errors
/// When server or driver cannot be asked; a driver that ends by itself is no error.
pub fn visit(
    experiment: &mut Experiment,
    bench: &Bench,
    contender: usize,
    client: Client,
    fault: Fault,
) -> Result<Account, Error> {
    let callers = Callers::Steady(callers(client.language));
    let setting = Setting { client, op: Op::Hit, value_bytes: VALUE_BYTES, callers };
    let job = bench.job(experiment, contender, &setting)?;
    // Only servers that the lab has started are harmed, and they listen at 127.0.0.1.
    let Address::Tcp(server) = *experiment.contenders[contender].address() else {
        unreachable!("a server of the lab's has a port");
    };
    let relay = Trouble::start(server)?;
    let job = Job {
        time_ns: TIME.as_nanos() as u64,
        pause_ns: PAUSE.as_nanos() as u64,
        timeout_ms: fault.timeout_ms(),
        ..job.at(relay.address)
    };
    let mut driver = bench.another(client.language)?;
    driver.ready(&job)?;
    driver.tell_to_go();
    let began = Instant::now();
    thread::sleep(BEFORE);
    let taken = relay.taken();
    let stopped = fault == Fault::Stopped;
    relay.set(fault.harm());
    if stopped {
        experiment.contenders[contender].signal(Signal::STOP)?;
    }
    let harmed = Instant::now();
    thread::sleep(HARM);
    let connects = relay.taken() - taken;
    if stopped {
        experiment.contenders[contender].signal(Signal::CONT)?;
    }
    relay.set(Harm::None);
    let (harmed, well) = (harmed.elapsed(), began.elapsed());
    let done = match driver.wait_done() {
        Ok(done) => done,
        Err(Error::Peer(how)) => return Ok(Account { ended: Some(how), ..Account::default() }),
        Err(error) => return Err(error),
    };
    let mut account = Account::of(&done);
    // The relay does not see refused connections. The client's own count of the whole visit is used, without those before the
    // fault.
    account.connects = match fault {
        Fault::Refused => {
            let all = done.connections.saturating_sub(relay.taken());
            (done.connections > 0).then(|| all as f64 / harmed.as_secs_f64())
        }
        _ => Some(connects as f64 / harmed.as_secs_f64()),
    };
    account.recovered_ms = (done.last_error_ns as f64 / 1e6 - well.as_secs_f64() * 1e3).max(0.0);
    let name = format!("{}, {}, {}", experiment.contenders[contender].name, client.full_name(), fault.name());
    check(experiment, client, fault, &account, &name);
    Ok(account)
}

impl Account {
    /// Number of values that were read, right or wrong.
    pub fn values(&self) -> u64 {
        self.right + self.wrong
    }

    /// Adds up this visit and another.
    pub fn add(&mut self, other: &Account) {
        let told = self.told + other.told;
        let told_us = |account: &Account| account.told_us.unwrap_or(0.0) * account.told as f64;
        self.told_us = (told > 0).then(|| (told_us(self) + told_us(other)) / told as f64);
        self.calls += other.calls;
        self.right += other.right;
        self.wrong += other.wrong;
        self.misses += other.misses;
        self.told = told;
        self.timeouts += other.timeouts;
        self.longest_ms = self.longest_ms.max(other.longest_ms);
        self.connects = self.connects.zip(other.connects).map(|(a, b)| a.max(b));
        self.recovered_ms = self.recovered_ms.max(other.recovered_ms);
        self.ended = self.ended.take().or_else(|| other.ended.clone());
    }

    fn of(done: &Done) -> Account {
        Account {
            calls: done.calls,
            right: done.ok.saturating_sub(done.wrong),
            wrong: done.wrong,
            misses: done.misses,
            told: done.told,
            timeouts: done.timeouts,
            told_us: (done.told > 0).then(|| done.told_ns as f64 / 1e3 / done.told as f64),
            longest_ms: done.latencies().quantile_us(1.0) / 1e3,
            ..Account::default()
        }
    }
}

/// Checks that every call has one outcome, and that Larder's own clients are never wrong: with a server whose answers are true,
/// and with any server if replies are verified.
fn check(experiment: &mut Experiment, client: Client, fault: Fault, account: &Account, name: &str) {
    let Account { calls, right, wrong, misses, told, timeouts, .. } = *account;
    let checks = &mut experiment.checks;
    checks.equal("every call beside a fault has one outcome", calls, right + wrong + misses + told, name);
    checks.add("timeouts are errors", timeouts <= told, || format!("{name}: {timeouts} of {told}"));
    let own = client.name.starts_with(OWN);
    if own && (fault.is_honest() || client.name == OWN_VERIFIED) {
        checks.add("no value of Larder's own client was wrong", wrong == 0, || format!("{name}: {wrong}"));
        checks
            .add("Larder's own client took no fault for a miss", misses == 0, || format!("{name}: {misses}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_adds_up() {
        let done = Done { calls: 10, ok: 6, wrong: 1, misses: 1, told: 3, timeouts: 2, ..Done::default() };
        let account = Account::of(&Done { told_ns: 9_000, ..done });
        assert_eq!((account.right, account.wrong, account.misses, account.told), (5, 1, 1, 3));
        assert_eq!(account.right + account.wrong + account.misses + account.told, account.calls);
        assert_eq!(account.told_us, Some(3.0));
    }

    #[test]
    fn visits_of_a_fault_add_up_to_sums_and_worst_cases() {
        let of = |told, told_us, longest_ms| Account {
            calls: 10,
            right: 8,
            wrong: 1,
            told,
            told_us,
            longest_ms,
            connects: Some(longest_ms),
            ..Account::default()
        };
        let mut sum = of(1, Some(8.0), 5.0);
        sum.add(&of(3, Some(4.0), 2.0));
        assert_eq!((sum.calls, sum.values(), sum.told), (20, 18, 4));
        assert_eq!((sum.told_us, sum.longest_ms, sum.connects), (Some(5.0), 5.0, Some(5.0)));
        sum.add(&Account { ended: Some("it ended".to_owned()), ..of(0, None, 9.0) });
        assert_eq!((sum.told_us, sum.longest_ms), (Some(5.0), 9.0));
        assert_eq!(sum.ended.as_deref(), Some("it ended"));
    }

    #[test]
    fn faults_have_names_and_words_of_their_own() {
        for (at, fault) in Fault::ALL.iter().enumerate() {
            assert!(Fault::ALL[..at].iter().all(|other| other.name() != fault.name()));
            assert!(!fault.words().is_empty());
        }
    }
}
