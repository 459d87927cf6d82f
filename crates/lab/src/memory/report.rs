//! Tables, pictures and the sentence of the memory experiment.

use super::{Found, Question, Shape};
use crate::experiment::{Experiment, Pair};
use crate::results::{Axis, Better, Column, Estimate, Kind, Plot, Point, Scale, Table, number};

/// Adds the results to the run.
pub fn fill(experiment: &mut Experiment, found: &[Found]) {
    let names: Vec<String> = experiment.contenders.iter().map(|contender| contender.name.clone()).collect();
    let name = |found: &Found| {
        let name = &names[found.seat.contender];
        if found.seat.again { format!("{name} again") } else { name.clone() }
    };
    costs(experiment, found, &name);
    full(experiment, found, &name);
    stages(experiment, found, &name);
    ratios(experiment, found, &names);
    verdict(experiment, found, &names);
}

fn costs(experiment: &mut Experiment, found: &[Found], name: &dyn Fn(&Found) -> String) {
    let mut table =
        Table::new("cost", "What a key costs above key and value", &["items", "key + value", "TTL"]);
    table.column(Column::new("of resident memory", "B", Better::Lower));
    table.column(Column::new("as the server counts", "B", Better::Neither));
    table.column(Column::new("resident in all", "MiB", Better::Lower));
    for found in found {
        let Question::Cost { items, shape, ttl } = found.question else { continue };
        let of =
            |pick: fn(&super::Reading) -> f64| Estimate::of(&found.cost.iter().map(pick).collect::<Vec<_>>());
        let labels = [number::text(items.into()), shape.name(), if ttl { "yes" } else { "no" }.to_owned()];
        table.row(
            &name(found),
            labels,
            [of(|r| r.overhead_bytes), of(|r| r.counted_bytes), of(|r| r.rss_mib)],
        );
    }
    experiment.run.tables.push(table);

    let mut counts: Vec<u32> = Vec::new();
    let mut shapes: Vec<Shape> = Vec::new();
    for found in found {
        if let Question::Cost { items, shape, .. } = found.question {
            if !counts.contains(&items) {
                counts.push(items);
            }
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
    }
    let Some(&most) = counts.iter().filter(|&&items| items <= 1_000_000).max().or(counts.first()) else {
        return;
    };
    for ttl in [false, true] {
        let with = if ttl { "with" } else { "without" };
        let title =
            format!("Bytes per key above key and value, {with} TTL, {} items", number::text(most.into()));
        let mut plot = Plot::new(&format!("cost-{with}-ttl"), &title, Kind::Bars);
        plot.groups = shapes.iter().map(|shape| shape.name()).collect();
        plot.x = Axis::new("key and value", "", Scale::Linear);
        plot.y = Axis::new("resident memory per key above both", "B", Scale::Linear);
        bars(&mut plot, found, name, |question| match question {
            Question::Cost { items, shape, ttl: has } if items == most && has == ttl => {
                shapes.iter().position(|have| *have == shape)
            }
            Question::Cost { .. } | Question::Full { .. } | Question::Stages { .. } => None,
        });
        experiment.run.plots.push(plot);
    }
    if counts.len() > 1 {
        let title = format!("Bytes per key against items, {}, without TTL", shapes[0].name());
        let mut plot = Plot::new("cost-by-items", &title, Kind::Lines);
        plot.x = Axis::new("items", "", Scale::Log);
        plot.y = Axis::new("resident memory per key above both", "B", Scale::Linear);
        let mut curves: Vec<(String, Vec<Point>)> = Vec::new();
        for found in found.iter().filter(|found| !found.seat.again) {
            let Question::Cost { items, shape, ttl: false } = found.question else { continue };
            let Some(cost) = overhead(found).filter(|_| shape == shapes[0]) else { continue };
            let point = Point::estimated(items.into(), &cost);
            match curves.iter_mut().find(|(have, _)| *have == name(found)) {
                Some((_, points)) => points.push(point),
                None => curves.push((name(found), vec![point])),
            }
        }
        for (name, points) in curves {
            plot.curve(&name, points);
        }
        experiment.run.plots.push(plot);
    }
}

fn overhead(found: &Found) -> Option<Estimate> {
    Estimate::of(&found.cost.iter().map(|reading| reading.overhead_bytes).collect::<Vec<_>>())
}

/// A bar for every server in the groups of `group`.
fn bars(
    plot: &mut Plot,
    found: &[Found],
    name: &dyn Fn(&Found) -> String,
    group: impl Fn(Question) -> Option<usize>,
) {
    for found in found.iter().filter(|found| !found.seat.again) {
        let (Some(group), Some(cost)) = (group(found.question), overhead(found)) else { continue };
        let point = Point::estimated(group as f64, &cost);
        let name = name(found);
        match plot.curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => {
                plot.curve(&name, [point]);
            }
        }
    }
}

fn full(experiment: &mut Experiment, found: &[Found], name: &dyn Fn(&Found) -> String) {
    let limit = found.iter().find_map(|found| match found.question {
        Question::Full { memory_mb, .. } => Some(memory_mb),
        Question::Cost { .. } | Question::Stages { .. } => None,
    });
    let title = format!("What it costs in a full cache that evicts (limit {} MB)", limit.unwrap_or(0));
    let mut table = Table::new("full", &title, &["key + value", "TTL"]);
    table.column(Column::new("of resident memory", "B", Better::Lower));
    table.column(Column::new("items held", "", Better::Higher));
    table.column(Column::new("resident in all", "MiB", Better::Neither));
    table.column(Column::new("writes refused", "", Better::Lower));
    for found in found {
        let Question::Full { shape, ttl, .. } = found.question else { continue };
        let of =
            |pick: fn(&super::Full) -> f64| Estimate::of(&found.full.iter().map(pick).collect::<Vec<_>>());
        table.row(
            &name(found),
            [shape.name(), if ttl { "yes" } else { "no" }.to_owned()],
            [
                of(|full| full.overhead_bytes),
                of(|full| full.items),
                of(|full| full.rss_mib),
                of(|full| full.refused),
            ],
        );
    }
    if !table.rows.is_empty() {
        experiment.run.tables.push(table);
    }
}

fn stages(experiment: &mut Experiment, found: &[Found], name: &dyn Fn(&Found) -> String) {
    let title = format!("What stays behind: {}, then 200–600 B, then half of the keys", super::STAGED.name());
    let mut table = Table::new("stages", &title, &["stage"]);
    table.column(Column::new("data", "MiB", Better::Neither));
    table.column(Column::new("resident for them", "MiB", Better::Lower));
    table.column(Column::new("as the server counts", "MiB", Better::Neither));
    table.column(Column::new("per key above key and value", "B", Better::Lower));
    let mut plot = Plot::new("stages", "Resident memory through overwrites and deletes", Kind::StackedBars);
    plot.x = Axis::new("server and stage", "", Scale::Linear);
    plot.y = Axis::new("resident memory", "MiB", Scale::Linear);
    plot.caption = "Overwritten: every value replaced by one of half to one and a half times its size. \
                    Half deleted: every other key."
        .to_owned();
    let (mut data, mut rest) = (Vec::new(), Vec::new());
    for found in found {
        let Question::Stages { .. } = found.question else { continue };
        for at in 0..found.stages.first().map_or(0, Vec::len) {
            let of = |pick: fn(&super::Stage) -> f64| {
                Estimate::of(&found.stages.iter().map(|stages| pick(&stages[at])).collect::<Vec<_>>())
            };
            let stage = found.stages[0][at].name;
            let (bytes, rss) = (of(|stage| stage.data_mib), of(|stage| stage.rss_mib));
            if let (Some(bytes), Some(rss)) = (&bytes, &rss) {
                let group = plot.groups.len() as f64;
                plot.groups.push(format!("{}: {stage}", name(found)));
                data.push(Point::new(group, bytes.median));
                rest.push(Point::new(group, (rss.median - bytes.median).max(0.0)));
            }
            table.row(
                &name(found),
                [stage],
                [bytes, rss, of(|stage| stage.counted_mib), of(|stage| stage.overhead_bytes)],
            );
        }
    }
    plot.curve("keys and values", data);
    plot.curve("everything else", rest);
    experiment.run.tables.push(table);
    experiment.run.plots.push(plot);
}

/// The ratios of the first server to the others, question by question, rounds paired.
fn ratios(experiment: &mut Experiment, found: &[Found], names: &[String]) {
    experiment.compare_unchecked(pairs(found, names));
}

/// All pairs together. The first server is measured twice for the first question alone, whose noise is that of all questions.
fn pairs(found: &[Found], names: &[String]) -> Vec<Pair> {
    let rounds = |found: &Found| found.cost.iter().map(|reading| reading.overhead_bytes).collect::<Vec<_>>();
    let mut pairs = Vec::new();
    for first in found.iter().filter(|found| found.seat.contender == 0 && !found.seat.again) {
        let Question::Cost { .. } = first.question else { continue };
        let same = |other: &&Found| other.question == first.question;
        let other_seat = |other: &&Found| other.seat != first.seat;
        // A running server was measured once.
        let paired = |other: &&Found| rounds(other).len() == rounds(first).len();
        for other in found.iter().filter(same).filter(other_seat).filter(paired) {
            let again = other.seat.again;
            let whom = if again { " again" } else { "" };
            let claim =
                format!("{} / {}{whom}, {}", names[0], names[other.seat.contender], first.question.name());
            pairs.push(Pair::new(claim, Better::Lower, &rounds(first), &rounds(other), again));
        }
    }
    pairs
}

fn verdict(experiment: &mut Experiment, found: &[Found], names: &[String]) {
    let Some(Question::Cost { items, shape, .. }) = found.first().map(|found| found.question) else { return };
    let cost = |contender: usize, ttl: bool| {
        let question = Question::Cost { items, shape, ttl };
        let found =
            found.iter().find(|found| found.question == question && found.seat.contender == contender);
        found.and_then(overhead).map(|cost| cost.median)
    };
    let said: Vec<String> = names
        .iter()
        .enumerate()
        .filter_map(|(at, name)| {
            let without = cost(at, false)?;
            Some(match cost(at, true) {
                Some(with) => format!("{name} {without:.1} B ({with:.1} with a TTL)"),
                None => format!("{name} {without:.1} B"),
            })
        })
        .collect();
    experiment.run.verdict = format!(
        "A key of {} B with a value of {} B takes, above both, of resident memory at {} items: {}.",
        shape.key_bytes,
        shape.value_bytes,
        number::text(items.into()),
        said.join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::super::Reading;
    use super::*;
    use crate::experiment::Seat;

    #[test]
    fn the_server_measured_twice_is_the_control_of_all_questions() {
        let found = |items: u32, contender: usize, again: bool| {
            let question = Question::Cost { items, shape: super::super::STAGED, ttl: false };
            let reading = Reading { overhead_bytes: 20.0, counted_bytes: 20.0, rss_mib: 1.0 };
            let seat = Seat { contender, again };
            Found { question, seat, cost: vec![reading; 6], full: Vec::new(), stages: Vec::new() }
        };
        let all = [
            found(1, 0, false),
            found(1, 0, true),
            found(1, 1, false),
            found(2, 0, false),
            found(2, 1, false),
        ];
        let pairs = pairs(&all, &["larder".to_owned(), "redis".to_owned()]);
        let controls: Vec<bool> = pairs.iter().map(Pair::is_control).collect();
        assert_eq!(controls, [true, false, false]);
    }
}
