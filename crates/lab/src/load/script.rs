//! A mix of requests for keys of its own, rendered beforehand.

use std::time::Duration;

use larder_protocol::client::Protocol;

use super::preset::{self, Preset};
use super::{Options, Ran, ceiling};
use crate::books::{Books, check_kept, evicted_since};
use crate::connection::Check;
use crate::contender::Target;
use crate::control::Control;
use crate::error::Error;
use crate::experiment::Checks;
use crate::fill;
use crate::generator::{Arrivals, Load, Stop};
use crate::keys::Choice;
use crate::progress::Progress;
use crate::results::number;
use crate::tally::Tally;
use crate::workload::{Verb, Workload};

impl Options {
    pub(super) fn workload(&self, protocol: Protocol) -> Result<Workload, Error> {
        let preset = self.preset.map(Preset::request);
        let request = preset.as_ref().unwrap_or(&self.request);
        Ok(Workload {
            choice: match (self.zipf, self.hot_key) {
                _ if self.one_key => Choice::One,
                _ if self.sequential => Choice::Sequential,
                (Some(alpha), _) => Choice::Zipf(alpha),
                (None, Some(percent)) => Choice::Hot(percent / 100.0),
                (None, None) if preset.is_some() => Choice::Zipf(preset::ZIPF),
                (None, None) => Choice::Uniform,
            },
            connections: self.connections as usize,
            pipeline: self.pipeline as usize,
            ttl_s: self.ttl,
            ..request.workload(protocol, self.keys)?
        })
    }

    /// Runs the load for `time`.
    fn go(&self, load: &mut Load, check: Check, time: Duration, seed: u64) -> Result<Tally, Error> {
        match self.rate {
            None => load.run(check, Stop::After(time)),
            Some(per_s) => load.run_open(check, Arrivals { per_s, poisson: !self.even, seed }, time),
        }
    }
}

/// Stores the data that the load expects, warms up, and runs the load.
pub(super) fn run(
    args: &Options,
    control: &Control,
    protocol: Protocol,
    cores: &[Option<usize>],
) -> Result<Ran, Error> {
    let workload = args.workload(protocol)?;
    workload.renderable()?;
    let Target { name, endpoint, .. } = &args.target;
    if args.churn > 0 && endpoint.login.is_some() {
        let why = "a connection that is replaced says no password: --churn needs a server without one";
        return Err(Error::Usage(why.to_owned()));
    }
    let fills = !args.no_fill && !matches!(workload.mix.only(), Some(Verb::Miss | Verb::Set));
    if args.flush_target || fills || !workload.mix.parts().all(|(verb, _)| verb.is_read()) {
        eprintln!("{name} {}; it is written to", control.claim(args.flush_target)?);
    }
    if fills {
        let progress = Progress::new(fill::writes(&workload));
        progress.say("storing keys");
        fill::prepare_telling(endpoint, &workload, cores, |stored| progress.advance(stored))?;
    }
    let books = Books::open(control).ok().filter(Books::counts);
    let mut load = Load::connect(endpoint, &workload, workload.scripts(args.seed), cores)?;
    load.churn(args.churn);
    let check = match Check::from(args.check) {
        Check::Length if args.rate.is_some() || !workload.has_known_replies() => Check::Parse,
        check => check,
    };
    let mut others = Tally::default();
    if let Some(seconds) = args.warm_up {
        let time = Duration::from_secs_f64(seconds);
        // Other random times than those of the counted part.
        let warm_up = || args.go(&mut load, check, time, !args.seed);
        others.merge(Progress::seconds("warm-up", Some(time), warm_up)?);
    }
    if let Some(requests) = args.requests {
        load.limit(requests.div_ceil(workload.pipeline as u64));
    }
    load.keep_seconds();
    let (tally, started, server) = args.watched(|| args.go(&mut load, check, args.time(), args.seed))?;
    let (placement, written) = (load.placement(), load.last_writes(fill::READ_BACK_MAX));
    drop(load);
    let back = fill::read_back(endpoint, &workload, written, cores)?;
    let ceiling = ceiling::measure(args, &workload, check, tally.elapsed, cores);
    let mut checks = Checks::default();
    check_kept(&mut checks, name, &workload, &back, evicted_since(books.as_ref())?);
    others.merge(back.clone());
    Ok(Ran {
        tally,
        others,
        back,
        placement,
        started,
        server,
        books,
        checks,
        pipeline: workload.pipeline,
        offered: args.rate.map(|rate| format!("{} windows a second that were offered", number::text(rate))),
        settings: settings(args, &workload),
        remarks: Vec::new(),
        ceiling,
    })
}

fn settings(args: &Options, workload: &Workload) -> Vec<(String, String)> {
    let values =
        workload.sizes.as_ref().map_or(workload.keyspace.value_bytes.to_string(), ToString::to_string);
    let churn = if args.churn == 0 { "any".to_owned() } else { args.churn.to_string() };
    [
        ("requests", workload.mix.to_string()),
        ("protocol", format!("{:?}", workload.protocol)),
        ("keys", workload.keyspace.count.to_string()),
        ("choice of keys", format!("{:?}", workload.choice)),
        ("bytes of a key", workload.keyspace.key_bytes.to_string()),
        ("bytes of values", values),
        ("keys of a request", workload.keys_per_request.to_string()),
        ("seconds that values live", workload.ttl_s.to_string()),
        ("windows of a connection", churn),
        ("times", if args.even { "even" } else { "random" }.to_owned()),
        ("seconds at most", args.time().as_secs_f64().to_string()),
        ("seconds of warming up", args.warm_up.unwrap_or(0.0).to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
