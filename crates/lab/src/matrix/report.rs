//! The experiment's tables and pictures.

use super::effects::{self, Cells, Effect, TERMS};
use super::faults::{Fault, Mode, VISIBLE};
use super::setting::{BUFFER, Client, Grid, GridPoint, Handle, Link, NODELAY, Op, Options, Reply, Setting};
use super::visit::Sample;
use super::{Cell, Faulted, verdict};
use crate::driver::own::Way;
use crate::error::Error;
use crate::experiment::{Experiment, Pair};
use crate::results::{
    Axis, Better, Column, Estimate, Kind, Latency, Outcome, Plot, Point, Scale, Table, number,
};
use crate::tally::Latencies;

/// Adds the tables and pictures of the run.
///
/// # Errors
/// [`Error::NotValid`] when a histogram cannot be packed.
pub fn report(
    experiment: &mut Experiment,
    cells: &[Cell],
    faulted: &[Faulted],
    grid: &Grid,
) -> Result<(), Error> {
    if !cells.is_empty() {
        let effects = all_effects(experiment, cells);
        article(experiment, cells, grid);
        effects_table(experiment, &effects, grid);
        batches(experiment, cells, grid);
        costs(experiment, cells, grid);
        compare(experiment, cells, grid);
        effects_plots(experiment, &effects, grid);
        cost_plots(experiment, cells, grid);
        histograms(experiment, cells)?;
        endings(experiment, cells);
        verdict::of_costs(experiment, cells, &effects, grid);
    }
    if !faulted.is_empty() {
        losses(experiment, faulted);
        verdict::of_faults(experiment, faulted);
    }
    Ok(())
}

/// A table of at most this many lines is shown whole.
const ROWS_MAX: usize = 48;

/// Rounds of a figure of a cell.
pub fn rounds(cell: &Cell, figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
    cell.samples.iter().map(figure).collect()
}

fn estimate(cell: &Cell, figure: impl Fn(&Sample) -> f64) -> Option<Estimate> {
    Estimate::of(&rounds(cell, figure))
}

/// The cell of a server and a client at a point.
pub fn cell_of(cells: &[Cell], contender: usize, point: GridPoint, client: Client) -> Option<&Cell> {
    let is_it = |cell: &&Cell| {
        let Cell { seat, setting, .. } = cell;
        seat.contender == contender && !seat.again && setting.client == client && setting.point() == point
    };
    cells.iter().find(is_it)
}

/// A point over loopback.
pub fn point(op: Op, value_bytes: usize, handle: Handle) -> GridPoint {
    GridPoint { op, value_bytes, handle, reply: Reply::Awaited, link: Link::Loopback }
}

const LABELS: &[&str] = &["operation", "value", "handle", "reply", "link", "options"];

fn bytes(value_bytes: usize) -> String {
    format!("{} B", number::text(value_bytes as f64))
}

fn labels(setting: &Setting) -> [String; 6] {
    let Setting { client, op, value_bytes, handle, reply, link } = setting;
    [
        op.name().to_owned(),
        bytes(*value_bytes),
        handle.name().to_owned(),
        reply.name().to_owned(),
        link.name(),
        client.name(),
    ]
}

/// Every cell.
fn costs(experiment: &mut Experiment, cells: &[Cell], grid: &Grid) {
    let mut table = Table::new("matrix", "What a call costs", LABELS);
    table.absent(
        "the client ended before, system calls cannot be counted here, or the server's process cannot be seen from here",
    );
    for (name, unit) in [
        ("call", "µs"),
        ("to a barrier", "µs"),
        ("p50", "µs"),
        ("p99", "µs"),
        ("max", "µs"),
        ("client CPU", "µs"),
        ("server CPU", "µs"),
        ("system calls", ""),
        ("segments", ""),
        ("delayed ACKs", ""),
        ("lost", "%"),
    ] {
        table.column(Column::new(name, unit, Better::Lower));
    }
    for cell in cells {
        let server = cell.samples.iter().map(|sample| sample.server_us).collect::<Option<Vec<f64>>>();
        let counted = |figure: Option<f64>| figure.and_then(Estimate::exact);
        let values = [
            estimate(cell, |sample| sample.return_us),
            estimate(cell, |sample| sample.barrier_us),
            estimate(cell, |sample| sample.calls.quantile_us(0.5)),
            estimate(cell, |sample| sample.calls.quantile_us(0.99)),
            estimate(cell, |sample| sample.calls.quantile_us(1.0)),
            estimate(cell, |sample| sample.client_us),
            server.and_then(|values| Estimate::of(&values)),
            counted(cell.counted.syscalls),
            counted(cell.counted.segments),
            counted(cell.counted.delayed_acks),
            estimate(cell, |sample| 100.0 * sample.lost),
        ];
        let row = table.row(&experiment.seat_name(cell.seat), labels(&cell.setting), values);
        if let Some(ended) = &cell.ended {
            row.note = ending(ended);
        }
    }
    // A selection of the rows: sets and gets of the smallest and largest values, kept handles over loopback, replies awaited, no
    // option or one.
    let ends = [grid.sizes.first(), grid.sizes.last()];
    let plain = |at: usize| {
        let Cell { seat, setting, .. } = &cells[at];
        let few = setting.client.options().is_none_or(|Options(bits)| bits.count_ones() <= 1);
        let usual = matches!(setting.op, Op::Set | Op::Get) && ends.contains(&Some(&setting.value_bytes));
        !seat.again && few && usual && setting.point() == point(setting.op, setting.value_bytes, Handle::Kept)
    };
    if let Some(digest) = table.digest(ROWS_MAX, plain) {
        experiment.run.tables.push(digest);
    }
    experiment.run.tables.push(table);
}

/// How a driver ended, for a row.
fn ending(ended: &crate::driver::Ended) -> String {
    let after = ended.calls.map_or(String::new(), |(calls, _)| format!(" after {calls} calls"));
    format!("{}{after}", ended.how)
}

/// Notes once for each server and client where the driver ended, and with which words.
fn endings(experiment: &mut Experiment, cells: &[Cell]) {
    for (contender, name) in experiment.names().into_iter().enumerate() {
        let ended: Vec<(&Cell, &crate::driver::Ended)> = cells
            .iter()
            .filter(|cell| cell.seat.contender == contender)
            .filter_map(|cell| Some((cell, cell.ended.as_ref()?)))
            .collect();
        let Some((cell, first)) = ended.first() else { continue };
        experiment.run.notes.push(format!(
            "on {name} a driver's process ended in {} of the cells, first in {} ({}): {}",
            ended.len(),
            cell.setting.words(),
            ending(first),
            first.complaint
        ));
    }
}

/// An effect at a point on a server.
pub struct Found {
    /// Index among the contenders.
    pub contender: usize,
    /// The point.
    pub point: GridPoint,
    /// The options.
    pub term: u8,
    /// Their effect.
    pub effect: Effect,
}

/// Times to a barrier by combination of options.
fn cells_by_options(cells: &[Cell], contender: usize, again: bool, point: GridPoint) -> Cells {
    let mut all = Cells::default();
    for cell in cells {
        let Cell { seat, setting, .. } = cell;
        let Some(options) = setting.client.options() else { continue };
        if seat.contender == contender
            && seat.again == again
            && setting.point() == point
            && cell.ended.is_none()
        {
            all[usize::from(options.0)] = rounds(cell, |sample| sample.barrier_us);
        }
    }
    all
}

fn all_effects(experiment: &Experiment, cells: &[Cell]) -> Vec<Found> {
    let mut points: Vec<GridPoint> = cells.iter().map(|cell| cell.setting.point()).collect();
    points.sort_unstable();
    points.dedup();
    let mut found = Vec::new();
    for contender in 0..experiment.contenders.len() {
        for &point in &points {
            let [own, first, again] = [(contender, false), (0, false), (0, true)]
                .map(|(who, again)| cells_by_options(cells, who, again, point));
            // Over a relay NODELAY does not vary; where buffering ended the client, the effects of the others are over the rest.
            let without: &[u8] =
                if point.link == Link::Loopback { &[BUFFER] } else { &[NODELAY, NODELAY | BUFFER] };
            for term in TERMS {
                if let Some(effect) = effects::effect(&own, Some((&first, &again)), term, without) {
                    found.push(Found { contender, point, term, effect });
                }
            }
        }
    }
    found
}

fn effects_table(experiment: &mut Experiment, effects: &[Found], grid: &Grid) {
    let title =
        "Effects on the time to a barrier: with the option over without, over all combinations of the others";
    let mut table = Table::new("effects", title, &["operation", "handle", "reply", "link", "effect of"]);
    for &size in &grid.sizes {
        table.column(Column::new(&bytes(size), "×", Better::Lower));
    }
    let mut shown = Vec::new();
    for (contender, name) in experiment.names().into_iter().enumerate() {
        for &link in &grid.links {
            for &handle in &grid.handles {
                for &op in &grid.ops {
                    for &reply in &grid.replies {
                        for term in TERMS {
                            let at = |size: usize| {
                                let point = GridPoint { op, value_bytes: size, handle, reply, link };
                                effects.iter().find(|found| {
                                    (found.contender, found.point, found.term) == (contender, point, term)
                                })
                            };
                            let row: Vec<Option<&Found>> = grid.sizes.iter().map(|&size| at(size)).collect();
                            if row.iter().all(Option::is_none) {
                                continue;
                            }
                            let labels =
                                [op.name(), handle.name(), reply.name(), &link.name(), &effects::name(term)]
                                    .map(str::to_owned);
                            let values = row.iter().map(|found| Some(found.as_ref()?.effect.ratio.clone()));
                            table.row(&name, labels, values).note = remark(&row);
                            let plain = reply == Reply::Awaited && link == Link::Loopback;
                            shown.push(
                                plain && term.count_ones() == 1 && (handle == Handle::Kept || op == Op::Set),
                            );
                        }
                    }
                }
            }
        }
    }
    if let Some(digest) = table.digest(ROWS_MAX, |at| shown[at]) {
        experiment.run.tables.push(digest);
    }
    experiment.run.tables.push(table);
}

/// Where an effect is more than noise, and where it covers fewer combinations.
fn remark(row: &[Option<&Found>]) -> String {
    let sizes = |wanted: &dyn Fn(&Found) -> bool| -> Vec<String> {
        row.iter()
            .flatten()
            .filter(|found| wanted(found))
            .map(|found| bytes(found.point.value_bytes))
            .collect()
    };
    let differs = sizes(&|found| found.effect.outcome == Outcome::Differs);
    let unknown = row.iter().flatten().all(|found| found.effect.outcome == Outcome::Unknown);
    let mut words = match differs.as_slice() {
        _ if unknown => "too few rounds to tell".to_owned(),
        [] => "none".to_owned(),
        _ if differs.len() == row.len() => "at every size".to_owned(),
        some => format!("at {}, else none", some.join(", ")),
    };
    let without = sizes(&|found| found.effect.varied & BUFFER == 0);
    if !without.is_empty() {
        words += &format!("; at {} with BUFFER off, which ended the client", without.join(", "));
    }
    words
}

/// The original article's table: (options, SET, GET, DEL), in seconds for 10,000 operations.
const ARTICLE: [(u8, [f64; 3]); 8] = [
    (0, [8.847, 8.877, 8.819]),
    (1, [10.163, 10.226, 10.173]),
    (2, [8.941, 8.861, 8.899]),
    (4, [7.468, 8.956, 7.595]),
    (3, [10.250, 10.140, 10.296]),
    (5, [8.772, 10.152, 8.675]),
    (6, [7.579, 9.030, 7.435]),
    (7, [8.817, 10.344, 8.716]),
];
/// The article's operations, and how many it made.
const ARTICLE_OPS: [Op; 3] = [Op::Set, Op::Get, Op::Delete];
const ARTICLE_COUNT: f64 = 10_000.0;

/// The original article's table beside the lab's: a handle for each call, the smallest values.
fn article(experiment: &mut Experiment, cells: &[Cell], grid: &Grid) {
    if !grid.handles.contains(&Handle::Churn) || !grid.links.contains(&Link::Loopback) {
        return;
    }
    let title = "The original article's table (docs/lab/matrix.md): seconds for 10,000 operations of 8 bytes, a handle for each \
                 (NO_BLOCK,TCP_NODELAY,BUFFER_REQUESTS)";
    let mut table = Table::new("article", title, &["options"]);
    for name in ["SET", "GET", "DEL"] {
        table.column(Column::new(name, "s", Better::Lower));
    }
    for (options, seconds) in ARTICLE {
        table.row("original article", [Options(options).as_written()], seconds.map(Estimate::exact));
    }
    for (contender, name) in experiment.names().into_iter().enumerate() {
        for (options, _) in ARTICLE {
            let seconds = ARTICLE_OPS.map(|op| {
                let point = point(op, grid.sizes[0], Handle::Churn);
                let cell = cell_of(cells, contender, point, Client::Library(Options(options)))?;
                estimate(cell, |sample| sample.barrier_us * ARTICLE_COUNT / 1e6)
            });
            if seconds.iter().any(Option::is_some) {
                table.row(&name, [Options(options).as_written()], seconds);
            }
        }
    }
    experiment.run.tables.push(table);
}

/// The cost of buffering, beside that of sending as many requests together and reading every reply.
fn batches(experiment: &mut Experiment, cells: &[Cell], grid: &Grid) {
    let title =
        "BUFFER_REQUESTS beside 64 requests sent together whose replies are all read, kept connections";
    let mut table = Table::new("batch", title, &["operation", "value"]);
    table.absent("the client ended before it told");
    for (name, unit) in [
        ("one by one", "µs"),
        ("BUFFER", "µs"),
        ("together", "µs"),
        ("together / BUFFER", ""),
        ("CPU of BUFFER", "µs"),
        ("CPU of together", "µs"),
        ("larder-client, batch", "µs"),
        ("larder-client, stream", "µs"),
        ("CPU of its batch", "µs"),
        ("CPU of its stream", "µs"),
    ] {
        table.column(Column::new(name, unit, Better::Lower));
    }
    for (contender, name) in experiment.names().into_iter().enumerate() {
        for &op in &grid.ops {
            for &size in &grid.sizes {
                let of = |client| cell_of(cells, contender, point(op, size, Handle::Kept), client);
                let Some(batch) = of(Client::Batch) else { continue };
                let (own, stream) = (of(Client::Own(Way::Batch)), of(Client::Own(Way::Stream)));
                let own = [own, stream].map(|cell| cell.filter(|cell| cell.ended.is_none()));
                let buffered = of(Client::Library(Options(BUFFER))).filter(|cell| cell.ended.is_none());
                let barrier = |sample: &Sample| sample.barrier_us;
                let ratio = buffered.and_then(|buffered| {
                    Estimate::ratio(&rounds(batch, barrier), &rounds(buffered, barrier))
                });
                let row = table.row(
                    &name,
                    [op.name().to_owned(), bytes(size)],
                    [
                        of(Client::ByHand).and_then(|cell| estimate(cell, barrier)),
                        buffered.and_then(|cell| estimate(cell, barrier)),
                        estimate(batch, barrier),
                        ratio,
                        buffered.and_then(|cell| estimate(cell, |sample| sample.client_us)),
                        estimate(batch, |sample| sample.client_us),
                        own[0].and_then(|cell| estimate(cell, barrier)),
                        own[1].and_then(|cell| estimate(cell, barrier)),
                        own[0].and_then(|cell| estimate(cell, |sample| sample.client_us)),
                        own[1].and_then(|cell| estimate(cell, |sample| sample.client_us)),
                    ],
                );
                if let Some(ended) = of(Client::Library(Options(BUFFER))).and_then(|cell| cell.ended.as_ref())
                {
                    row.note = format!("BUFFER {}", ending(ended));
                }
            }
        }
    }
    if !table.rows.is_empty() {
        experiment.run.tables.push(table);
    }
}

/// The first server beside the others, as the library is shipped.
fn compare(experiment: &mut Experiment, cells: &[Cell], grid: &Grid) {
    for &op in &grid.ops {
        for &size in &grid.sizes {
            let setting = point(op, size, Handle::Kept);
            let client = Client::Library(Options(0));
            let Some(base) = cell_of(cells, 0, setting, client) else { continue };
            let others = cells
                .iter()
                .filter(|cell| cell.seat.contender > 0 || cell.seat.again)
                .filter(|cell| cell.setting == base.setting);
            let pairs = others.filter_map(|cell| {
                let [ours, theirs] = [base, cell].map(|cell| experiment.seat_name(cell.seat));
                let claim = format!("{ours} / {theirs}, time of a {} of {}", op.name(), bytes(size));
                pair(claim, [(ours.as_str(), base), (theirs.as_str(), cell)])
            });
            let pairs = pairs.collect();
            experiment.compare_pairs(pairs);
        }
    }
}

/// The times to a barrier of two cells of one setting. If a driver ended, there is nothing to compare, and the reason is given;
/// for the first server's own second visit there is no reason, since it would only say that the noise is unknown.
fn pair(claim: String, [(ours, base), (theirs, other)]: [(&str, &Cell); 2]) -> Option<Pair> {
    let ended = [(ours, base), (theirs, other)].into_iter().find_map(|(name, cell)| {
        Some(format!("the client of {name} ended: {}", ending(cell.ended.as_ref()?)))
    });
    let barrier = |sample: &Sample| sample.barrier_us;
    let again = other.seat.again;
    match ended {
        Some(why) => (!again).then(|| Pair::lost(claim, Better::Lower, why)),
        None => Some(Pair::new(claim, Better::Lower, &rounds(base, barrier), &rounds(other, barrier), again)),
    }
}

fn effects_plots(experiment: &mut Experiment, effects: &[Found], grid: &Grid) {
    for (contender, name) in experiment.names().into_iter().enumerate() {
        for &op in grid.ops.iter().filter(|op| **op != Op::Delete) {
            let title = format!("{name}: what an option makes of the time of a {}, kept handle", op.name());
            let mut plot = Plot::new(&format!("effects-{name}-{}", op.name()), &title, Kind::Lines);
            plot.x = Axis::new("value", "B", Scale::Log);
            plot.y = Axis::new("time with over time without", "×", Scale::Log);
            for term in [1, 2, 4] {
                let points = effects
                    .iter()
                    .filter(|found| (found.contender, found.term) == (contender, term))
                    .filter(|found| found.point == point(op, found.point.value_bytes, Handle::Kept))
                    .map(|found| Point::estimated(found.point.value_bytes as f64, &found.effect.ratio));
                plot.curve(&effects::name(term), points);
            }
            plot.caption = "1 is no effect.".to_owned();
            push(experiment, plot);
        }
    }
}

/// Clients whose costs are drawn: there are eight colours.
const DRAWN: [Client; 8] = [
    Client::Library(Options(0)),
    Client::Library(Options(NODELAY)),
    Client::Library(Options(BUFFER)),
    Client::Library(Options(NODELAY | BUFFER)),
    Client::ByHand,
    Client::Batch,
    Client::Own(Way::OneByOne),
    Client::Own(Way::Stream),
];

fn cost_plots(experiment: &mut Experiment, cells: &[Cell], grid: &Grid) {
    for (contender, name) in experiment.names().into_iter().enumerate() {
        for &op in grid.ops.iter().filter(|op| **op != Op::Delete) {
            let title = format!("{name}: time of a {} to a barrier, kept handle", op.name());
            let mut plot = Plot::new(&format!("cost-{name}-{}", op.name()), &title, Kind::Lines);
            plot.x = Axis::new("value", "B", Scale::Log);
            plot.y = Axis::new("time of a call", "µs", Scale::Log);
            for client in DRAWN {
                let points = grid.sizes.iter().filter_map(|&size| {
                    let cell = cell_of(cells, contender, point(op, size, Handle::Kept), client)?;
                    Some(Point::estimated(size as f64, &estimate(cell, |sample| sample.barrier_us)?))
                });
                plot.curve(&client.name(), points);
            }
            plot.curves.retain(|curve| !curve.points.is_empty());
            plot.caption = "A curve that ends early is a client that its library ended.".to_owned();
            push(experiment, plot);
        }
    }
}

/// Adds a picture, unless it is empty.
fn push(experiment: &mut Experiment, plot: Plot) {
    if plot.curves.iter().any(|curve| !curve.points.is_empty()) {
        experiment.run.plots.push(plot);
    }
}

/// Raw times of calls over kept handles and loopback, replies awaited.
fn histograms(experiment: &mut Experiment, cells: &[Cell]) -> Result<(), Error> {
    for cell in cells {
        let setting = cell.setting;
        let plain = setting.point() == point(setting.op, setting.value_bytes, Handle::Kept);
        if !plain || cell.samples.is_empty() {
            continue;
        }
        let mut all = Latencies::default();
        cell.samples.iter().for_each(|sample| all.merge(&sample.calls));
        let what = format!("{} {}, {}", setting.op.name(), bytes(setting.value_bytes), setting.client.name());
        let clock = "from the call to its return";
        let name = experiment.seat_name(cell.seat);
        experiment.run.histograms.push(Latency::new(&name, &what, clock, &all.ns, all.over_range)?);
    }
    Ok(())
}

/// The results that calls returned, and the values that were stored.
fn losses(experiment: &mut Experiment, faulted: &[Faulted]) {
    let title = "Returned OK, stored, lost without an error: 100 B over a kept handle (server full: 1,000 B)";
    let mut table = Table::new("faults", title, &["fault", "client"]);
    table.absent("the client ended before it reported that, or there was no such event");
    for (name, unit, better) in [
        ("calls", "", Better::Neither),
        ("returned OK", "", Better::Neither),
        ("stored", "", Better::Higher),
        ("errors of calls", "", Better::Neither),
        ("errors in the end", "", Better::Neither),
        ("lost without an error", "", Better::Lower),
        ("first error at call", "", Better::Neither),
        ("longest call", "ms", Better::Lower),
        ("visible after", "ms", Better::Lower),
    ] {
        table.column(Column::new(name, unit, better));
    }
    for Faulted { contender, mode, fault, account } in faulted {
        let ended = account.ended.as_ref();
        // A driver that ended early has not reported the figures of the rest of the row.
        let whole = |count: f64| ended.is_none().then_some(count).and_then(Estimate::exact);
        let partly = |count: u64| {
            let known = ended.is_none_or(|ended| ended.calls.is_some());
            known.then_some(count as f64).and_then(Estimate::exact)
        };
        let values = [
            partly(account.calls),
            partly(account.said_ok),
            Estimate::exact(account.stored as f64),
            whole(account.told as f64),
            whole(account.late as f64),
            partly(account.untold()),
            account.first_error_at.and_then(|at| Estimate::exact(at as f64)),
            whole(account.longest_ms),
            account.visible_ms.and_then(Estimate::exact),
        ];
        let name = experiment.contenders[*contender].name.clone();
        let row = table.row(&name, [fault.name().to_owned(), mode.name()], values);
        if let Some(ended) = ended {
            row.note = ending(ended);
        } else if *fault == Fault::None && account.visible_ms.is_none() {
            row.note = format!("half of the sets are not all seen after {} ms", VISIBLE.as_millis());
        }
    }
    experiment.run.tables.push(table);
    for (at, name) in experiment.names().into_iter().enumerate() {
        let title = format!("{name}: sets that were acknowledged and lost, without an error of any call");
        let mut plot = Plot::new(&format!("lost-{name}"), &title, Kind::Bars);
        plot.groups = Fault::ALL.map(|fault| fault.name().to_owned()).to_vec();
        plot.x = Axis::new("fault", "", Scale::Linear);
        plot.y = Axis::new("lost without an error", "sets", Scale::Linear);
        // There are eight colours; a loop by hand loses the same values one by one as 64 together.
        for mode in Mode::ALL.into_iter().filter(|mode| mode.client != Client::ByHand) {
            let points =
                faulted.iter().filter(|one| one.contender == at && one.mode == mode).filter_map(|one| {
                    let group = Fault::ALL.iter().position(|fault| *fault == one.fault)?;
                    Some(Point::new(group as f64, one.account.untold() as f64))
                });
            plot.curve(&mode.name(), points);
        }
        plot.caption = "3,000 sets each; 12,000 where the server is full.".to_owned();
        push(experiment, plot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Ended;
    use crate::experiment::Seat;
    use crate::matrix::visit::Counted;

    #[test]
    fn a_rival_whose_client_ended_is_told_with_the_reason_and_a_control_is_none() {
        let cell = |contender: usize, again: bool, visits: usize, ended: bool| {
            let sample = || Sample {
                return_us: 1.0,
                barrier_us: 2.0,
                lost: 0.0,
                client_us: 1.0,
                server_us: None,
                calls: Latencies::default(),
            };
            let how = "ended by SIGABRT".to_owned();
            let GridPoint { op, value_bytes, handle, reply, link } = point(Op::Set, 100, Handle::Kept);
            Cell {
                seat: Seat { contender, again },
                setting: Setting {
                    op,
                    value_bytes,
                    handle,
                    reply,
                    link,
                    client: Client::Library(Options(0)),
                },
                samples: (0..visits).map(|_| sample()).collect(),
                counted: Counted::default(),
                ended: ended.then(|| Ended { how, calls: Some((7, 7)), complaint: String::new() }),
            }
        };
        let said = |base: &Cell, other: &Cell| {
            pair("a / b".to_owned(), [("a", base), ("b", other)]).map(|pair| format!("{pair:?}"))
        };
        let (base, rival) = (cell(0, false, 6, false), cell(1, false, 6, false));
        assert!(said(&base, &rival).unwrap().contains("why: None"));
        let lost = said(&base, &cell(1, false, 2, true)).unwrap();
        assert!(lost.contains("the client of b ended: ended by SIGABRT after 7 calls"), "{lost}");
        let lost = said(&cell(0, false, 0, true), &rival).unwrap();
        assert!(lost.contains("the client of a ended: "), "{lost}");
        assert_eq!(said(&base, &cell(0, true, 2, true)), None);
    }
}
