//! The generator alone: how much of a load it sends and checks when the server costs almost nothing.

use std::time::Duration;

use crate::connection::Check;
use crate::error::Error;
use crate::generator::{Load, Stop};
use crate::null::Null;
use crate::results::Ceiling;
use crate::route::SocketKind;
use crate::workload::Workload;

/// How often a ceiling is measured while the generator waits for its core; the highest counts.
pub const TRIES: u32 = 3;
/// How long it is measured each time.
const TIME: Duration = Duration::from_millis(200);

/// A load that a null server answers.
#[derive(Debug)]
pub struct Alone<'a> {
    /// The load.
    pub workload: &'a Workload,
    /// How closely replies are checked.
    pub check: Check,
    /// The null server's kind of socket.
    pub socket: SocketKind,
    /// The null server's core.
    pub server_core: Option<usize>,
    /// The cores of the generator's threads.
    pub generator_cores: &'a [Option<usize>],
    /// Percent of the time that the generator may wait for its core; if it waits for longer, it is measured again.
    pub wait_max: f64,
}

impl Alone<'_> {
    /// The generator's rate, called `load`, and how many replies were not those of the load.
    ///
    /// # Errors
    /// When the null server or a connection fails.
    ///
    /// # Panics
    /// If a null server has no [`crate::null::Answers`] to the load.
    pub fn measure(&self, load: String) -> Result<(Ceiling, u64), Error> {
        let null = Null::in_background(self.workload, self.server_core, self.socket)?;
        let scripts = self.workload.scripts(1);
        let mut alone = Load::connect(null.address(), self.workload, scripts, self.generator_cores)?;
        let (mut best, mut wrong) = (Ceiling { load, per_s: 0.0, busy: 0.0 }, 0);
        for _ in 0..TRIES {
            let tally = alone.run(self.check, Stop::After(TIME))?;
            wrong += tally.wrong;
            if tally.rate() > best.per_s {
                (best.per_s, best.busy) = (tally.rate(), tally.generator_load(alone.threads()));
            }
            if 100.0 * tally.waited <= self.wait_max {
                break;
            }
        }
        Ok((best, wrong))
    }
}
