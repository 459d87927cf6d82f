//! Requests that concern users: logins, requests that must be refused, requests for the key that is lent to a
//! client, an administrator's changes of users; and checks of the replies.

use std::net::SocketAddr;

use crate::world::asking::{Asking, NUMBERS};
use crate::world::asking_resp::channel_name;
use crate::world::client::Client;
use crate::world::judge::shown;
use crate::world::line::Ending;
use crate::world::part::{Dialect, Part, bulk, words};
use crate::world::plan::Memory;
use crate::world::scene::Scene;
use crate::world::simulation::owner_name;
use crate::world::user::{ADMINS, Change, lent_name};
use crate::world::users::{Login, Stamp};

const NO_KEY: &str = "-NOPERM No permissions to access a key\r\n";
const NO_CHANNEL: &str = "-NOPERM No permissions to access a channel\r\n";
const UNAUTHORIZED: &str = "CLIENT_ERROR unauthorized\r\n";
const SPOILT: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";
const IN_SCRIPT: &str = "ERR ACL failure in script: No permissions to access a key";

/// Beginnings of the refusals on an unauthenticated connection: of any command, and of a request longer than
/// such a connection may send.
pub const TO_NOBODY: [&[u8]; 2] =
    [b"-NOAUTH Authentication required.\r\n", b"-ERR Protocol error: unauthenticated "];

/// Beginnings of all lines that such a connection is sent: the refusals above, and that of a wrong password.
pub const ALL_TO_NOBODY: [&[u8]; 3] = [TO_NOBODY[0], TO_NOBODY[1], b"-WRONGPASS "];

/// A request that must get this refusal.
fn refused(bytes: impl Into<Vec<u8>>, reply: &str) -> Asking {
    Asking::new(bytes, vec![Part::Refused(reply.into())])
}

/// The refusal of a command.
fn no_command(user: &str, command: &str) -> String {
    format!("-NOPERM User {user} has no permissions to run the '{command}' command\r\n")
}

/// Finds which of these texts the input begins with; `None`: more bytes are needed.
fn front(rest: &[u8], texts: &[&[u8]]) -> Result<Option<usize>, String> {
    if let Some(found) = texts.iter().position(|text| rest.starts_with(text)) {
        return Ok(Some(found));
    }
    if texts.iter().any(|text| text.starts_with(rest)) {
        return Ok(None);
    }
    let texts: Vec<String> = texts.iter().map(|text| shown(text)).collect();
    Err(format!("the answer is {}", texts.join(" or ")))
}

impl Client {
    /// A request to log in.
    fn login(&self, password: &str, part: Part) -> Asking {
        let name = self.name.as_bytes();
        let bytes = if self.dialect.is_resp() {
            words(&[b"AUTH", name, password.as_bytes()])
        } else {
            let block = format!("{} {password}", self.name);
            format!("set login 0 0 {}\r\n{block}\r\n", block.len()).into_bytes()
        };
        Asking::new(bytes, vec![part])
    }

    fn wrong_login(&self, scene: &Scene) -> Asking {
        let user = scene.users.of(self.index);
        let stamp = scene.users.stamp(self.index);
        self.login(&user.wrong_password(), Part::Login { right: false, stamp })
    }

    /// Logs the client in. If its password is not known to be right now, sends a wrong one and returns false.
    pub fn log_in(&mut self, scene: &mut Scene) -> bool {
        if scene.users.login(self.index) != Login::Right {
            let wrong = self.wrong_login(scene);
            self.put(scene, wrong);
            return false;
        }
        if scene.random.one_in(6) {
            let unauthenticated = if self.dialect.is_resp() {
                refused(words(&[b"GET", b"nothing"]), "-NOAUTH Authentication required.\r\n")
            } else {
                refused("get nothing\r\n", "CLIENT_ERROR unauthenticated\r\n")
            };
            self.put(scene, unauthenticated);
        }
        if scene.plan.has_wrong_passwords() && scene.random.one_in(4) {
            let wrong = self.wrong_login(scene);
            self.put(scene, wrong);
        }
        let stamp = scene.users.stamp(self.index);
        let password = scene.users.of(self.index).password();
        let asking = if self.dialect == Dialect::Resp3 {
            let (name, password) = (self.name.as_bytes(), password.as_bytes());
            let hello = words(&[b"HELLO", b"3", b"AUTH", name, password, b"SETNAME", name]);
            Asking::new(hello, vec![Part::Hello { logs_in: true }])
        } else {
            self.login(&password, Part::Login { right: true, stamp })
        };
        self.put(scene, asking);
        true
    }

    /// Whether the client waits until its user's password is right again. Once it is, logs in.
    pub fn waits_to_log_in(&mut self, scene: &mut Scene) -> bool {
        if !self.is_turned_away {
            return false;
        }
        let line = self.line.as_ref().expect("it is connected");
        let may = line.ending == Ending::None && !scene.stopping;
        if may && scene.users.login(self.index) == Login::Right {
            self.is_turned_away = false;
            self.greet(scene);
        }
        true
    }

    /// A request that tests what the client's user may do: for the lent key, a second login, or one that must
    /// be refused.
    pub fn ask_as_user(&self, scene: &mut Scene) -> Asking {
        match scene.random.below(6) {
            0..3 => self.ask_for_lent(scene),
            3 if self.dialect.is_resp() && scene.users.login(self.index) == Login::Right => {
                if scene.plan.has_wrong_passwords() && scene.random.one_in(4) {
                    return self.wrong_login(scene);
                }
                let stamp = scene.users.stamp(self.index);
                let password = scene.users.of(self.index).password();
                self.login(&password, Part::Login { right: true, stamp })
            }
            _ => self.trespass(scene),
        }
    }

    /// A request for the key that is lent to the client: an addition in worlds that remove no items, else a
    /// read.
    fn ask_for_lent(&self, scene: &mut Scene) -> Asking {
        let (name, stamp) = (lent_name(&self.name), scene.users.stamp(self.index));
        if !scene.plan.contends() {
            let bytes = match self.dialect {
                Dialect::Classic => format!("get {name}\r\n").into_bytes(),
                Dialect::Meta => format!("mg {name} v\r\n").into_bytes(),
                Dialect::Resp2 | Dialect::Resp3 => words(&[b"GET", name.as_bytes()]),
            };
            return Asking::new(bytes, vec![Part::Lent { add: None, stamp }]);
        }
        let by = 1 + scene.random.below(5);
        let number = by.to_string();
        let bytes = match self.dialect {
            Dialect::Classic => format!("incr {name} {by}\r\n").into_bytes(),
            Dialect::Meta => format!("ma {name} v D{by}\r\n").into_bytes(),
            Dialect::Resp2 | Dialect::Resp3 => words(&[b"INCRBY", name.as_bytes(), number.as_bytes()]),
        };
        let book = &mut scene.books.lent[self.index];
        book.asked += by;
        Asking::new(bytes, vec![Part::Lent { add: Some((by, book.sure)), stamp }])
    }

    /// A request for another owner's key or channel, or an administrator's command: it must be refused.
    fn trespass(&self, scene: &mut Scene) -> Asking {
        let owners = scene.plan.owners;
        let other = owner_name((self.index + 1 + scene.random.index(owners - 1)) % owners);
        let key = format!("{other}-{}", scene.random.index(NUMBERS));
        let is_large = scene.plan.memory == Memory::Ample && scene.random.one_in(4);
        let value = vec![b'x'; if is_large { scene.plan.value_max } else { 20 }];
        match self.dialect {
            Dialect::Classic => trespass_classic(scene, &key, &value),
            Dialect::Meta => {
                let bytes = value.len();
                match scene.random.below(4) {
                    0 => refused(format!("mg {key} v k f O1\r\n"), UNAUTHORIZED),
                    1 => refused(format!("md {key} k O1\r\n"), UNAUTHORIZED),
                    2 => refused(format!("ma {key} v D1 O1\r\n"), UNAUTHORIZED),
                    _ => {
                        let head = format!("ms {key} {bytes} k O1\r\n");
                        refused([head.as_bytes(), &value, b"\r\n"].concat(), UNAUTHORIZED)
                    }
                }
            }
            Dialect::Resp2 | Dialect::Resp3 => self.trespass_resp(scene, &other, &key, &value),
        }
    }

    fn trespass_resp(&self, scene: &mut Scene, other: &str, key: &str, value: &[u8]) -> Asking {
        let (key, own) = (key.as_bytes(), self.keys[0].name.as_bytes());
        let one = |command: &[&[u8]], reply: &str| refused(words(command), reply);
        match scene.random.below(12) {
            0 => one(&[b"SET", key, value], NO_KEY),
            1 => one(&[b"DEL", key], NO_KEY),
            2 => one(&[b"INCRBY", key, b"1"], NO_KEY),
            3 => one(&[b"MGET", own, key], NO_KEY),
            4 => one(&[b"PUBLISH", channel_name(other).as_bytes(), b"false"], NO_CHANNEL),
            5 => one(&[b"FLUSHALL"], &no_command(&self.name, "flushall")),
            6 => one(&[b"CONFIG", b"GET", b"maxmemory"], &no_command(&self.name, "config|get")),
            // EXEC runs none of the commands, since one was refused. It also ends WATCH, so not while a key
            // is contended for.
            7 | 8 if self.contesting.is_none() && scene.plan.memory == Memory::Ample => {
                let set: &[&[u8]] = &[b"SET", key, value];
                let commands: [&[&[u8]]; 4] = [&[b"MULTI"], &[b"DEL", own], set, &[b"EXEC"]];
                let replies = ["+OK\r\n", "+QUEUED\r\n", NO_KEY, SPOILT];
                let mut parts: Vec<Part> = replies.map(|reply| Part::Bytes(reply.into())).into();
                parts[2] = Part::Refused(NO_KEY.into());
                Asking::new(commands.map(words).concat(), parts)
            }
            9 | 10 if scene.plan.scripts_own_keys() && !scene.plan.script_kills => {
                let declares = scene.random.one_in(2);
                if declares {
                    let script = b"return redis.call('GET', KEYS[1])";
                    return one(&[b"EVAL", script, b"1", key], NO_KEY);
                }
                let script = b"return redis.pcall('GET', ARGV[1]).err";
                let reply = bulk(IN_SCRIPT.as_bytes());
                Asking::new(words(&[b"EVAL", script, b"0", key]), vec![Part::Refused(reply)])
            }
            _ => one(&[b"GET", key], NO_KEY),
        }
    }

    /// True if the client is the administrator that changes users, and there are users.
    pub fn changes_users(&self, scene: &Scene) -> bool {
        scene.users.any() && self.name == ADMINS[1]
    }

    /// True if that administrator has to repair a user: one was removed, or a change of it was not answered.
    pub fn has_to_mend(&self, scene: &Scene) -> bool {
        self.changes_users(scene) && scene.users.broken().is_some()
    }

    /// A change of a user; none if the drawn user cannot be changed now.
    pub fn change_user(&self, scene: &mut Scene) -> Option<Asking> {
        let broken = scene.users.broken().filter(|_| self.left == 0 || scene.random.one_in(3));
        let (client, change) = match broken {
            Some(broken) => broken,
            None => {
                let client = scene.random.index(scene.plan.owners + scene.plan.listeners);
                let mut changes = scene.users.changes(client);
                // After a change of its password a client logs in with a wrong one first. The login behind it
                // is delayed, for ever if the clock is set back again and again.
                changes.retain(|change| *change != Change::Renew || scene.plan.has_wrong_passwords());
                if changes.is_empty() {
                    return None;
                }
                (client, scene.random.of(&changes))
            }
        };
        let address = scene.users.address(client).filter(|_| change == Change::Remove);
        if let Some(address) = address {
            scene.may_be_killed.push(address);
            scene.users.removing.push(address);
        }
        let command = scene.users.begin(client, change);
        let command: Vec<&[u8]> = command.iter().map(String::as_bytes).collect();
        Some(Asking::new(words(&command), vec![Part::Changed { client, change, address }]))
    }

    /// Checks the reply to a login.
    pub fn judge_login(
        &self,
        scene: &mut Scene,
        (right, stamp): (bool, Stamp),
        rest: &[u8],
    ) -> Result<Option<usize>, String> {
        let texts: [&[u8]; 2] = if self.dialect.is_resp() {
            [b"+OK\r\n", b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"]
        } else {
            [b"STORED\r\n", b"CLIENT_ERROR authentication failure\r\n"]
        };
        let Some(found) = front(rest, &texts)? else { return Ok(None) };
        let is_in = found == 0;
        // A wrong password must be refused. A right one may be, if the user was changed after the request was
        // queued.
        let may_be_wrong = !right || !scene.users.is_sure_of_login(self.index, stamp);
        match (is_in, right) {
            (true, false) => return Err("a password is taken that is wrong".into()),
            (true, true) => scene.users.admitted(self.index),
            (false, _) if !may_be_wrong => return Err("a password is refused that is right".into()),
            (false, _) => scene.users.refused_login(self.index),
        }
        Ok(Some(texts[found].len()))
    }

    /// Checks the reply to a request for the lent key.
    pub fn judge_lent(
        &self,
        scene: &mut Scene,
        (add, stamp): (Option<(u64, u64)>, Stamp),
        rest: &[u8],
    ) -> Result<Option<usize>, String> {
        let refusal = if self.dialect.is_resp() { NO_KEY } else { UNAUTHORIZED }.as_bytes();
        if rest.len() < refusal.len() && refusal.starts_with(rest) {
            return Ok(None);
        }
        let is_refused = rest.starts_with(refusal);
        let bytes = match add {
            _ if is_refused => refusal.len(),
            None => {
                let nothing: &[u8] = match self.dialect {
                    Dialect::Classic => b"END\r\n",
                    Dialect::Meta => b"EN\r\n",
                    Dialect::Resp2 => b"$-1\r\n",
                    Dialect::Resp3 => b"_\r\n",
                };
                if front(rest, &[nothing])?.is_none() {
                    return Ok(None);
                }
                nothing.len()
            }
            Some((by, before)) => {
                let Some((bytes, number)) = self.number(rest)? else { return Ok(None) };
                scene.books.lent[self.index].answered(number, by, before)?;
                bytes
            }
        };
        if let (Some((by, _)), true) = (add, is_refused) {
            scene.books.lent[self.index].asked -= by;
        }
        scene.users.lent(self.index, stamp, is_refused)?;
        Ok(Some(bytes))
    }

    /// Checks the reply to a change of a user.
    pub fn judge_change(
        scene: &mut Scene,
        (client, change): (usize, Change),
        address: Option<SocketAddr>,
        rest: &[u8],
    ) -> Result<Option<usize>, String> {
        let reply: &[u8] = if change == Change::Remove { b":1\r\n" } else { b"+OK\r\n" };
        if front(rest, &[reply])?.is_none() {
            return Ok(None);
        }
        scene.users.done(client, change, address);
        scene.killed.extend(address.map(|address| (address, scene.fair_us)));
        Ok(Some(reply.len()))
    }
}

fn trespass_classic(scene: &mut Scene, key: &str, value: &[u8]) -> Asking {
    let bytes = value.len();
    match scene.random.below(7) {
        0 => refused(format!("delete {key}\r\n"), UNAUTHORIZED),
        1 => refused(format!("incr {key} 1\r\n"), UNAUTHORIZED),
        2 => refused("flush_all\r\n", UNAUTHORIZED),
        3 | 4 => {
            let head = format!("set {key} 0 0 {bytes}\r\n");
            refused([head.as_bytes(), value, b"\r\n"].concat(), UNAUTHORIZED)
        }
        5 => {
            let head = format!("set {key} 0 0 {bytes} noreply\r\n");
            Asking::new([head.as_bytes(), value, b"\r\n"].concat(), Vec::new()).quiet()
        }
        _ => refused(format!("get {key}\r\n"), UNAUTHORIZED),
    }
}
