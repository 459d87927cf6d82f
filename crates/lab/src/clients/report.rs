//! The experiment's tables and pictures.

use super::faults::{self, Fault};
use super::floor::Floor;
use super::roster::{BY_HAND, GOMEMCACHE, OWN};
use super::targets::{ARTICLE, ARTICLE_BYTES, ARTICLE_CLIENTS, Figure, TARGETS, Target};
use super::visit::{Callers, Op, Sample};
use super::{Cell, Faulted, by_hand};
use crate::driver::build::Language;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::results::{Axis, Better, Column, Estimate, Kind, Plot, Point, Scale, Table, number, of_time};

/// Adds the tables and pictures of the run.
///
/// # Errors
/// None so far.
pub fn report(
    experiment: &mut Experiment,
    cells: &[Cell],
    floors: &[Floor],
    faulted: &[Faulted],
) -> Result<(), Error> {
    if !cells.is_empty() {
        article(experiment, cells);
        targets(experiment, cells, faulted);
        bursts(experiment, cells);
        costs(experiment, cells);
        under(experiment, cells, floors);
        compare(experiment, cells);
        plots(experiment, cells);
    }
    if !faulted.is_empty() {
        accounts(experiment, faulted);
        truth(experiment, faulted);
    }
    verdict(experiment, cells, faulted);
    Ok(())
}

/// Rounds of a figure of a cell.
fn rounds(cell: &Cell, figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
    cell.samples.iter().map(figure).collect()
}

fn estimate(cell: &Cell, figure: impl Fn(&Sample) -> f64) -> Option<Estimate> {
    Estimate::of(&rounds(cell, figure))
}

/// Allocations of a call; `None` unless there is one caller and the driver counts them.
fn allocated(cell: &Cell) -> Option<Estimate> {
    let counts = matches!(cell.setting.client.language, Language::Go | Language::C | Language::Rust);
    (counts && alone(cell)).then(|| estimate(cell, |sample| sample.allocations)).flatten()
}

/// Allocated bytes of a call on the same conditions; the Java driver counts them, too.
fn allocated_bytes(cell: &Cell) -> Option<Estimate> {
    let counts = cell.setting.client.language != Language::Python;
    (counts && alone(cell)).then(|| estimate(cell, |sample| sample.allocated_bytes)).flatten()
}

fn alone(cell: &Cell) -> bool {
    cell.setting.callers == Callers::Steady(1)
}

fn find<'c>(
    cells: &'c [Cell],
    experiment: &Experiment,
    language: Language,
    client: &str,
    op: Op,
    value_bytes: usize,
    callers: Callers,
) -> Option<&'c Cell> {
    cells.iter().find(|cell| {
        let setting = &cell.setting;
        (setting.client.language, setting.client.name) == (language, client)
            && (setting.op, setting.value_bytes, setting.callers) == (op, value_bytes, callers)
            && !cell.seat.again
            && (cell.seat.contender == 0
                || experiment.contenders[0].control.family != setting.client.speaks.family())
    })
}

/// The original article's table beside ours: a set and a get of 4 bytes.
fn article(experiment: &mut Experiment, cells: &[Cell]) {
    let title =
        "The original article's table (docs/lab/clients.md): a set and a get of 4 bytes, one goroutine";
    let mut table = Table::new("article", title, &["client"]);
    for (name, unit) in [("time", "ns"), ("memory", "B"), ("allocations", "")] {
        table.column(Column::new(name, unit, Better::Lower));
    }
    for (client, figures) in ARTICLE {
        table.row("original article", [client], figures.map(Estimate::exact));
    }
    for (contender, server) in experiment.names().into_iter().enumerate() {
        for client in ARTICLE_CLIENTS {
            let of = |op| {
                cells.iter().find(|cell| {
                    let setting = &cell.setting;
                    (setting.client.language, setting.client.name) == (Language::Go, client)
                        && (setting.op, setting.value_bytes) == (op, ARTICLE_BYTES)
                        && (cell.seat.contender, cell.seat.again) == (contender, false)
                })
            };
            let (Some(set), Some(get)) = (of(Op::Set), of(Op::Hit)) else { continue };
            let both = |figure: &dyn Fn(&Sample) -> f64| {
                let (set, get) = (rounds(set, figure), rounds(get, figure));
                Estimate::of(&set.iter().zip(&get).map(|(set, get)| set + get).collect::<Vec<f64>>())
            };
            table.row(
                &server,
                [client],
                [
                    both(&|sample| sample.call_us * 1e3),
                    both(&|sample| sample.allocated_bytes),
                    both(&|sample| sample.allocations),
                ],
            );
        }
    }
    if table.rows.len() > ARTICLE.len() {
        experiment.run.tables.push(table);
    }
}

/// A target's figure, if its cells were visited.
fn figure_of(experiment: &Experiment, cells: &[Cell], target: &Target) -> Option<Estimate> {
    let of = |client| {
        let Target { language, op, value_bytes, callers, .. } = *target;
        find(cells, experiment, language, client, op, value_bytes, callers)
    };
    let cell = of(target.client)?;
    match target.figure {
        Figure::CpuOver(other) => Estimate::ratio(
            &rounds(cell, |sample| sample.client_us),
            &rounds(of(other)?, |sample| sample.client_us),
        ),
        Figure::Cpu => estimate(cell, |sample| sample.client_us),
        Figure::Allocations => allocated(cell),
        Figure::Connections => estimate(cell, |sample| sample.connections as f64),
        Figure::Writes => estimate(cell, |sample| sample.writes),
        Figure::Syscalls => cell.syscalls.and_then(Estimate::exact),
    }
}

/// The targets of Larder's own clients.
fn targets(experiment: &mut Experiment, cells: &[Cell], faulted: &[Faulted]) {
    let mut table = Table::new("targets", "What Larder's own clients are to reach", &["figure"]);
    table.column(Column::new("measured", "", Better::Lower));
    table.column(Column::new("at most", "", Better::Neither));
    let mut row = |words: String, figure: Estimate, most: f64, met: bool| {
        let values = [Some(figure), Estimate::exact(most)];
        table.row("larder", [words], values).note = if met { "met" } else { "missed" }.to_owned();
    };
    for target in TARGETS {
        let Some(figure) = figure_of(experiment, cells, target) else { continue };
        let met = target.is_met(figure.median);
        row(target.words(), figure, target.most, met);
    }
    for faulted in faulted.iter().filter(|f| f.contender == 0 && f.client.name == OWN) {
        let (name, account) = (faulted.client.full_name(), &faulted.account);
        let callers = faults::callers(faulted.client.language);
        let mut add = |what: &str, figure: Option<f64>, most: f64| {
            if let Some(figure) = figure.and_then(Estimate::exact) {
                let met = figure.median <= most;
                row(
                    format!("{name}, {}, {callers} callers: {what}", faulted.fault.name()),
                    figure,
                    most,
                    met,
                );
            }
        };
        match faulted.fault {
            Fault::Stopped => add("longest call, ms", Some(account.longest_ms), 130.0),
            Fault::Refused => {
                add("connects a second", account.connects, 20.0);
                add("a call that told an error, µs", account.told_us, 10.0);
            }
            Fault::Slow | Fault::Late | Fault::Hasty | Fault::Cut | Fault::Lying => {}
        }
    }
    if !table.rows.is_empty() {
        experiment.run.tables.push(table);
    }
}

/// Bursts: which clients open connections.
fn bursts(experiment: &mut Experiment, cells: &[Cell]) {
    let title = format!("{} bursts of one get by each caller, 5 ms between", super::visit::BURSTS);
    let mut table = Table::new("bursts", &title, &["client", "callers"]);
    table.absent("the server's process cannot be seen from here");
    for (name, unit) in
        [("connections", ""), ("client CPU", "µs"), ("server CPU", "µs"), ("p99", "µs"), ("errors", "")]
    {
        table.column(Column::new(name, unit, Better::Lower));
    }
    for cell in cells.iter().filter(|cell| !cell.seat.again) {
        let Callers::Burst(count) = cell.setting.callers else { continue };
        let values = [
            estimate(cell, |sample| sample.connections as f64),
            estimate(cell, |sample| sample.client_us),
            server_us(cell),
            estimate(cell, |sample| sample.latencies.quantile_us(0.99)),
            estimate(cell, |sample| sample.told as f64),
        ];
        let labels = [cell.setting.client.full_name(), count.to_string()];
        table.row(&experiment.seat_name(cell.seat), labels, values);
    }
    if !table.rows.is_empty() {
        experiment.run.tables.push(table);
    }
}

fn server_us(cell: &Cell) -> Option<Estimate> {
    let all: Option<Vec<f64>> = cell.samples.iter().map(|sample| sample.server_us).collect();
    all.and_then(|all| Estimate::of(&all))
}

/// A table of at most this many lines is shown whole.
const ROWS_MAX: usize = 60;

/// Every cell.
fn costs(experiment: &mut Experiment, cells: &[Cell]) {
    let mut table = Table::new("clients", "What a call costs", &["client", "operation", "value", "callers"]);
    table.absent("that language does not count it, system calls cannot be counted here, or the server's process cannot be seen from here");
    for (name, unit) in [
        ("client CPU", "µs"),
        ("of by hand", "×"),
        ("server CPU", "µs"),
        ("call", "µs"),
        ("p50", "µs"),
        ("p99", "µs"),
        ("memory", "B"),
        ("allocations", ""),
        ("system calls", ""),
        ("connections", ""),
        ("errors", ""),
        ("wrong", ""),
    ] {
        table.column(Column::new(name, unit, Better::Lower));
    }
    let steady = |cell: &&Cell| matches!(cell.setting.callers, Callers::Steady(_));
    let shown: Vec<&Cell> = cells.iter().filter(steady).collect();
    for cell in &shown {
        let cpu = |cell: &Cell| rounds(cell, |sample| sample.client_us);
        // Callers share a core, so the time of one is multiplied by their number.
        let count = cell.setting.callers.count() as f64;
        let values = [
            estimate(cell, |sample| sample.client_us),
            by_hand(cells, cell).and_then(|hand| Estimate::ratio(&cpu(cell), &cpu(hand))),
            server_us(cell),
            estimate(cell, |sample| sample.call_us * count),
            estimate(cell, |sample| sample.latencies.quantile_us(0.5)),
            estimate(cell, |sample| sample.latencies.quantile_us(0.99)),
            allocated_bytes(cell),
            allocated(cell),
            cell.syscalls.and_then(Estimate::exact),
            estimate(cell, |sample| sample.connections as f64),
            estimate(cell, |sample| sample.told as f64),
            estimate(cell, |sample| sample.wrong as f64),
        ];
        let setting = &cell.setting;
        let labels = [
            setting.client.full_name(),
            setting.op.name().to_owned(),
            format!("{} B", number::text(setting.value_bytes as f64)),
            setting.callers.to_string(),
        ];
        table.row(&experiment.seat_name(cell.seat), labels, values).note = setting.client.features.to_owned();
    }
    let usual = |at: usize| {
        let cell = shown[at];
        !cell.seat.again && cell.setting.op == Op::Hit && cell.setting.value_bytes != ARTICLE_BYTES
    };
    if let Some(digest) = table.digest(ROWS_MAX, usual) {
        experiment.run.tables.push(digest);
    }
    experiment.run.tables.push(table);
}

/// How many times as fast a loop by hand may be with a server as with a server of fixed replies; more shows a disturbance.
const OVER_FLOOR_MAX: f64 = 1.1;

/// Loops by hand with a server of fixed replies, beside the same loops with a server.
fn under(experiment: &mut Experiment, cells: &[Cell], floors: &[Floor]) {
    let title = "A hit by hand, from a server of fixed replies that looks nothing up";
    let mut table = Table::new("floor", title, &["client", "callers"]);
    for (name, unit) in
        [("client CPU", "µs"), ("the same with a server", "µs"), ("call", "µs"), ("call with a server", "µs")]
    {
        table.column(Column::new(name, unit, Better::Lower));
    }
    for Floor { setting, samples } in floors {
        let is_same =
            |cell: &&Cell| cell.setting == *setting && (cell.seat.contender, cell.seat.again) == (0, false);
        let Some(cell) = cells.iter().find(is_same) else { continue };
        let count = setting.callers.count() as f64;
        let below =
            |figure: &dyn Fn(&Sample) -> f64| Estimate::of(&samples.iter().map(figure).collect::<Vec<f64>>());
        // The better of both: a disturbed visit shows nothing.
        let best =
            |samples: &[Sample]| samples.iter().map(|sample| sample.call_us * count).min_by(f64::total_cmp);
        if let (Some(floor), Some(call)) = (best(samples), best(&cell.samples)) {
            let words = || format!("{}: {call:.1} µs a call, {floor:.1} on the null server", setting.words());
            experiment.checks.add_off(of_time::CEILING, floor <= OVER_FLOOR_MAX * call, floor / call, words);
        }
        let values = [
            below(&|sample| sample.client_us),
            estimate(cell, |sample| sample.client_us),
            below(&|sample| sample.call_us * count),
            estimate(cell, |sample| sample.call_us * count),
        ];
        table.row("null", [setting.client.full_name(), setting.callers.to_string()], values);
    }
    if !table.rows.is_empty() {
        experiment.run.tables.push(table);
    }
}

/// Ratios of Larder's client to others in the same rounds.
fn compare(experiment: &mut Experiment, cells: &[Cell]) {
    let names = experiment.names();
    for cell in cells {
        let setting = &cell.setting;
        if setting.client.name != OWN || cell.seat.again || cell.seat.contender != 0 {
            continue;
        }
        if setting.op != Op::Hit || setting.value_bytes == ARTICLE_BYTES {
            continue;
        }
        let mut others = Vec::new();
        for other in cells {
            let there = &other.setting;
            let same = there.client.language == setting.client.language
                && (there.op, there.value_bytes, there.callers)
                    == (setting.op, setting.value_bytes, setting.callers);
            let again = other.seat.again && there.client == setting.client;
            let rival = !other.seat.again
                && there.client != setting.client
                && (other.seat.contender == 0 || names[other.seat.contender] == "larder-redis");
            if same && (again || rival) {
                let whom = if again { "itself".to_owned() } else { there.client.name.to_owned() };
                let callers = setting.callers;
                let claim =
                    format!("{} / {whom}, client CPU, hit, {callers} callers", setting.client.full_name());
                others.push((claim, rounds(other, |sample| sample.client_us), again));
            }
        }
        experiment.compare_with(Better::Lower, &rounds(cell, |sample| sample.client_us), others);
    }
}

/// CPU time against the number of callers.
fn plots(experiment: &mut Experiment, cells: &[Cell]) {
    for language in Language::ALL {
        let title = format!("CPU time of a hit by the number of callers: {}", language.name());
        let mut plot = Plot::new(&format!("callers-{}", language.name()), &title, Kind::Lines);
        plot.x = Axis::new("callers", "", Scale::Log);
        plot.y = Axis::new("client CPU", "µs", Scale::Log);
        let mut curves: Vec<(String, Vec<Point>)> = Vec::new();
        for cell in cells {
            let setting = &cell.setting;
            let Callers::Steady(callers) = setting.callers else { continue };
            let ours =
                experiment.contenders[cell.seat.contender].kind.is_some_and(crate::peers::Kind::is_larder);
            if setting.client.language != language
                || setting.op != Op::Hit
                || setting.value_bytes == ARTICLE_BYTES
                || cell.seat.again
                || !ours
            {
                continue;
            }
            let Some(cpu) = estimate(cell, |sample| sample.client_us) else { continue };
            let point = Point::new(callers as f64, cpu.median);
            match curves.iter_mut().find(|(name, _)| name == setting.client.name) {
                Some((_, points)) => points.push(point),
                None => curves.push((setting.client.name.to_owned(), vec![point])),
            }
        }
        if curves.iter().any(|(_, points)| points.len() > 1) {
            for (name, points) in curves {
                plot.curve(&name, points);
            }
            experiment.run.plots.push(plot);
        }
    }
}

/// The results of the faults.
fn accounts(experiment: &mut Experiment, faulted: &[Faulted]) {
    let title = format!(
        "Faults: hits through a relay, timeout {} ms but where callers are hasty, {} ms of harm of 2,200",
        faults::TIMEOUT_MS,
        faults::HARM.as_millis()
    );
    let mut table = Table::new("faults", &title, &["client", "fault", "callers"]);
    table.absent("the client ended before, or nothing of that kind happened");
    for (name, unit) in [
        ("calls", ""),
        ("right", ""),
        ("false misses", ""),
        ("errors", ""),
        ("timeouts", ""),
        ("wrong", ""),
        ("an error", "µs"),
        ("longest", "ms"),
        ("connects", "1/s"),
        ("recovered", "ms"),
    ] {
        let better = if matches!(name, "calls" | "right") { Better::Neither } else { Better::Lower };
        table.column(Column::new(name, unit, better));
    }
    for Faulted { contender, client, fault, account } in faulted {
        let count = |count: u64| account.ended.is_none().then(|| Estimate::exact(count as f64)).flatten();
        let known = |figure: f64| account.ended.is_none().then(|| Estimate::exact(figure)).flatten();
        let values = [
            count(account.calls),
            count(account.right),
            count(account.misses),
            count(account.told),
            count(account.timeouts),
            count(account.wrong),
            account.told_us.and_then(Estimate::exact),
            known(account.longest_ms),
            account.connects.and_then(Estimate::exact),
            known(account.recovered_ms),
        ];
        let callers = faults::callers(client.language).to_string();
        let labels = [client.full_name(), fault.name().to_owned(), callers];
        let name = experiment.contenders[*contender].name.clone();
        table.row(&name, labels, values).note = account.ended.clone().unwrap_or_default();
    }
    experiment.run.tables.push(table);
    let words: Vec<String> =
        Fault::ALL.iter().map(|fault| format!("{}: {}", fault.name(), fault.words())).collect();
    experiment.run.notes.push(words.join("; "));
}

/// Values that clients returned beside faults of an honest server, and values of other keys among them.
fn truth(experiment: &mut Experiment, faulted: &[Faulted]) {
    let title = "Values read beside faults of a server that does not lie";
    let mut table = Table::new("truth", title, &["client"]);
    for (name, better) in
        [("values", Better::Neither), ("wrong", Better::Lower), ("false misses", Better::Lower)]
    {
        table.column(Column::new(name, "", better));
    }
    let mut rows: Vec<(usize, String, [u64; 3])> = Vec::new();
    for Faulted { contender, client, account, .. } in faulted.iter().filter(|one| one.fault.is_honest()) {
        let (name, counts) = (client.full_name(), [account.values(), account.wrong, account.misses]);
        match rows.iter_mut().find(|row| (row.0, &row.1) == (*contender, &name)) {
            Some((_, _, sums)) => sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count),
            None => rows.push((*contender, name, counts)),
        }
    }
    let names = experiment.names();
    for (contender, client, counts) in rows {
        table.row(&names[contender], [client], counts.map(|count| Estimate::exact(count as f64)));
    }
    if !table.rows.is_empty() {
        experiment.run.tables.push(table);
    }
}

fn verdict(experiment: &mut Experiment, cells: &[Cell], faulted: &[Faulted]) {
    let mut words = Vec::new();
    let go = |client, op, callers| find(cells, experiment, Language::Go, client, op, 100, callers);
    let median = |cell: Option<&Cell>, figure: &dyn Fn(&Sample) -> f64| Some(estimate(cell?, figure)?.median);
    let cpu = |sample: &Sample| sample.client_us;
    let one = Callers::Steady(1);
    let (own, hand, shipped) =
        (go(OWN, Op::Hit, one), go(BY_HAND, Op::Hit, one), go(GOMEMCACHE, Op::Hit, one));
    if let (Some(own), Some(hand), Some(shipped)) =
        (median(own, &cpu), median(hand, &cpu), median(shipped, &cpu))
    {
        words.push(format!(
            "At one caller the kernel's round trip is the cost: {own:.1} µs of CPU a get with Larder's client, \
             {hand:.1} by hand, {shipped:.1} with gomemcache."
        ));
    }
    let many = Callers::Steady(256);
    let (own, other) = (go(OWN, Op::Hit, many), go(GOMEMCACHE, Op::Hit, many));
    if let (Some(own), Some(other)) = (median(own, &cpu), median(other, &cpu)) {
        words.push(format!("At 256 callers it is {own:.2} against {other:.1}."));
    }
    let burst = Callers::Burst(256);
    let connections = |sample: &Sample| sample.connections as f64;
    let (own, other) = (go(OWN, Op::Hit, burst), go(GOMEMCACHE, Op::Hit, burst));
    if let (Some(own), Some(other)) = (median(own, &connections), median(other, &connections)) {
        words.push(format!("Bursts of 256 opened {own:.0} connections against {other:.0}."));
    }
    let wrong: Vec<String> = faulted
        .iter()
        .filter(|faulted| faulted.account.wrong > 0)
        .map(|Faulted { client, fault, account, .. }| {
            format!("{} ({}, {})", client.full_name(), fault.name(), account.wrong)
        })
        .collect();
    if !faulted.is_empty() {
        words.push(match wrong.is_empty() {
            true => "Beside faults no client returned a wrong value.".to_owned(),
            false => format!("Wrong values beside faults: {}.", wrong.join(", ")),
        });
    }
    let untrue: Vec<String> = faulted
        .iter()
        .filter(|faulted| faulted.account.misses > 0)
        .map(|faulted| format!("{} ({})", faulted.client.full_name(), faulted.fault.name()))
        .collect();
    if !untrue.is_empty() {
        words.push(format!("Faults told as a miss: {}.", untrue.join(", ")));
    }
    experiment.run.verdict = words.join(" ");
}
