//! Deliveries that wait for the clients of one worker, in the order in which they were published.
//!
//! ```text
//! slots   | 3 | 1 | – | 1 | 3 | – | 2 |      the client of each; –: taken by its client from between
//!           ▲   └───────┘   ▲       ▲        each of a client's knows its next
//! own       3: first, last ─┘       2: …     made when a client looks for its own in many
//! words     └───────┘ └───┘ └───────┘        of those one behind the other for the same words, the last that
//!                                            waits counts for them
//! ```
//!
//! The worker takes from the front. A client takes its own when it publishes to itself, or before it unsubscribes: in one EXEC
//! thousands of times, beside other clients that do the same and others for which thousands wait. Therefore each slot is looked
//! at only a few times in all, however many clients take theirs how often.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::core::delivery::{Delivery, MESSAGE_BYTES, Message, Target};

/// Most slots that a client looks at one by one.
const FEW_SLOTS: usize = 64;

/// Deliveries that wait for the clients of one worker.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
}

/// A place in the queue.
#[derive(Debug)]
struct Slot {
    target: Target,
    /// The message; `None` once it was taken from between.
    message: Option<Arc<Message>>,
    /// Distance to the client's next slot; 0 if none is known.
    next: u32,
    /// Whether the slot before it does not wait for the same words.
    begins: bool,
    /// Whether this slot counts for its words, and so for the slots in front of it that wait for the same.
    carries: bool,
}

/// Bytes that each waiting delivery counts for, beside the words: each pattern has a message of its own.
const SLOT_BYTES: usize = size_of::<Slot>() + MESSAGE_BYTES;

#[derive(Debug, Default)]
struct Waiting {
    slots: VecDeque<Slot>,
    /// Number of deliveries that wait.
    count: usize,
    bytes: usize,
    /// The number of the first slot; each that follows has the next.
    first: u64,
    /// The first and the last slot of each client, among the slots in front of `indexed`.
    own: HashMap<u64, (u64, u64), BuildHasherDefault<ClientHasher>>,
    indexed: u64,
    /// Slots that were looked at.
    #[cfg(test)]
    steps: usize,
}

impl Outbox {
    /// Adds deliveries, while at most `bytes_max` bytes wait. True if none waited before, so that the worker is to be woken.
    /// Deliveries for which there is no room go to `missed`. `held` is called with the bytes that were added, before another
    /// thread can take them and count them out.
    pub fn add(
        &self,
        deliveries: Vec<Delivery>,
        bytes_max: usize,
        missed: &mut dyn FnMut(Target),
        held: impl FnOnce(usize),
    ) -> bool {
        let waiting = &mut *self.waiting();
        let (first, before) = (waiting.count == 0, waiting.bytes);
        for Delivery { target, message } in deliveries {
            // The last of several deliveries with the same words counts for these.
            let last = waiting.slots.back_mut();
            let last = last.filter(|last| last.message.as_ref().is_some_and(|last| last.shares(&message)));
            let more = SLOT_BYTES + if last.is_some() { 0 } else { message.words_bytes() };
            if waiting.bytes + more > bytes_max {
                missed(target);
                continue;
            }
            let begins = last.is_none();
            last.into_iter().for_each(|last| last.carries = false);
            waiting.bytes += more;
            waiting.count += 1;
            let message = Some(message);
            waiting.slots.push_back(Slot { target, message, next: 0, begins, carries: true });
        }
        held(waiting.bytes - before);
        first
    }

    /// Takes all deliveries, in order, and the bytes that they held.
    pub fn take(&self) -> (Vec<Delivery>, usize) {
        let (all, bytes, _) = self.take_until(|_| false);
        (all, bytes)
    }

    /// Takes the first deliveries, in order: one at least, and on up to the one of which `enough` is true. Returns them, the
    /// bytes that they held, and whether more are left, for which the worker is not woken again.
    pub fn take_until(&self, mut enough: impl FnMut(&Delivery) -> bool) -> (Vec<Delivery>, usize, bool) {
        let waiting = &mut *self.waiting();
        let (mut some, mut bytes) = (Vec::new(), 0);
        while let Some(Slot { target, message, carries, .. }) = waiting.pop() {
            let Some(message) = message else { continue };
            bytes += SLOT_BYTES + if carries { message.words_bytes() } else { 0 };
            waiting.count -= 1;
            let delivery = Delivery { target, message };
            let last = enough(&delivery);
            some.push(delivery);
            if last {
                break;
            }
        }
        waiting.bytes -= bytes;
        let more = waiting.count > 0;
        if !more {
            // Frees the memory that many took.
            (waiting.slots, waiting.own) = (VecDeque::new(), HashMap::default());
            waiting.forget_own();
        }
        (some, bytes, more)
    }

    /// Takes the deliveries for one client, in order, and the bytes that they held.
    pub fn take_for(&self, client: u64) -> (Vec<Delivery>, usize) {
        let waiting = &mut *self.waiting();
        let (mut taken, before) = (Vec::new(), waiting.bytes);
        if waiting.slots.len() <= FEW_SLOTS && waiting.own.is_empty() {
            for at in 0..waiting.slots.len() {
                if waiting.slots[at].target.client == client {
                    taken.extend(waiting.take_at(at));
                }
            }
            waiting.step(waiting.slots.len());
        } else {
            waiting.index();
            let mut next = waiting.own.remove(&client).map(|(first, _)| first);
            while let Some(number) = next {
                let at = (number - waiting.first) as usize;
                let ahead = u64::from(waiting.slots[at].next);
                next = (ahead > 0).then_some(number + ahead);
                taken.extend(waiting.take_at(at));
            }
        }
        let bytes = before - waiting.bytes;
        waiting.close_gaps();
        (taken, bytes)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hasher of clients' numbers. A multiplication spreads them: no client chooses its own.
#[derive(Debug, Default)]
struct ClientHasher(u64);

impl Hasher for ClientHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("clients are numbers");
    }

    fn write_u64(&mut self, client: u64) {
        self.0 = client.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        // Tables use the upper bits and the lower.
        self.0 ^ self.0 >> 32
    }
}

impl Waiting {
    /// Takes the first slot, which is then no longer its client's first.
    fn pop(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_front()?;
        self.step(1);
        let number = self.first;
        self.first += 1;
        if number < self.indexed && slot.message.is_some() {
            let client = slot.target.client;
            match (slot.next, self.own.get_mut(&client)) {
                (0, _) => drop(self.own.remove(&client)),
                (ahead, own) => own.into_iter().for_each(|own| own.0 = number + u64::from(ahead)),
            }
        }
        Some(slot)
    }

    /// Notes the clients of slots that came since the last call.
    fn index(&mut self) {
        for at in self.indexed.saturating_sub(self.first) as usize..self.slots.len() {
            self.step(1);
            let number = self.first + at as u64;
            if self.slots[at].message.is_none() {
                continue;
            }
            let before = self.own.entry(self.slots[at].target.client).or_insert((number, number));
            let last = std::mem::replace(&mut before.1, number);
            self.slots[at].next = 0;
            if last < number {
                let ahead = u32::try_from(number - last).expect("fewer slots are in memory");
                self.slots[(last - self.first) as usize].next = ahead;
            }
        }
        self.indexed = self.first + self.slots.len() as u64;
    }

    /// Forgets which clients have which slots. Slots are numbered anew.
    fn forget_own(&mut self) {
        self.own.clear();
        (self.first, self.indexed) = (0, 0);
    }

    /// Takes the delivery of a slot, and leaves a gap. Its words stay for the slots before it that wait for the same.
    fn take_at(&mut self, at: usize) -> Option<Delivery> {
        self.step(1);
        let slot = &mut self.slots[at];
        let (target, carries, message) =
            (slot.target, std::mem::take(&mut slot.carries), slot.message.take()?);
        self.count -= 1;
        self.bytes -= SLOT_BYTES;
        if carries && !self.pass_words(at) {
            self.bytes -= message.words_bytes();
        }
        Some(Delivery { target, message })
    }

    /// Lets the last slot in front of this one that still waits for the same words count for them; false if there is none. The
    /// gaps between are then passed, and not looked at again.
    fn pass_words(&mut self, mut at: usize) -> bool {
        while at > 0 && !self.slots[at].begins {
            at -= 1;
            self.step(1);
            if self.slots[at].message.is_some() {
                self.slots[at].carries = true;
                return true;
            }
        }
        false
    }

    /// Removes gaps when most slots are gaps.
    fn close_gaps(&mut self) {
        if self.count == 0 {
            self.slots.clear();
        } else if self.slots.len() > 2 * self.count + FEW_SLOTS {
            self.step(self.slots.len());
            let mut begins = false;
            self.slots.retain_mut(|slot| {
                slot.begins |= begins;
                begins = slot.begins && slot.message.is_none();
                slot.message.is_some()
            });
        } else {
            return;
        }
        self.forget_own();
    }

    /// Counts slots that were looked at.
    #[cfg(test)]
    fn step(&mut self, slots: usize) {
        self.steps += slots;
    }

    #[cfg(not(test))]
    fn step(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::super::OUTBOX_BYTES_MAX;
    use super::*;
    use crate::core::delivery::Topic;

    fn message(topic: Topic, channel: &[u8], text: &Arc<[u8]>) -> Arc<Message> {
        Arc::new(Message { topic, channel: channel.into(), text: Arc::clone(text) })
    }

    fn to(client: u64, message: &Arc<Message>) -> Delivery {
        Delivery { target: Target { place: 0, client }, message: Arc::clone(message) }
    }

    fn delivery(client: u64, bytes: usize) -> Delivery {
        let text = vec![0; bytes.saturating_sub(MESSAGE_BYTES)];
        to(client, &message(Topic::Commands, &[], &text.into()))
    }

    fn add(outbox: &Outbox, deliveries: Vec<Delivery>) -> usize {
        let mut held = 0;
        outbox.add(deliveries, usize::MAX, &mut |_| panic!("there is room"), |bytes| held = bytes);
        held
    }

    #[test]
    fn who_looks_again_for_its_own_is_given_what_has_come_since() {
        let outbox = Outbox::default();
        let add = |clients: &[u64]| {
            add(&outbox, clients.iter().map(|&client| delivery(client, 0)).collect());
        };
        let taken = |client: u64| outbox.take_for(client).0.len();
        add(&[1, 2, 2, 1]);
        assert_eq!((taken(1), taken(1), taken(2), taken(2)), (2, 0, 2, 0));
        add(&[1, 2, 3]);
        assert_eq!((taken(2), taken(1)), (1, 1));
        add(&[1, 1]);
        // What the worker has taken meanwhile does not come again.
        assert_eq!(outbox.take_until(|delivery| delivery.target.client == 1).0.len(), 2);
        add(&[1, 4]);
        assert_eq!((taken(1), taken(4), outbox.take().0.len()), (2, 1, 0));
    }

    #[test]
    fn outbox_holds_its_limit_and_names_clients_that_miss_a_delivery() {
        let outbox = Outbox::default();
        let most = OUTBOX_BYTES_MAX - size_of::<Slot>();
        let mut missed = Vec::new();
        let mut add = |deliveries| {
            let mut held = 0;
            let miss = &mut |target: Target| missed.push(target.client);
            (outbox.add(deliveries, OUTBOX_BYTES_MAX, miss, |bytes| held = bytes), held)
        };
        assert_eq!(add(vec![delivery(1, most)]), (true, OUTBOX_BYTES_MAX));
        assert_eq!(add(vec![delivery(2, 0)]), (false, 0));
        let (deliveries, bytes) = outbox.take();
        assert_eq!((deliveries.len(), bytes), (1, OUTBOX_BYTES_MAX));
        let last = most - size_of::<Slot>() - MESSAGE_BYTES;
        assert_eq!(add(vec![delivery(3, last), delivery(4, 0), delivery(5, 0)]), (true, OUTBOX_BYTES_MAX));
        let order: Vec<u64> = outbox.take().0.iter().map(|delivery| delivery.target.client).collect();
        assert_eq!((order, missed), (vec![3, 4], vec![2, 5]));
    }

    #[test]
    fn letters_of_one_client_are_taken_in_order_and_counted_out() {
        let outbox = Outbox::default();
        add(&outbox, vec![delivery(1, 110), delivery(2, 120), delivery(1, 130)]);
        let (deliveries, bytes) = outbox.take_for(1);
        let sizes: Vec<usize> = deliveries.iter().map(|delivery| delivery.message.bytes()).collect();
        assert_eq!((sizes, bytes), (vec![110, 130], 240 + 2 * size_of::<Slot>()));
        assert_eq!(outbox.take().1, 120 + size_of::<Slot>());
    }

    #[test]
    fn letters_are_taken_some_at_a_time_in_order_and_one_at_least() {
        let outbox = Outbox::default();
        let all = add(&outbox, (1..=6).map(|client| delivery(client, 100 * client as usize)).collect());
        let mut sum = 0;
        for (last, clients, more) in
            [(2, &[1, 2][..], true), (0, &[3], true), (5, &[4, 5], true), (9, &[6], false)]
        {
            let (some, bytes, left) = outbox.take_until(|delivery| delivery.target.client >= last);
            assert_eq!(some.iter().map(|delivery| delivery.target.client).collect::<Vec<_>>(), clients);
            assert_eq!(left, more);
            sum += bytes;
        }
        assert_eq!(sum, all);
        assert_eq!(outbox.take_until(|_| false).1, 0);
    }

    #[test]
    fn words_for_many_are_counted_once_until_the_last_of_them_is_taken() {
        const EACH: usize = SLOT_BYTES;
        const WORDS: usize = 1000 - MESSAGE_BYTES;
        let outbox = Outbox::default();
        let add = |clients: &[u64]| {
            let message = delivery(0, 1000).message;
            add(&outbox, clients.iter().map(|&client| to(client, &message)).collect())
        };
        assert_eq!(add(&[1, 2, 3]), WORDS + 3 * EACH);
        assert_eq!(add(&[1; 10]), WORDS + 10 * EACH, "other words, if the same");
        assert_eq!(outbox.take_until(|delivery| delivery.target.client == 2).1, 2 * EACH);
        assert_eq!(outbox.take_until(|_| true).1, WORDS + EACH);
        assert_eq!(outbox.take_for(1).1, WORDS + 10 * EACH);
        // A delivery that is taken from between others, or from behind them, leaves the words to those.
        add(&[1, 2, 1, 2, 3]);
        assert_eq!(outbox.take_for(3).1, EACH);
        assert_eq!(outbox.take_for(2).1, 2 * EACH);
        assert_eq!(outbox.take().1, WORDS + 2 * EACH);
        assert_eq!(outbox.waiting().bytes, 0);
    }

    #[test]
    fn words_that_come_by_patterns_of_any_length_are_counted_out_as_they_were_counted() {
        let text: Arc<[u8]> = [b't'; 100].into();
        let by = |pattern: usize| message(Topic::Pattern(vec![b'*'; pattern].into()), b"c", &text);
        let (channel, short, long) = (message(Topic::Channel, b"c", &text), by(1), by(5_000));
        for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1], [2, 1, 3], [1, 3, 2], [3, 1, 2]] {
            for messages in [[&channel, &short, &long], [&channel, &long, &short], [&long, &short, &channel]]
            {
                let outbox = Outbox::default();
                let deliveries = (1..).zip(messages).map(|(client, message)| to(client, message)).collect();
                let held = add(&outbox, deliveries);
                let sum: usize = order.iter().map(|&client| outbox.take_for(client).1).sum();
                assert_eq!((sum, outbox.waiting().bytes), (held, 0), "{order:?}");
            }
        }
    }

    /// Clients by turns publish and take their own, beside others that wait: each delivery is looked at a few times.
    #[test]
    fn any_number_of_clients_that_look_for_their_own_by_turns_look_at_each_delivery_a_few_times() {
        const ROUNDS: usize = 4_000;
        for (looking, listening) in [(1, 4), (2, 4), (3, 0), (7, 1), (500, 3)] {
            let outbox = Outbox::default();
            for round in 0..ROUNDS {
                let client = (round % looking) as u64;
                let message = delivery(0, 60).message;
                let listeners = (0..listening).map(|nth| 1_000 + nth);
                add(&outbox, listeners.chain([client]).map(|client| to(client, &message)).collect());
                // As EXEC of PUBLISH and UNSUBSCRIBE looks, twice, and as other clients do that have no deliveries.
                assert_eq!(outbox.take_for(client).0.len(), 1);
                assert!(outbox.take_for(client).0.is_empty() && outbox.take_for(9_999).0.is_empty());
            }
            let (left, deliveries) = (ROUNDS * listening as usize, ROUNDS * (1 + listening as usize));
            let steps = outbox.waiting().steps;
            // Where there are few, each look sees all.
            assert!(steps <= 8 * deliveries + 3 * ROUNDS * 4, "{looking} beside {listening}: {steps} steps");
            assert_eq!(outbox.take().0.len(), left);
            assert_eq!(outbox.waiting().bytes, 0);
        }
        // Words for many whose clients leave one by one, in whatever order.
        for step in [1, 7, 4_999] {
            let outbox = Outbox::default();
            let message = delivery(0, 1_000).message;
            add(&outbox, (0..5_000).map(|client| to(client, &message)).collect());
            (0..5_000).for_each(|nth| assert_eq!(outbox.take_for(nth * step % 5_000).0.len(), 1));
            let waiting = outbox.waiting();
            assert!(waiting.steps <= 8 * 5_000, "{} steps", waiting.steps);
            assert_eq!((waiting.bytes, waiting.count), (0, 0));
        }
    }

    #[test]
    fn whoever_takes_how_much_each_client_has_its_own_in_order_and_all_is_counted_out() {
        for seed in 1..=40_u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut below = |n: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % n
            };
            let outbox = Outbox::default();
            // Clients and the numbers of their messages; each number is one publication's.
            let mut model: Vec<(u64, usize)> = Vec::new();
            let mut held = 0;
            for number in 0..600 {
                match below(4) {
                    0 | 1 => {
                        let message = delivery(0, 1_000 + number).message;
                        let clients: Vec<u64> = (0..below(40)).map(|_| below(9)).collect();
                        held += add(&outbox, clients.iter().map(|&client| to(client, &message)).collect());
                        model.extend(clients.iter().map(|&client| (client, 1_000 + number)));
                    }
                    2 => {
                        let client = below(10);
                        let (taken, bytes) = outbox.take_for(client);
                        let own = model.extract_if(.., |(of, _)| *of == client);
                        let own: Vec<usize> = own.map(|(_, bytes)| bytes).collect();
                        assert_eq!(taken.iter().map(|one| one.message.bytes()).collect::<Vec<_>>(), own);
                        held -= bytes;
                    }
                    _ => {
                        let most = 1 + below(60) as usize;
                        let mut seen = 0;
                        let (taken, bytes, more) = outbox.take_until(|_| {
                            seen += 1;
                            seen == most
                        });
                        let first: Vec<_> = model.drain(..most.min(model.len())).collect();
                        let told = |one: &Delivery| (one.target.client, one.message.bytes());
                        assert_eq!(taken.iter().map(told).collect::<Vec<_>>(), first);
                        assert_eq!(more, !model.is_empty());
                        held -= bytes;
                    }
                }
                let mut words: Vec<usize> = model.iter().map(|(_, bytes)| bytes - MESSAGE_BYTES).collect();
                words.dedup();
                let counted = model.len() * SLOT_BYTES + words.iter().sum::<usize>();
                assert_eq!((outbox.waiting().bytes, held), (counted, counted), "seed {seed}, {number}");
            }
        }
    }
}
