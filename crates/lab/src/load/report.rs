//! The report of a load: as text, and as a run like those of experiments.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use super::Options;
use super::files::{BY_SECOND, quantile_us};
use crate::control::Family;
use crate::error::Error;
use crate::results::histogram::{Latency, QUANTILES};
use crate::results::{
    Axis, Better, Ceiling, Checked, Column, Curve, Dash, Estimate, Kind, Plot, Point, Run, Scale, Table,
    Target, environment, number,
};
use crate::tally::{BUSY_MAX, Latencies, Tally, late_at};
use crate::usage::Usage;

/// The result of a load, and its circumstances.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub args: &'a Options,
    /// Requests at a time, and over how many connections.
    pub pipeline: usize,
    pub connections: usize,
    /// The offered load, in words; `None` for a closed loop.
    pub offered: Option<String>,
    /// The settings, by name.
    pub settings: Vec<(String, String)>,
    /// Further remarks.
    pub remarks: Vec<String>,
    /// The rate of the generator alone, where it was measured.
    pub ceiling: Option<Ceiling>,
    /// The server's version.
    pub version: String,
    /// Each thread's core, if it has one, and how many connections it has.
    pub placement: Vec<(Option<usize>, usize)>,
    /// Cores that the server may use, too.
    pub shared: Vec<usize>,
    pub started: SystemTime,
    /// CPU time of the server, where its process was named.
    pub server: Option<Usage>,
    /// Whether the server's own counts are known.
    pub counted: bool,
    pub checks: Vec<Checked>,
    /// The counts.
    pub tally: Tally,
    /// The counts of the reads back.
    pub back: Tally,
}

impl Found<'_> {
    fn is_open(&self) -> bool {
        self.offered.is_some()
    }

    /// Each kind of latency: its name, and the two times between which it lies.
    fn latencies(&self) -> Vec<(String, &'static str, &Latencies)> {
        let tally = &self.tally;
        let n = self.pipeline;
        match self.is_open() {
            false => {
                vec![(
                    format!("latency of {n} request(s), closed loop"),
                    "closed loop, from the send",
                    &tally.latency,
                )]
            }
            true => vec![
                (
                    format!("latency of {n} request(s), from when they were due"),
                    "open loop, from the intended send",
                    &tally.latency,
                ),
                (
                    "service time, from when they were sent".to_owned(),
                    "open loop, from the send",
                    &tally.service,
                ),
                ("lag of the generator".to_owned(), "from the intended send to the send", &tally.lag),
            ],
        }
    }

    /// Whether the generator was late at a quantile.
    fn is_late(&self, quantile: f64) -> bool {
        self.is_open() && late_at(&self.tally.lag, &self.tally.latency, quantile).is_some()
    }

    fn us_per_request(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.tally.requests.max(1) as f64
    }

    fn busy(&self) -> f64 {
        self.tally.generator_load(self.placement.len())
    }

    /// The generator's cores, in words.
    fn placed(&self) -> String {
        let thread = |&(core, connections): &(Option<usize>, usize)| match core {
            Some(core) => format!("core {core} with {connections} connection(s)"),
            None => format!("any core with {connections} connection(s)"),
        };
        let threads: Vec<String> = self.placement.iter().map(thread).collect();
        format!("{} thread(s): {}", threads.len(), threads.join(", "))
    }

    /// The report as text.
    pub(super) fn text(&self) -> String {
        let (mut out, tally) = (String::new(), &self.tally);
        // Writing into a string cannot fail.
        let _ = self.write(&mut out, tally);
        out
    }

    fn write(&self, out: &mut String, tally: &Tally) -> std::fmt::Result {
        let name = &self.args.target.name;
        writeln!(out, "{name}: {} requests in {:.2} s", tally.requests, tally.elapsed.as_secs_f64())?;
        writeln!(out, "throughput        {:>12.0} requests/s", tally.rate())?;
        writeln!(
            out,
            "hits {}, misses {}, sets {}, deletes {}, additions {}, new connections {}",
            tally.hits, tally.misses, tally.stored, tally.deleted, tally.counted, tally.connects
        )?;
        if tally.refused > 0 {
            let first = tally.first_refused.as_deref().unwrap_or_default();
            writeln!(out, "refused writes {}, the first: {first}", tally.refused)?;
        }
        for remark in &self.remarks {
            writeln!(out, "{remark}")?;
        }
        if tally.swaps > 0 {
            writeln!(
                out,
                "swaps {}: {} happened, {} found the key changed, as it was",
                tally.swaps, tally.swapped, tally.conflicts
            )?;
        }
        if let Some(used) = &self.server {
            let (run, user) = (self.us_per_request(used.run), self.us_per_request(used.split.user));
            writeln!(out, "server CPU        {run:>12.4} µs/request (user {user:.4})")?;
        }
        writeln!(
            out,
            "generator CPU     {:>12.4} µs/request, busy {:.0} %",
            self.us_per_request(tally.generator_cpu),
            100.0 * self.busy()
        )?;
        writeln!(out, "generator         {}", self.placed())?;
        if let Some(Ceiling { load, per_s, .. }) = &self.ceiling {
            writeln!(out, "generator alone   {per_s:>12.0} requests/s, from a null server: {load}")?;
        }
        for core in &self.shared {
            writeln!(out, "core {core} is the server's, too, if the system gives it that")?;
        }
        for (what, _, latencies) in self.latencies() {
            write!(out, "{what}, µs:")?;
            for (name, quantile) in QUANTILES {
                // A latency that is the generator's as much as the server's is no figure of either.
                match self.is_late(quantile) && !what.starts_with("lag") {
                    false => write!(out, "  {name} {:.0}", latencies.quantile_us(quantile))?,
                    true => write!(out, "  {name} –")?,
                }
            }
            writeln!(out)?;
            if latencies.over_range > 0 {
                writeln!(out, "{} took more than 60 s", latencies.over_range)?;
            }
        }
        if QUANTILES.iter().any(|&(_, quantile)| self.is_late(quantile)) {
            writeln!(out, "–: the generator was late by more than a quarter of it")?;
        }
        let Tally { keys, hits, misses, .. } = self.back;
        if keys > 0 {
            writeln!(out, "read back over another connection: {hits} values, {misses} keys not there")?;
        }
        let counts_differ = self.checks.iter().any(|check| !check.passed && check.claim.contains("counted"));
        match self.counted {
            // A remark says why.
            false if !self.args.command.is_empty() => {}
            false => writeln!(out, "the server counts no hits and misses: nothing to compare with")?,
            true if counts_differ => {}
            true => writeln!(out, "the server counted the same")?,
        }
        if !self.is_open() && self.busy() > BUSY_MAX {
            writeln!(out, "the generator was the limit: the server can do more")?;
        }
        Ok(())
    }

    /// The report as a run, as files have it.
    ///
    /// # Errors
    /// When a histogram cannot be packed.
    pub(super) fn run(&self) -> Result<Run, Error> {
        let (args, tally) = (self.args, &self.tally);
        let mut run = Run::new("load", "One kind of load against a server that was running");
        run.started = environment::rfc3339(self.started);
        self.set(&mut run);
        let protocol = match args.target.family {
            Family::Redis => "redis",
            Family::Memcached => "memcached",
        };
        run.targets.push(Target {
            name: args.target.name.clone(),
            protocol: protocol.to_owned(),
            version: self.version.clone(),
            address: args.target.endpoint.to_string(),
            ..Target::default()
        });
        run.checks.clone_from(&self.checks);
        run.tables.push(self.table());
        run.ceilings.extend(self.ceiling.clone());
        for (what, clock, latencies) in self.latencies() {
            run.histograms.push(Latency::new(
                &args.target.name,
                &what,
                clock,
                &latencies.ns,
                latencies.over_range,
            )?);
        }
        run.plots = self.plots()?;
        run.notes.clone_from(&self.remarks);
        for core in &self.shared {
            run.notes.push(format!(
                "core {core} of the generator is the server's, too, if the system gives it that"
            ));
        }
        if !self.is_open() && self.busy() > BUSY_MAX {
            run.notes.push("The generator was the limit: the server can do more.".to_owned());
        }
        let per_s = number::text(tally.rate().round());
        run.verdict = match &self.offered {
            None => format!(
                "{} answers {per_s} requests a second in a closed loop of {} connection(s), {} request(s) at a time.",
                args.target.name, self.connections, self.pipeline
            ),
            Some(offered) => format!(
                "{} answers {per_s} requests a second of {offered}, half of them within {} µs.",
                args.target.name,
                number::text(tally.latency_us(0.5).round())
            ),
        };
        Ok(run)
    }

    fn set(&self, run: &mut Run) {
        let args = self.args;
        for (name, value) in &self.settings {
            run.set(name, value);
        }
        run.set("connections", self.connections);
        run.set("requests at a time", self.pipeline);
        run.set("offered", self.offered.as_deref().unwrap_or("closed loop"));
        run.set("requests at most", args.requests.map_or("any".to_owned(), |requests| requests.to_string()));
        run.set("generator", self.placed());
        run.set("replies are", format!("{:?}", args.check).to_lowercase());
        run.set("waits for a core, % at most", args.wait_max);
        run.set("seed", args.seed);
    }

    fn table(&self) -> Table {
        let tally = &self.tally;
        let mut table = Table::new("load", "What was answered", &[]);
        table.absent("the generator was late there, or the server's process cannot be seen from here");
        let mut row = Vec::new();
        let mut add = |name: &str, unit: &str, better, value: Option<f64>| {
            table.column(Column::new(name, unit, better));
            row.push(value.and_then(Estimate::exact));
        };
        add("requests", "", Better::Neither, Some(tally.requests as f64));
        add("seconds", "s", Better::Neither, Some(tally.elapsed.as_secs_f64()));
        add("throughput", "1/s", Better::Higher, Some(tally.rate()));
        for (name, count) in [
            ("hits", tally.hits),
            ("misses", tally.misses),
            ("sets", tally.stored),
            ("deletes", tally.deleted),
            ("additions", tally.counted),
            ("swaps", tally.swapped),
            ("refused swaps", tally.conflicts),
            ("refused writes", tally.refused),
            ("errors", tally.wrong),
        ] {
            add(name, "", Better::Neither, Some(count as f64));
        }
        for (name, quantile) in QUANTILES {
            let us = Some(tally.latency_us(quantile)).filter(|_| !self.is_late(quantile));
            add(&format!("latency {name}"), "µs", Better::Lower, us);
        }
        let server = self.server.as_ref().map(|used| self.us_per_request(used.run));
        add("server CPU", "µs/request", Better::Lower, server);
        add("generator CPU", "µs/request", Better::Neither, Some(self.us_per_request(tally.generator_cpu)));
        add("generator busy", "%", Better::Neither, Some(100.0 * self.busy()));
        table.row(&self.args.target.name, [""; 0], row);
        table
    }

    /// The series: counts and latencies by the second.
    fn plots(&self) -> Result<Vec<Plot>, Error> {
        let mut counts = Plot::new("seconds", "What was answered in each second", Kind::Lines);
        let mut latencies = Plot::new("latencies", "Latencies of each second", Kind::Lines);
        counts.caption = "The last second is as long as it was.".to_owned();
        latencies.caption =
            "No point where nothing was answered, or where the generator was late by more than a quarter."
                .to_owned();
        for plot in [&mut counts, &mut latencies] {
            plot.x = Axis::new("time", "s", Scale::Linear);
        }
        counts.y = Axis::new("in a second", "", Scale::Linear);
        latencies.y = Axis::new("latency", "µs", Scale::Log);
        let curve = |name: &str| Curve { name: name.to_owned(), dash: Dash::Solid, points: Vec::new() };
        counts.curves = ["operations", "errors", "hits", "misses"].map(curve).into();
        latencies.curves = BY_SECOND.map(|at| curve(QUANTILES[at].0)).into();
        for second in self.tally.series.iter().flat_map(|series| series.seconds()) {
            let second = second?;
            let (x, have) = (second.from.as_secs_f64(), second.counts);
            for (curve, count) in
                counts.curves.iter_mut().zip([have.operations, have.errors, have.hits, have.misses])
            {
                curve.points.push(Point::new(x, count as f64));
            }
            for (curve, at) in latencies.curves.iter_mut().zip(BY_SECOND) {
                curve.points.extend(quantile_us(&second, QUANTILES[at].1).map(|us| Point::new(x, us)));
            }
        }
        Ok(vec![counts, latencies])
    }
}
