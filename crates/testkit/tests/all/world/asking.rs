//! Requests of an owner of keys in its dialect, and the parts of the replies to them.

use std::rc::Rc;

use larder_eventloop::Millis;

use crate::world::client::{Client, Contesting, Role};
use crate::world::model::{Expiry, Item, SECOND_MS, Verb};
use crate::world::part::{Dialect, Form, Part};
use crate::world::plan::{Memory, Steps};
use crate::world::random::Random;
use crate::world::scene::{Flush, Scene};

/// Keys from this one on hold text, those before it numbers.
pub const NUMBERS: usize = 2;

/// Seconds after which an item with an expiry is gone.
const EXPIRY_S: [u64; 3] = [2, 30, 3600];

/// A request that is being put together.
#[derive(Debug)]
pub struct Asking {
    pub bytes: Vec<u8>,
    /// A second command, with a reply, that is sent after a command without one; else empty.
    pub behind: &'static [u8],
    pub parts: Vec<Part>,
    pub text: String,
}

impl Asking {
    pub fn new(bytes: impl Into<Vec<u8>>, parts: Vec<Part>) -> Asking {
        let bytes = bytes.into();
        let text = bytes[..bytes.len().min(70)].escape_ascii().to_string();
        Asking { bytes, behind: b"", parts, text }
    }

    /// Adds a command with a reply, which shows that the first one is done.
    pub fn quiet(self) -> Asking {
        let mut parts = self.parts;
        parts.push(Part::Bytes(b"MN\r\n".into()));
        Asking { behind: b"mn\r\n", parts, ..self }
    }
}

impl Client {
    /// Sends a request, unless too many are on their way or all are done.
    pub fn ask(&mut self, scene: &mut Scene) {
        if self.waits_to_log_in(scene) {
            return;
        }
        let depth = scene.plan.depth;
        let line = self.line.as_ref().expect("it is connected");
        let open = line.ending == crate::world::line::Ending::None;
        let has_some = self.left > 0 || self.has_to_mend(scene);
        if !has_some || scene.stopping || !open || line.requests.len() >= depth {
            return;
        }
        // Where memory is short, a client sends nothing more until it is logged in: the server would keep the
        // requests behind the login, and could close the connection for their memory.
        if scene.plan.memory != Memory::Ample && !scene.users.is_in(self.index) {
            return;
        }
        let mut most = 1 + scene.random.index(depth - line.requests.len());
        if self.changes_users(scene) {
            // Changes of users are spread over the time in which other clients send requests.
            most = usize::from(scene.random.one_in(16));
        }
        for _ in 0..most {
            if self.left == 0 && !self.has_to_mend(scene) {
                return;
            }
            let asking = match (&self.role, self.dialect) {
                (Role::Owner, _) if scene.plan.users && scene.random.one_in(6) => self.ask_as_user(scene),
                (Role::Owner, Dialect::Classic) => self.ask_classic(scene),
                (Role::Owner, Dialect::Meta) => self.ask_meta(scene),
                (Role::Owner, Dialect::Resp2 | Dialect::Resp3) => self.ask_resp(scene),
                (Role::Listener(_), _) => self.ask_to_listen(scene),
                (Role::Admin, _) => self.ask_as_admin(scene),
            };
            self.left = self.left.saturating_sub(1);
            self.put(scene, asking);
        }
    }

    /// Queues the request on the connection.
    pub fn put(&mut self, scene: &mut Scene, asking: Asking) {
        for part in &asking.parts {
            if let Part::Key { key, .. } = part {
                self.keys[*key].asked += 1;
                self.keys[*key].rests = false;
            }
        }
        scene.note(&format!("{} asks {}", self.name, asking.text));
        let stamp = scene.users.stamp(self.index);
        let line = self.line.as_mut().expect("it is connected");
        line.ask(scene, asking, stamp);
    }

    /// Sends the first requests of a client: its login or HELLO, its subscriptions, its scripts.
    pub fn greet(&mut self, scene: &mut Scene) {
        if scene.users.any() {
            self.is_turned_away = !self.log_in(scene);
            if self.is_turned_away {
                return;
            }
        } else if self.dialect == Dialect::Resp3 {
            let bytes = crate::world::part::words(&[b"HELLO", b"3", b"SETNAME", self.name.as_bytes()]);
            self.put(scene, Asking::new(bytes, vec![Part::Hello { logs_in: false }]));
        }
        if matches!(self.role, Role::Listener(_)) {
            self.subscribe(scene);
        }
        let has_scripts = scene.plan.moves_money() || scene.plan.scripts_own_keys();
        if has_scripts && self.dialect.is_resp() && matches!(self.role, Role::Owner) {
            self.load_scripts(scene);
        }
    }

    /// The part of a reply that depends on the state of a key.
    pub fn part(&self, scene: &Scene, key: usize, verb: Verb, form: Form) -> Part {
        let doubtful = scene.flush != Flush::None;
        Part::Key { key, verb, form, doubtful, asked_at: scene.wall().0 }
    }

    /// A key that holds text.
    pub fn text_key(&self, random: &mut Random) -> usize {
        NUMBERS + random.index(self.keys.len() - NUMBERS)
    }

    /// A value that contains its key and version.
    pub fn value(&mut self, scene: &mut Scene, key: usize) -> Rc<[u8]> {
        self.version += 1;
        let most = scene.plan.value_max;
        let bytes = match scene.random.below(8) {
            0..4 => scene.random.index(100),
            4 | 5 => scene.random.index(2_000.min(most)),
            6 => most.min(16_384 + scene.random.index(3) - 1),
            // The value is longer than one receive: its head arrives with a part of it, the rest in later
            // receives.
            _ => most / 2 + scene.random.index(most / 2),
        };
        larder_testkit::proof::value(&self.keys[key].name, self.version, bytes).into()
    }

    /// The item to store under a key: a number, or a value that contains its key and version.
    pub fn item(&mut self, scene: &mut Scene, key: usize) -> Item {
        let value = if key < NUMBERS {
            scene.random.below(1000).to_string().into_bytes().into()
        } else {
            self.value(scene, key)
        };
        let flags = if self.dialect.is_resp() { 0 } else { scene.random.below(1 << 32) as u32 };
        Item { value, flags, expires: None }
    }

    /// Gives the item an expiry, perhaps; returns its seconds.
    pub fn expiry(&self, scene: &mut Scene, item: &mut Item) -> u64 {
        if scene.plan.steps == Steps::BothWays || !scene.random.one_in(5) {
            return 0;
        }
        let seconds = scene.random.of(&EXPIRY_S);
        let first = scene.wall().0;
        let after_ms = seconds * 1000;
        item.expires = Some(Expiry { after_ms, first: first + after_ms - SECOND_MS, last: Millis::MAX });
        seconds
    }

    /// The next request for a contended key: a read, or a write after the reply to the read; none in between.
    pub fn contend(&mut self, scene: &mut Scene) -> Option<Asking> {
        if !scene.plan.contends() || scene.plan.memory != Memory::Ample {
            return None;
        }
        match self.contesting {
            None => {
                let key = scene.random.index(scene.books.contests.len());
                self.contesting = Some(Contesting::Asked);
                Some(self.read_contested(key))
            }
            Some(Contesting::Knows { key, number, token }) => {
                self.contesting = None;
                scene.books.contests[key].asked += 1;
                Some(self.write_contested(key, number + 1, token))
            }
            Some(Contesting::Asked) => None,
        }
    }
}
