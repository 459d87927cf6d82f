//! Redis's requests, in RESP2 and RESP3.

use crate::world::asking::{Asking, NUMBERS};
use crate::world::books::{Channel, counter_name};
use crate::world::client::{Client, Role};
use crate::world::listener::Subscription;
use crate::world::model::Verb;
use crate::world::part::{Dialect, Form, Part, bulk, words};
use crate::world::scene::{Flush, Scene};

/// A command on a key, and its reply.
type Command = (Vec<u8>, Part);

impl Client {
    /// A request.
    pub fn ask_resp(&mut self, scene: &mut Scene) -> Asking {
        if scene.plan.scripts
            && scene.random.one_in(2)
            && let Some(asking) = self.ask_script(scene)
        {
            return asking;
        }
        if scene.plan.has_queues() && scene.random.one_in(4) {
            return self.ask_queue(scene);
        }
        // Requests for contended keys are only made in worlds that have them.
        let kinds = if scene.plan.contends() { 28 } else { 24 };
        match scene.random.below(kinds) {
            0..14 => {
                let (bytes, part) = self.command(scene);
                Asking::new(bytes, vec![part])
            }
            14 | 15 => {
                let keys: Vec<usize> =
                    (0..scene.random.of(&[1, 5, 40])).map(|_| scene.random.index(self.keys.len())).collect();
                let names = keys.iter().map(|key| self.keys[*key].name.as_bytes());
                let bytes = words(&std::iter::once(&b"MGET"[..]).chain(names).collect::<Vec<_>>());
                let mut parts = vec![Part::Bytes(format!("*{}\r\n", keys.len()).into())];
                parts.extend(keys.iter().map(|key| self.part(scene, *key, Verb::Get, self.resp_form())));
                Asking::new(bytes, parts)
            }
            16 | 17
                if self.contesting.is_none() && scene.plan.memory == crate::world::plan::Memory::Ample =>
            {
                self.transaction(scene)
            }
            18 => {
                let names = Part::Names { doubtful: scene.flush != Flush::None, asked_at: scene.wall().0 };
                let pattern = format!("{}-*", self.name);
                if scene.random.one_in(2) {
                    return Asking::new(words(&[b"KEYS", pattern.as_bytes()]), vec![names]);
                }
                let scan: [&[u8]; 6] = [b"SCAN", b"0", b"MATCH", pattern.as_bytes(), b"COUNT", b"1000000"];
                let parts = vec![Part::Bytes(b"*2\r\n$1\r\n0\r\n".into()), names];
                Asking::new(words(&scan), parts)
            }
            19 | 20 => {
                let channel = &mut scene.books.channels[self.index];
                let number = channel.next;
                channel.next += 1;
                let message = Channel::message(&channel_name(&self.name), number);
                let bytes = words(&[b"PUBLISH", channel_name(&self.name).as_bytes(), &message]);
                Asking::new(bytes, vec![Part::Published(number)])
            }
            21 if scene.plan.contends() => {
                let (counter, by, part) = self.count(scene);
                let name = counter_name(counter);
                Asking::new(words(&[b"INCRBY", name.as_bytes(), by.to_string().as_bytes()]), vec![part])
            }
            22 => self.contend(scene).unwrap_or_else(ping),
            23..27 if scene.plan.contends() => self.ask_shared(scene),
            _ => ping(),
        }
    }

    fn resp_form(&self) -> Form {
        Form { dialect: self.dialect, quiet: false, opaque: 0 }
    }

    /// A command on one key.
    pub fn command(&mut self, scene: &mut Scene) -> Command {
        let (words, part) = self.command_words(scene);
        (crate::world::part::words(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()), part)
    }

    /// The words of such a command, and its reply.
    pub fn command_words(&mut self, scene: &mut Scene) -> (Vec<Vec<u8>>, Part) {
        let key = scene.random.index(self.keys.len());
        let name = self.keys[key].name.clone();
        let name = name.as_bytes();
        let form = self.resp_form();
        let (bytes, verb) = match scene.random.below(16) {
            0..4 => (owned(&[b"GET", name]), Verb::Get),
            4..9 => {
                let mut item = self.item(scene, key);
                let seconds = self.expiry(scene, &mut item).to_string();
                let mut set: Vec<&[u8]> = vec![b"SET", name, &item.value];
                if item.expires.is_some() {
                    set.extend([&b"EX"[..], seconds.as_bytes()]);
                }
                let condition = scene.random.below(6);
                match condition {
                    0 => set.push(b"NX"),
                    1 => set.push(b"XX"),
                    _ => {}
                }
                let bytes = owned(&set);
                let verb = match condition {
                    0 => Verb::Add(item),
                    1 => Verb::Replace(item),
                    _ => Verb::Set(item),
                };
                (bytes, verb)
            }
            9 => {
                let key = self.text_key(&mut scene.random);
                let value = self.value(scene, key);
                let bytes = owned(&[b"APPEND", self.keys[key].name.as_bytes(), &value]);
                return (bytes, self.part(scene, key, Verb::Append(value), form));
            }
            10 => (owned(&[b"DEL", name]), Verb::Delete),
            11 => (owned(&[b"GETDEL", name]), Verb::Take),
            12 => {
                let item = self.item(scene, key);
                (owned(&[b"GETSET", name, &item.value]), Verb::Swap(item))
            }
            13 | 14 => {
                let (key, by) = (scene.random.index(NUMBERS), scene.random.below(100));
                let bytes = owned(&[b"INCRBY", self.keys[key].name.as_bytes(), by.to_string().as_bytes()]);
                return (bytes, self.part(scene, key, Verb::Plus(by), form));
            }
            _ => (owned(&[b"STRLEN", name]), Verb::Length),
        };
        (bytes, self.part(scene, key, verb, form))
    }

    /// Commands that MULTI and EXEC carry out at one moment.
    fn transaction(&mut self, scene: &mut Scene) -> Asking {
        let mut bytes = words(&[b"MULTI"]);
        let mut parts = vec![Part::Bytes(b"+OK\r\n".into())];
        let commands: Vec<Command> = (0..scene.random.below(8)).map(|_| self.command(scene)).collect();
        for (command, _) in &commands {
            bytes.extend(command);
            parts.push(Part::Bytes(b"+QUEUED\r\n".into()));
        }
        bytes.extend(words(&[b"EXEC"]));
        parts.push(Part::Bytes(format!("*{}\r\n", commands.len()).into()));
        parts.extend(commands.into_iter().map(|(_, part)| part));
        Asking::new(bytes, parts)
    }

    /// Watches a key and reads it.
    pub fn watch_contested(&self, name: &str, part: Part) -> Asking {
        let name = name.as_bytes();
        let bytes = [words(&[b"WATCH", name]), words(&[b"GET", name])].concat();
        Asking::new(bytes, vec![Part::Bytes(b"+OK\r\n".into()), part])
    }

    /// Writes a key that is watched.
    pub fn execute_contested(&self, name: &str, number: &str, part: Part) -> Asking {
        let set = words(&[b"SET", name.as_bytes(), number.as_bytes()]);
        let bytes = [words(&[b"MULTI"]), set, words(&[b"EXEC"])].concat();
        let [began, queued] = [&b"+OK\r\n"[..], b"+QUEUED\r\n"].map(|bytes| Part::Bytes(bytes.into()));
        Asking::new(bytes, vec![began, queued, part])
    }

    /// Listens to some channels.
    pub fn subscribe(&mut self, scene: &mut Scene) {
        let Role::Listener(subscriptions) = &mut self.role else { return };
        let mark = if self.dialect == Dialect::Resp3 { '>' } else { '*' };
        let mut command = vec![b"SUBSCRIBE".to_vec()];
        let mut parts = Vec::new();
        for owner in 0..scene.books.channels.len() {
            if scene.random.one_in(3) {
                continue;
            }
            let channel = channel_name(&crate::world::simulation::owner_name(owner));
            let number = subscriptions.len() + 1;
            let head =
                [format!("{mark}3\r\n").as_bytes(), &bulk(b"subscribe"), &bulk(channel.as_bytes())].concat();
            let reply = [&head[..], format!(":{number}\r\n").as_bytes()].concat();
            parts.push(Part::Subscribed { subscription: subscriptions.len(), reply });
            command.push(channel.clone().into_bytes());
            subscriptions.push(Subscription { owner, channel, next: None, heard: false });
        }
        if !parts.is_empty() {
            let command: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            self.put(scene, Asking::new(words(&command), parts));
        }
    }

    /// A request of a client that has subscribed.
    pub fn ask_to_listen(&mut self, _scene: &mut Scene) -> Asking {
        let listens = matches!(&self.role, Role::Listener(subscriptions) if !subscriptions.is_empty());
        if listens && self.dialect == Dialect::Resp2 {
            let reply = [&b"*2\r\n"[..], &bulk(b"pong"), &bulk(b"")].concat();
            return Asking::new(words(&[b"PING"]), vec![Part::Bytes(reply)]);
        }
        ping()
    }
}

fn owned(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

fn ping() -> Asking {
    Asking::new(words(&[b"PING"]), vec![Part::Bytes(b"+PONG\r\n".into())])
}

/// The channel of an owner.
pub fn channel_name(owner: &str) -> String {
    format!("channel-{owner}")
}
