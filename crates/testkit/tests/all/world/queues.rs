//! Lists that clients push to, pop from and wait for: each element that was pushed is given to one client, or is in its list at
//! the end.
//!
//! ```text
//! pushed ─┬─▶ told to one client, by LPOP or BLPOP
//!         ├─▶ in its list at the end
//!         └─▶ lost with a connection that ended before its pop was answered: no more of them than there are such pops
//! ```
//!
//! Each element says its list and its number. Who was told that a list has nothing must not have been told so while an element lay
//! there all the time. Elements of one client come to another in the order in which they were pushed. Both are only known
//! where no pop was lost: what was popped for a client that has gone is put back.

use std::collections::HashMap;
use std::ops::Range;

use larder_testkit::proof;

use crate::world::asking::Asking;
use crate::world::client::Client;
use crate::world::judge::bulk_at;
use crate::world::part::{Dialect, Part, words};
use crate::world::scene::Scene;

/// Lists.
pub const LISTS: usize = 3;
/// Seconds for which a client waits.
const TIMEOUTS: [&str; 4] = ["0.001", "0.05", "0.3", "2"];

/// What has come of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Push {
    Open,
    /// It was answered then.
    Done(u64),
    /// It was never sent.
    Not,
    /// Its connection ended before the answer.
    Unsure,
}

#[derive(Debug)]
struct Element {
    list: usize,
    /// The client that pushed it.
    pusher: usize,
    push: Push,
    /// When the pop was asked for that was told of it.
    popped: Option<u64>,
}

/// Somebody was told that a list has nothing, or was given something of another list.
#[derive(Debug)]
struct Denial {
    who: String,
    list: usize,
    asked: u64,
    answered: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Queues {
    elements: Vec<Element>,
    denials: Vec<Denial>,
    /// The client and the element of each pop, as they were answered.
    told: Vec<(usize, usize)>,
    /// Pops and pushes on connections that ended before the answer.
    unsure_pops: usize,
    unsure_pushes: usize,
    /// What was asked and answered: each has a number of its own.
    moment: u64,
}

/// The name of a list.
pub fn list_name(list: usize) -> String {
    format!("list-{list}")
}

impl Queues {
    fn now(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// The number of the next element.
    fn next(&self) -> u64 {
        self.elements.len() as u64
    }

    /// A client is to push one more.
    fn push(&mut self, list: usize, pusher: usize) -> u64 {
        self.elements.push(Element { list, pusher, push: Push::Open, popped: None });
        self.next() - 1
    }

    /// These were pushed.
    pub fn pushed(&mut self, numbers: Range<u64>) {
        let now = self.now();
        numbers.for_each(|number| self.elements[number as usize].push = Push::Done(now));
    }

    /// The connection that was to push these ended before the answer.
    pub fn left_push(&mut self, numbers: Range<u64>, sent: bool) {
        self.unsure_pushes += usize::from(sent);
        let push = if sent { Push::Unsure } else { Push::Not };
        numbers.for_each(|number| self.elements[number as usize].push = push);
    }

    /// A connection ended before its pop was answered.
    pub fn left_pop(&mut self, sent: bool) {
        self.unsure_pops += usize::from(sent);
    }

    /// Elements that were told.
    pub fn pops(&self) -> u64 {
        self.told.len() as u64
    }

    /// These lists have nothing.
    fn denied(&mut self, who: &str, lists: &[usize], asked: u64) {
        let answered = self.now();
        let denial = |&list: &usize| Denial { who: who.to_owned(), list, asked, answered };
        self.denials.extend(lists.iter().map(denial));
    }

    /// A client was given an element.
    fn popped(&mut self, who: usize, list: usize, text: &[u8], asked: u64) -> Result<(), String> {
        let number = self.number(list, text)?;
        let element = &mut self.elements[number];
        if element.push == Push::Not {
            return Err(format!("element {number} was never sent"));
        }
        if element.popped.replace(asked).is_some() {
            return Err(format!("element {number} was given to somebody before"));
        }
        self.told.push((who, number));
        Ok(())
    }

    /// The number of an element of a list.
    fn number(&self, list: usize, text: &[u8]) -> Result<usize, String> {
        let number = proof::version(&list_name(list), text)? as usize;
        match self.elements.get(number) {
            Some(element) if element.list == list => Ok(number),
            Some(_) | None => Err(format!("element {number} was not pushed to {}", list_name(list))),
        }
    }

    /// What must be in the lists at the end.
    ///
    /// # Errors
    /// What is wrong.
    pub fn agrees(&self, lists: &[Vec<Vec<u8>>]) -> Result<(), String> {
        let mut is_left = vec![false; self.elements.len()];
        for (list, texts) in lists.iter().enumerate() {
            for text in texts {
                let number = self.number(list, text)?;
                let element = &self.elements[number];
                if std::mem::replace(&mut is_left[number], true)
                    || element.popped.is_some()
                    || matches!(element.push, Push::Open | Push::Not)
                {
                    return Err(format!("element {number} is in {}: {element:?}", list_name(list)));
                }
            }
        }
        let is_missing = |(element, is_left): &(&Element, &bool)| {
            matches!(element.push, Push::Done(_)) && element.popped.is_none() && !**is_left
        };
        let missing = self.elements.iter().zip(&is_left).filter(is_missing).count();
        if missing > self.unsure_pops {
            return Err(format!("{missing} elements are gone, and {} pops are lost", self.unsure_pops));
        }
        if self.unsure_pops > 0 {
            return Ok(());
        }
        self.denials.iter().try_for_each(|denial| self.is_true(denial, &is_left))?;
        if self.unsure_pushes > 0 { Ok(()) } else { self.is_in_order() }
    }

    /// No element lay in the list from before that was asked until behind the answer.
    fn is_true(&self, denial: &Denial, is_left: &[bool]) -> Result<(), String> {
        let lay_there = |(element, is_left): &(&Element, &bool)| {
            element.list == denial.list
                && matches!(element.push, Push::Done(at) if at < denial.asked)
                && (**is_left || element.popped.is_some_and(|asked| asked > denial.answered))
        };
        match self.elements.iter().zip(is_left).position(|both| lay_there(&both)) {
            Some(number) => Err(format!(
                "{} was told of nothing in {}, where element {number} lay: {:?}, {denial:?}",
                denial.who,
                list_name(denial.list),
                self.elements[number]
            )),
            None => Ok(()),
        }
    }

    /// What one has pushed to a list comes to another in that order.
    fn is_in_order(&self) -> Result<(), String> {
        let mut last: HashMap<(usize, usize, usize), usize> = HashMap::new();
        for &(who, number) in &self.told {
            let Element { list, pusher, .. } = self.elements[number];
            if let Some(before) = last.insert((who, list, pusher), number)
                && before > number
            {
                return Err(format!("element {number} was told behind {before}, which was pushed later"));
            }
        }
        Ok(())
    }
}

impl Client {
    /// A request for what is in lists.
    pub fn ask_queue(&self, scene: &mut Scene) -> Asking {
        match scene.random.below(8) {
            3 | 4 => {
                let (bytes, part) = Client::pop(scene);
                Asking::new(bytes, vec![part])
            }
            5 | 6 => {
                let first = scene.random.index(LISTS);
                let lists = vec![first, (first + 1 + scene.random.index(LISTS - 1)) % LISTS];
                let names: Vec<String> = lists.iter().map(|&list| list_name(list)).collect();
                let timeout = scene.random.of(&TIMEOUTS);
                let asked = scene.books.queues.now();
                let bytes = words(&[b"BLPOP", names[0].as_bytes(), names[1].as_bytes(), timeout.as_bytes()]);
                Asking::new(bytes, vec![Part::Popped { lists, waits: true, asked }])
            }
            // What is watched may have been changed.
            7 if self.contesting.is_none() => self.move_some(scene),
            _ => {
                let (bytes, part) = self.push(scene);
                Asking::new(bytes, vec![part])
            }
        }
    }

    fn push(&self, scene: &mut Scene) -> (Vec<u8>, Part) {
        let (list, count) = (scene.random.index(LISTS), 1 + scene.random.index(3));
        let is_long = scene.plan.value_max > 1_000;
        let queues = &mut scene.books.queues;
        let (name, first) = (list_name(list), queues.next());
        let mut all = vec![b"RPUSH".to_vec(), name.clone().into_bytes()];
        for _ in 0..count {
            let number = queues.push(list, self.index);
            let bytes = if is_long && number.is_multiple_of(7) { 3_000 } else { 20 };
            all.push(proof::value(&name, number, bytes));
        }
        let bytes = words(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        (bytes, Part::Pushed { first, count })
    }

    fn pop(scene: &mut Scene) -> (Vec<u8>, Part) {
        let list = scene.random.index(LISTS);
        let asked = scene.books.queues.now();
        let bytes = words(&[b"LPOP", list_name(list).as_bytes()]);
        (bytes, Part::Popped { lists: vec![list], waits: false, asked })
    }

    /// Pushes and pops at one moment: whoever waits is served behind it.
    fn move_some(&self, scene: &mut Scene) -> Asking {
        let mut bytes = words(&[b"MULTI"]);
        let mut answers = Vec::new();
        for _ in 0..1 + scene.random.index(4) {
            let (command, part) = if scene.random.one_in(3) { Client::pop(scene) } else { self.push(scene) };
            bytes.extend(command);
            answers.push(part);
        }
        bytes.extend(words(&[b"EXEC"]));
        let count = answers.len();
        let mut parts = vec![Part::Bytes(b"+OK\r\n".into())];
        parts.extend((0..count).map(|_| Part::Bytes(b"+QUEUED\r\n".into())));
        parts.push(Part::Bytes(format!("*{count}\r\n").into()));
        parts.extend(answers);
        Asking::new(bytes, parts)
    }

    /// Judges what a pop is told; how many bytes it takes, or none if there have to be more to tell.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge_pop(
        &self,
        scene: &mut Scene,
        (lists, waits, asked): (&[usize], bool, u64),
        rest: &[u8],
    ) -> Result<Option<usize>, String> {
        const PAIR: &[u8] = b"*2\r\n";
        let queues = &mut scene.books.queues;
        let nothing: &[u8] = match (self.dialect, waits) {
            (Dialect::Resp3, _) => b"_\r\n",
            (_, true) => b"*-1\r\n",
            (_, false) => b"$-1\r\n",
        };
        if rest.starts_with(nothing) {
            queues.denied(&self.name, lists, asked);
            return Ok(Some(nothing.len()));
        }
        if nothing.starts_with(rest) || waits && PAIR.starts_with(rest) {
            return Ok(None);
        }
        let (mut at, mut place) = (0, 0);
        if waits {
            let body = rest.strip_prefix(PAIR).ok_or("this is no list and its element")?;
            let Some((bytes, name)) = bulk_at(body)? else { return Ok(None) };
            let named = lists.iter().position(|&list| list_name(list).as_bytes() == name);
            place = named.ok_or("an element of a list for which it does not wait")?;
            at = PAIR.len() + bytes;
        }
        let Some((bytes, text)) = bulk_at(&rest[at..])? else { return Ok(None) };
        queues.denied(&self.name, &lists[..place], asked);
        queues.popped(self.index, lists[place], text, asked)?;
        Ok(Some(at + bytes))
    }
}
