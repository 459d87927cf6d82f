//! Lists to which clients push, from which they pop, and for which they wait: each pushed element is given to one client, or is
//! in its list at the end.
//!
//! ```text
//! pushed ─┬─▶ given to one client, by LPOP or BLPOP
//!         ├─▶ in its list at the end
//!         └─▶ lost with a connection that ended before its pop was answered: no more of them than there are such pops
//! ```
//!
//! Each element names its list and its number. A reply that a list is empty is wrong if an element was in the list all the time
//! between request and reply. A client receives the elements of another one in the order in which they were pushed. Both can
//! only be checked if no pop was lost: an element that was popped for a client that has gone is put back.

use std::collections::HashMap;
use std::ops::Range;

use larder_testkit::proof;

use crate::world::asking::Asking;
use crate::world::client::Client;
use crate::world::judge::bulk_at;
use crate::world::part::{Dialect, Part, words};
use crate::world::scene::Scene;

/// Number of lists.
pub const LISTS: usize = 3;
/// Timeouts of clients that wait, in seconds.
const TIMEOUTS: [&str; 4] = ["0.001", "0.05", "0.3", "2"];

/// The state of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Push {
    Open,
    /// The reply came at this moment.
    Done(u64),
    /// The push was never sent.
    Not,
    /// The connection ended before the reply.
    Unsure,
}

#[derive(Debug)]
struct Element {
    list: usize,
    /// The client that pushed it.
    pusher: usize,
    push: Push,
    /// The moment of the request that popped it.
    popped: Option<u64>,
}

/// A list that was empty by a reply: one without an element, or with one of a later list.
#[derive(Debug)]
struct Denial {
    who: String,
    list: usize,
    asked: u64,
    answered: u64,
}

/// All lists.
#[derive(Debug, Default)]
pub struct Queues {
    elements: Vec<Element>,
    denials: Vec<Denial>,
    /// The client and the element of each pop, in the order of replies.
    told: Vec<(usize, usize)>,
    /// Pops whose connections ended before the reply. `unsure_pushes`: such pushes.
    unsure_pops: usize,
    unsure_pushes: usize,
    /// The number of the last event: each request and each reply has its own.
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

    /// Notes that a client is about to push an element; returns its number.
    fn push(&mut self, list: usize, pusher: usize) -> u64 {
        self.elements.push(Element { list, pusher, push: Push::Open, popped: None });
        self.next() - 1
    }

    /// Notes the reply to a push of these elements.
    pub fn pushed(&mut self, numbers: Range<u64>) {
        let now = self.now();
        numbers.for_each(|number| self.elements[number as usize].push = Push::Done(now));
    }

    /// Notes that the connection ended before the reply to a push of these elements.
    pub fn left_push(&mut self, numbers: Range<u64>, sent: bool) {
        self.unsure_pushes += usize::from(sent);
        let push = if sent { Push::Unsure } else { Push::Not };
        numbers.for_each(|number| self.elements[number as usize].push = push);
    }

    /// Notes that the connection of a pop ended before the reply.
    pub fn left_pop(&mut self, sent: bool) {
        self.unsure_pops += usize::from(sent);
    }

    /// Number of elements that clients received.
    pub fn pops(&self) -> u64 {
        self.told.len() as u64
    }

    /// Notes a reply by which these lists were empty.
    fn denied(&mut self, who: &str, lists: &[usize], asked: u64) {
        let answered = self.now();
        let denial = |&list: &usize| Denial { who: who.to_owned(), list, asked, answered };
        self.denials.extend(lists.iter().map(denial));
    }

    /// Notes that a client received an element.
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

    /// Checks the elements of the lists at the end.
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

    /// Checks that no element was in the list from before the request until after the reply.
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

    /// Checks that a client received the elements that another one pushed to a list in their order.
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
    /// A request about lists.
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
            // A watched key may have been changed: then EXEC does nothing.
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

    /// Pushes and pops in MULTI: waiting clients are served after it.
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

    /// Judges the reply to a pop. Returns its length in bytes; `None` if it is incomplete.
    ///
    /// # Errors
    /// What is wrong with the reply.
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
