//! A load that replays a trace.

use std::path::Path;

use clap::ValueEnum;
use larder_protocol::client::Protocol;

use super::{Options, Ran, shared_cores};
use crate::books::{Books, check_back, evicted_since};
use crate::connection::Check;
use crate::contender::Target;
use crate::control::Control;
use crate::error::Error;
use crate::experiment::Checks;
use crate::numbers;
use crate::replay::{DUE_TOGETHER, Replay, Replayed};
use crate::trace::{Format, Times};

/// How fast a trace is replayed: this many times its own speed, or as fast as it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed(Option<f64>);

/// Reads a speed, for clap.
pub(super) fn speed(text: &str) -> Result<Speed, String> {
    match text {
        "max" => Ok(Speed(None)),
        number => {
            numbers::positive(number).map(|times| Speed(Some(times))).map_err(|why| format!("{why}, or max"))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Misses {
    /// a write of the value
    Fill,
    /// nothing
    Leave,
}

/// Replays the trace, or the part of it that the options name.
pub(super) fn run(
    args: &Options,
    path: &Path,
    control: &Control,
    protocol: Protocol,
    cores: &[Option<usize>],
) -> Result<Ran, Error> {
    let speed = args.trace_speed.and_then(|Speed(times)| times);
    let times = Times::open(path, args.trace.format(), speed)?;
    let format = times.format();
    let Target { name, endpoint, .. } = &args.target;
    eprintln!("{name} {}; it is written to", control.claim(args.flush_target)?);
    let books = Books::open(control).ok().filter(Books::counts);
    let usual = if format == Format::Oracle { Misses::Fill } else { Misses::Leave };
    let misses = args.trace_misses.unwrap_or(usual);
    let replay = Replay {
        protocol,
        connections: args.connections as usize,
        pipeline: if speed.is_some() { DUE_TOGETHER } else { args.pipeline as usize },
        requests: args.requests.unwrap_or(u64::MAX),
        time: args.time(),
        fills: misses == Misses::Fill,
        verify: Check::from(args.check) == Check::Verify,
        by_second: true,
        shares_cores: !shared_cores(control, &args.placement(cores)).is_empty(),
        sizes: args.request.value_bytes.clone(),
    };
    let (Replayed { tally, told, wrote }, started, server) =
        args.watched(|| replay.run(endpoint, times, cores))?;
    let back = replay.read_back(endpoint, wrote, cores)?;
    if tally.requests == 0 {
        let why = format!("has no request: {}", told.remarks(format).join("; "));
        return Err(Error::File(path.to_owned(), why));
    }
    let mut checks = Checks::default();
    check_back(&mut checks, name, &back, evicted_since(books.as_ref())?);
    let times = speed.map_or("max".to_owned(), |times| times.to_string());
    let settings = [
        ("trace", path.display().to_string()),
        ("format of the trace", format.name().to_owned()),
        ("speed of the trace", times.clone()),
        ("reads that miss", if replay.fills { "are followed by a write" } else { "are left" }.to_owned()),
        ("protocol", format!("{protocol:?}")),
        ("bytes of values without a size", args.request.value_bytes.to_string()),
        ("seconds at most", args.time().as_secs_f64().to_string()),
    ];
    Ok(Ran {
        tally,
        others: back.clone(),
        back,
        placement: args.placement(cores),
        started,
        server,
        books,
        checks,
        // Requests that are due together are sent together, and timed one by one.
        pipeline: if speed.is_some() { 1 } else { replay.pipeline },
        offered: speed.map(|_| format!("the trace's, at {times} times its speed")),
        settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
        remarks: told.remarks(format),
        ceiling: None,
    })
}
