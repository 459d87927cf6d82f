//! A client: its keys, and its connection. `judge.rs` checks the bytes that it receives.

use larder_eventloop::{Millis, RECEIVE_BYTES};

use crate::world::bank::Query;
use crate::world::line::{Ending, Line, Request};
use crate::world::listener::Subscription;
use crate::world::model::{Doubts, Key, State};
use crate::world::part::{Contest, Dialect, Part};
use crate::world::plan::Memory;
use crate::world::scene::{Flush, Scene};
use crate::world::users::Login;
use crate::world::wire::Wire;

/// The role of a client.
#[derive(Debug)]
pub enum Role {
    /// The client owns keys.
    Owner,
    /// The client subscribes to channels.
    Listener(Vec<Subscription>),
    /// The client administers the server.
    Admin,
}

/// The state of a key that a client contends for.
#[derive(Clone, Copy, Debug)]
pub enum Contesting {
    /// The key was read, and the reply is awaited.
    Asked,
    /// The client may write the number after this one, if the token has not changed.
    Knows { key: usize, number: u64, token: u64 },
}

/// A client.
#[derive(Debug)]
pub struct Client {
    pub name: String,
    pub index: usize,
    pub dialect: Dialect,
    pub role: Role,
    pub keys: Vec<Key>,
    pub line: Option<Line>,
    /// The number of the next value.
    pub version: u64,
    /// Requests that the client still has to send.
    pub left: u64,
    pub contesting: Option<Contesting>,
    /// The last place in the ledger that the client received.
    pub moment: u64,
    /// The client's user was removed, or a change of its password was not answered: the client logs in once
    /// it is right again.
    pub is_turned_away: bool,
    /// When the client acts next.
    pub next_at: Millis,
}

/// A connection whose client was killed is closed within this, in fair time.
const CLOSED_US: u64 = 500_000;

/// A connection on which no user has logged in for so long may be closed.
const UNAUTHENTICATED_MS: Millis = 9_000;

impl Client {
    pub fn new(index: usize, name: &str, dialect: Dialect, role: Role, left: u64) -> Client {
        let name = name.to_owned();
        Client {
            name,
            index,
            dialect,
            role,
            keys: Vec::new(),
            line: None,
            version: 0,
            left,
            contesting: None,
            moment: 0,
            is_turned_away: false,
            next_at: 0,
        }
    }

    /// The client's state, for messages.
    pub fn shown(&self) -> String {
        let line = self.line.as_ref().map(Line::shown).unwrap_or_default();
        format!("{} asks {} times more, {line}", self.name, self.left)
    }

    /// True if all requests are sent and answered.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.line.as_ref().is_none_or(Line::is_idle)
    }

    /// Takes one action.
    ///
    /// # Errors
    /// A byte or an end that must not come, or the lack of one that must.
    pub fn act(&mut self, scene: &mut Scene) -> Result<(), String> {
        self.next_at = scene.now() + if scene.random.one_in(3) { scene.random.below(4) } else { 0 };
        let Some(mut line) = self.line.take() else {
            // 1 ms later at least: a client that is always ready would let time pass in steps of microseconds
            // alone.
            self.next_at += 1;
            let may = match scene.users.login(self.index) {
                Login::Right => true,
                Login::Wrong => scene.plan.has_wrong_passwords(),
                Login::Unknown => false,
            };
            if may && !scene.stopping && (self.left > 0 || self.has_to_mend(scene)) {
                self.connect(scene);
            }
            return Ok(());
        };
        let reads = scene.now() >= line.rests_until && line.ending != Ending::Reset;
        if line.wire.peer().closed() {
            line.receive(scene, true);
            self.line = Some(line);
            self.judge(scene)?;
            return self.was_closed(scene);
        }
        if reads {
            line.receive(scene, false);
        }
        let late = line.waits_too_long(scene);
        let killed = scene.killed.iter().find(|(address, _)| *address == line.address);
        if killed.is_some_and(|(_, since)| scene.fair_us - since > CLOSED_US) {
            return Err(format!("{} ({}) was to be closed, and is not", self.name, line.address));
        }
        self.line = Some(line);
        self.judge(scene)?;
        if late {
            let line = self.line.as_ref().expect("it is connected");
            let request = line.requests.front().map_or("", |request| &request.text);
            return Err(format!("{} waits too long for an answer to {request}", self.name));
        }
        if !scene.random.one_in(3) {
            self.ask(scene);
        }
        self.trouble(scene);
        let line = self.line.as_mut().expect("it is connected");
        let sent = line.send(scene);
        let owner = matches!(self.role, Role::Owner);
        // The reset comes before the server has received the bytes. It is likelier behind a long send, which
        // begins a value: the server holds replies while it receives one.
        let rarely = if sent > RECEIVE_BYTES { 6 } else { 50 };
        if sent > 0 && owner && scene.plan.resets && !scene.stopping && scene.random.one_in(rarely) {
            line.wire.peer().reset();
            line.ending = Ending::Reset;
            scene.note(&format!("{} resets behind what it has sent", self.name));
        }
        if sent == 0 && (self.left == 0 || line.ending != Ending::None) {
            self.next_at += 1;
        }
        Ok(())
    }

    /// A flush was requested: from now on any key may be gone, also for requests under way.
    pub fn flush_begins(&mut self) {
        for key in &mut self.keys {
            key.may_be_gone();
            key.rests = key.asked == 0;
        }
        let parts = self.line.iter_mut().flat_map(|line| &mut line.requests).flat_map(|one| &mut one.parts);
        for part in parts {
            if let Part::Key { doubtful, .. } | Part::Names { doubtful, .. } = part {
                *doubtful = true;
            }
        }
    }

    /// The flush is done: keys for which no request was sent since it began are gone.
    pub fn flush_is_done(&mut self) {
        for key in self.keys.iter_mut().filter(|key| key.rests) {
            key.possible = vec![State::Absent];
        }
    }

    fn connect(&mut self, scene: &mut Scene) {
        let listener = usize::from(self.dialect.is_resp() && scene.random.one_in(2));
        let (wire, address) = Wire::connect(scene, listener);
        let by = if wire.is_tls() { ", by TLS" } else { "" };
        scene.books.tls_begun += u64::from(wire.is_tls());
        scene.note(&format!("{} connects from {address}{by}", self.name));
        scene.connected.push(address);
        scene.users.connected(self.index, address);
        self.line = Some(Line::new(scene, wire, address));
        self.greet(scene);
    }

    /// Perhaps pauses reading, ends or resets the connection.
    fn trouble(&mut self, scene: &mut Scene) {
        let line = self.line.as_mut().expect("it is connected");
        if scene.random.one_in(50) {
            line.wire.peer().narrow(scene.plan.value_max);
        }
        if line.ending == Ending::Reset && scene.random.one_in(20) {
            // A reset that waits for more bytes never comes if all replies have come: the client resets now.
            line.wire.peer().reset();
        }
        if line.ending != Ending::None || matches!(self.role, Role::Admin) {
            return;
        }
        if scene.random.one_in(200) {
            line.rests_until = scene.now() + scene.random.below(300);
            scene.note(&format!("{} reads nothing until {}", self.name, line.rests_until));
        }
        if scene.random.one_in(300) {
            line.wire.peer().narrow(scene.random.of(&[1, 100, 5000, 300_000]));
        }
        if !scene.plan.resets || scene.stopping {
            return;
        }
        match scene.random.below(1200) {
            0 => {
                line.wire.peer().reset();
                line.ending = Ending::Reset;
                scene.note(&format!("{} resets", self.name));
            }
            1..4 => {
                let bytes = scene.random.of(&[1, 10, 100, 1000, 30_000]);
                let bytes = scene.random.below(bytes) + 1;
                line.wire.peer().reset_after(bytes);
                line.ending = Ending::Reset;
                scene.note(&format!("{} will reset after {bytes} more bytes", self.name));
            }
            4 if line.has_sent() && matches!(self.role, Role::Owner) => {
                line.wire.end();
                line.ending = Ending::Ended;
                scene.note(&format!("{} sends no more", self.name));
            }
            _ => {}
        }
    }

    /// The server has closed the connection.
    fn was_closed(&mut self, scene: &mut Scene) -> Result<(), String> {
        let line = self.line.take().expect("it is connected");
        let killed = scene.may_be_killed.contains(&line.address);
        let answered = line.requests.iter().all(|request| request.end > line.sent);
        // A blocked request may end without a reply.
        let answered = answered || line.requests.front().is_some_and(Request::awaits);
        let fine = match line.ending {
            Ending::Reset => true,
            Ending::Ended => answered,
            Ending::None => false,
        };
        let is_overtaken = self.is_overtaken(scene, &line);
        scene.users.counts.overtaken += u64::from(!fine && !killed && is_overtaken);
        let fine = fine || killed || is_overtaken || scene.door.was_gone(line.address);
        scene.connected.retain(|address| *address != line.address);
        scene.note(&format!("{} is closed", self.name));
        if !fine && scene.stopping {
            // A stopping server closes a connection at once if its handshake is not complete.
            if !answered && line.is_begun() {
                let text = &line.requests.front().expect("some are not").text;
                return Err(format!("{}: the server stops and leaves {text} without an answer", self.name));
            }
        } else if !fine {
            if scene.plan.memory == Memory::Ample {
                return Err(format!("{} is closed for no reason, {}", self.name, line.shown()));
            }
            scene.note(&format!("that was for want of memory, if for anything: {}", line.shown()));
            scene.books.closed += 1;
        }
        self.leave(scene, line);
        Ok(())
    }

    /// True if the server may have closed the connection for one of two reasons: the user's rules were
    /// changed while a request was under way, or no user has logged in on it for long.
    fn is_overtaken(&self, scene: &Scene, line: &Line) -> bool {
        let users = &scene.users;
        let changed = |request: &Request| !users.is_sure_of_rules(self.index, request.stamp);
        let is_old = scene.now() >= line.since + UNAUTHENTICATED_MS;
        users.any() && (line.requests.iter().any(changed) || is_old && !users.is_in(self.index))
    }

    /// Drops the connection. A request that was sent without a reply may have been carried out or not.
    pub fn leave(&mut self, scene: &mut Scene, line: Line) {
        self.contesting = None;
        self.is_turned_away = false;
        scene.users.disconnected(self.index);
        scene.books.bytes.unsure += line.unanswered_bytes();
        if let Role::Listener(subscriptions) = &mut self.role {
            subscriptions.clear();
        }
        for Request { parts, done, stamp, is_void, .. } in line.requests {
            let was_sent = done <= line.sent;
            // The server carries out no request that follows the reply to the user's removal.
            let sent = was_sent && !is_void;
            let login_changed = !scene.users.is_sure_of_login(self.index, stamp);
            for part in parts {
                match part {
                    Part::Key { key, verb, form, doubtful, asked_at } => {
                        self.keys[key].asked -= 1;
                        if sent {
                            let doubts = doubts(scene, asked_at, doubtful);
                            self.keys[key].leave(&verb, form.dialect.is_resp(), doubts);
                        } else if scene.plan.memory == Memory::Refuses && verb.writes() && !is_void {
                            // A write that is refused at its head removes the value that it was to replace.
                            self.keys[key].may_be_gone();
                        }
                    }
                    Part::Count { counter, by, .. } => scene.books.counters[counter].unsure += by,
                    Part::Contest { key, what: Contest::Write } => scene.books.contests[key].unsure += 1,
                    Part::Pushed { first, count } => {
                        scene.books.queues.left_push(first..first + count as u64, sent);
                    }
                    Part::Popped { .. } => scene.books.queues.left_pop(sent),
                    Part::Published(number) => scene.books.channels[self.index].left(number),
                    Part::Bank { told: Query::Moved(order), .. } => scene.books.bank.left(order, sent),
                    Part::ScriptsKilled => scene.books.bank.kills_done += 1,
                    Part::Shared(ask) => scene.books.shared.left(ask),
                    Part::Lent { add: Some((by, _)), .. } if sent => {
                        scene.books.lent[self.index].unsure += by;
                    }
                    Part::Login { right, .. } => {
                        scene.users.unsure += u64::from(was_sent && (!right || login_changed));
                    }
                    Part::Hello { logs_in: true } => {
                        scene.users.unsure += u64::from(was_sent && login_changed);
                    }
                    Part::Changed { client, change, .. } => scene.users.left(client, change),
                    Part::Flushed => scene.flush = Flush::None,
                    _ => {}
                }
            }
        }
    }
}

/// Why a reply that comes now to a request of that time may differ from the known state of the key.
pub fn doubts(scene: &Scene, asked_at: Millis, doubtful: bool) -> Doubts {
    let (first, last) = scene.wall();
    let small = scene.plan.memory != Memory::Ample;
    Doubts {
        gone: doubtful || scene.plan.memory == Memory::Evicts,
        full: small,
        unsent: small,
        now: (first.min(asked_at), last.max(asked_at)),
    }
}
