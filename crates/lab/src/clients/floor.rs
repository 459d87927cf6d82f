//! The cost of a hit for a loop by hand if the server does nothing: a server of fixed replies takes the servers' place.
//!
//! This is what the client and the kernel cost, and the ceiling of what can be measured. A loop by hand that is not faster here
//! than with a server was disturbed by something else.

use std::time::Duration;

use larder_eventloop::socket::Address;

use super::visit::{Bench, Sample, Setting, VERSION};
use crate::driver::Job;
use crate::driver::reach::Reach;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::keys::{Keyspace, Prefix};
use crate::null::{Canned, Null, Running};
use crate::route::SocketKind;
use crate::value;

/// Bytes of the value.
pub const VALUE_BYTES: usize = 100;
/// Least number of visits. A floor is the best of them.
pub const VISITS_MIN: usize = 3;

/// A loop by hand on the null server.
#[derive(Debug)]
pub struct Floor {
    /// The client, and the number of callers.
    pub setting: Setting,
    /// The results, by visit.
    pub samples: Vec<Sample>,
}

/// The reply to every request: the one key's value.
fn canned(key: u32, value_bytes: usize) -> Canned {
    let (mut name, mut bytes) = (Vec::new(), Vec::new());
    Keyspace::new(1, value_bytes).write(&mut name, Prefix::Present, key);
    value::write(&mut bytes, key, VERSION, value_bytes);
    let head = [b"VALUE ", name.as_slice(), format!(" 0 {value_bytes}\r\n").as_bytes()].concat();
    Canned { request_bytes: name.len() + b"get \r\n".len(), reply: [&head, &*bytes, b"\r\nEND\r\n"].concat() }
}

/// Where drivers reach a null server.
fn reach(null: &Running) -> Reach {
    match null.address() {
        Address::Tcp(address) => Reach::Tcp(*address),
        Address::Unix(path) => Reach::Unix(path.to_string_lossy().into_owned()),
    }
}

/// Visits a null server `visits` times with a loop by hand. It has the first server's kind of socket, and no TLS.
///
/// # Errors
/// When it cannot listen, or the driver ends.
pub fn visit(
    experiment: &mut Experiment,
    bench: &mut Bench,
    setting: &Setting,
    time: Duration,
    visits: usize,
) -> Result<Floor, Error> {
    let job = bench.job(experiment, 0, setting)?;
    let canned = canned(job.first, setting.value_bytes);
    let socket = SocketKind::of(experiment.contenders[0].address());
    let null = Null::answering_in_background(canned, experiment.server_core, socket)?;
    let time_ns = time.as_nanos() as u64;
    let job = Job { keys: 1, time_ns, ..job.on(reach(&null)) };
    let mut samples = Vec::new();
    for _ in 0..visits {
        let driver = bench.driver(setting.client.language)?;
        driver.ready(&job)?;
        let done = driver.done()?;
        let name = format!("the null server, {}", setting.words());
        let (calls, wrong) = (done.calls, done.wrong);
        experiment.checks.equal("every call has one outcome", calls, done.ok, &name);
        let words = || format!("{name}: {wrong} of {calls} calls were wrong");
        experiment.checks.add("every value read was the key's", wrong == 0, words);
        samples.push(Sample::of(&done));
    }
    Ok(Floor { setting: *setting, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_is_the_keys_value_as_text() {
        let Canned { request_bytes, reply } = canned(7, 30);
        assert_eq!(request_bytes, "get key:000000000007\r\n".len());
        let head = b"VALUE key:000000000007 0 30\r\n";
        assert!(reply.starts_with(head) && reply.ends_with(b"\r\nEND\r\n"));
        assert_eq!(reply.len(), head.len() + 30 + b"\r\nEND\r\n".len());
        assert_eq!(value::verify(&reply[head.len()..][..30], 7), Ok(VERSION));
    }
}
