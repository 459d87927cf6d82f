//! Lists that are queues: some clients push numbers, others wait for them and pop them. In a phase in which
//! nothing may be lost, each pushed number is popped once or is left.

use crate::client::open;
use crate::dialect::{Reply, reply};
use crate::op::short;
use crate::random::Random;
use crate::wire::{Manner, Wire};
use crate::world::World;
use larder_testkit::talk::encode;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

/// Clients that push, and those that pop.
pub const PUSHERS: usize = 2;
pub const POPPERS: usize = 3;
/// Queues.
const QUEUES: usize = 3;
/// Numbers that are pushed or popped together.
const TOGETHER: usize = 3;
/// How long a client waits for a number, in seconds. No phase ends meanwhile.
const WAITS: &str = "0.05";
/// Longest pause between two pushes, in microseconds.
const PAUSE_US: usize = 1500;

/// The fate of the numbers of a phase.
#[derive(Debug, Default)]
pub struct Queue {
    pushed: BTreeSet<u64>,
    /// Numbers whose pushes were on connections that ended before the reply.
    perhaps: BTreeSet<u64>,
    popped: BTreeSet<u64>,
    /// Most numbers that may have been popped for connections that ended before the reply.
    untold: usize,
}

impl Queue {
    /// What is wrong, if these numbers are left.
    pub fn wrong(&self, left: &[u64]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut seen = self.popped.clone();
        for number in left {
            if !seen.insert(*number) {
                wrong.push(format!("{number} is left, and was popped or is left twice"));
            }
        }
        for number in
            seen.iter().filter(|number| !self.pushed.contains(number) && !self.perhaps.contains(number))
        {
            wrong.push(format!("{number} was never pushed"));
        }
        let missing: Vec<&u64> = self.pushed.iter().filter(|number| !seen.contains(number)).collect();
        if missing.len() > self.untold {
            wrong.push(format!(
                "{} numbers are missing, {} may have been told to nobody; {:?}",
                missing.len(),
                self.untold,
                &missing[..missing.len().min(5)]
            ));
        }
        wrong
    }

    /// Number of popped numbers.
    pub fn popped(&self) -> usize {
        self.popped.len()
    }
}

/// The names of the queues of this round.
pub fn names(world: &World) -> [String; QUEUES] {
    let round = world.round.load(SeqCst);
    std::array::from_fn(|n| format!("queue:{round}:{n}"))
}

/// Pushes numbers until the soak ends.
pub fn push(world: &World, seed: u64, number: usize) {
    let mut random = Random::of(seed, (5 << 32) + number as u64);
    let mut wire: Option<Wire> = None;
    let mut next = number as u64;
    while world.runs() {
        world.within(|phase| {
            if !phase.counts {
                return;
            }
            let name = names(world)[random.below(QUEUES)].clone();
            let mut numbers = Vec::new();
            for _ in 0..random.within(1, TOGETHER) {
                numbers.push(next);
                next += PUSHERS as u64;
            }
            let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let mut words = vec![*random.of_list(&["LPUSH", "RPUSH"]), &name];
            words.extend(texts.iter().map(String::as_str));
            let answer = ask(world, &mut wire, &words, &mut random);
            let mut queue = world.queue.lock().expect("not poisoned");
            match answer {
                Some(Reply::Number(len)) if len > 0 => queue.pushed.extend(numbers),
                None => queue.perhaps.extend(numbers),
                Some(answer) => world.complain(&format!("{} was answered {answer:?}", words.join(" "))),
            }
        });
        thread::sleep(Duration::from_micros(random.below(PAUSE_US) as u64));
    }
    leave(world, wire);
}

/// Pops numbers until the soak ends.
pub fn pop(world: &World, seed: u64, number: usize) {
    let mut random = Random::of(seed, (6 << 32) + number as u64);
    let mut wire: Option<Wire> = None;
    while world.runs() {
        let idle = world.within(|phase| {
            if phase.counts {
                pop_some(world, &mut wire, &mut random);
            }
            !phase.counts
        });
        if idle {
            thread::sleep(Duration::from_millis(20));
        }
    }
    leave(world, wire);
}

fn pop_some(world: &World, wire: &mut Option<Wire>, random: &mut Random) {
    let names = names(world);
    let [one, two, three] = names.each_ref().map(String::as_str);
    let (words, most): (Vec<&str>, usize) = match random.below(6) {
        0 | 1 => (vec!["BLPOP", one, two, three, WAITS], 1),
        2 => (vec!["BRPOP", three, one, WAITS], 1),
        3 => (vec!["BLMPOP", WAITS, "3", two, three, one, "LEFT", "COUNT", "3"], TOGETHER),
        4 => (vec!["LPOP", two, "2"], 2),
        // The number goes from one queue to another.
        _ => (vec!["BLMOVE", one, two, "LEFT", "RIGHT", WAITS], 0),
    };
    let answer = ask(world, wire, &words, random);
    let mut queue = world.queue.lock().expect("not poisoned");
    let Some(answer) = answer else {
        queue.untold += most;
        return;
    };
    let elements = match (words[0], &answer) {
        (_, Reply::Bulk(None) | Reply::Array(None)) => &[][..],
        ("BLMOVE", Reply::Bulk(Some(_))) => &[],
        ("LPOP", Reply::Array(Some(elements))) => elements,
        ("BLPOP" | "BRPOP", Reply::Array(Some(told))) if told.len() == 2 => &told[1..],
        ("BLMPOP", Reply::Array(Some(told))) => match told.last() {
            Some(Reply::Array(Some(elements))) => &elements[..],
            _ => &[],
        },
        _ => {
            world.complain(&format!("{} was answered {answer:?}", words.join(" ")));
            &[]
        }
    };
    for element in elements {
        let number = match &element {
            Reply::Bulk(Some(text)) => {
                std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok())
            }
            _ => None,
        };
        match number {
            Some(number) if queue.popped.insert(number) => {}
            _ => {
                world.complain(&format!("{} gave {element:?}, which is none or was popped before", words[0]))
            }
        }
    }
}

/// Sends one request; `None` if the connection ended.
pub fn ask(world: &World, wire: &mut Option<Wire>, words: &[&str], random: &mut Random) -> Option<Reply> {
    if wire.is_none() {
        *wire = open(world, 1);
    }
    let open = wire.as_mut()?;
    let request = encode(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    match open.send(&request, Manner::Prompt, random).and_then(|()| reply(open)) {
        Ok(answer) => Some(answer),
        Err(error) => {
            let address = open.address;
            *wire = None;
            world.broke(address, || format!("{}: {error}", short(&request)));
            None
        }
    }
}

/// Forgets the connection of a client at its end.
pub fn leave(world: &World, wire: Option<Wire>) {
    if let Some(wire) = wire {
        world.forget(wire.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_popped_once_or_left() {
        let queue = Queue { pushed: [1, 2, 3].into(), perhaps: [4].into(), popped: [1].into(), untold: 0 };
        assert!(queue.wrong(&[2, 3]).is_empty() && queue.wrong(&[3, 4, 2]).is_empty());
        for left in [&[2][..], &[1, 2, 3], &[2, 2, 3], &[2, 3, 5]] {
            assert_eq!(queue.wrong(left).len(), 1, "{left:?}");
        }
        assert!(Queue { untold: 1, ..queue }.wrong(&[2]).is_empty());
    }
}
