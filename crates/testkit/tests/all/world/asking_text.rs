//! memcached's requests, classic and meta.

use crate::world::asking::{Asking, NUMBERS};
use crate::world::books::{contest_name, counter_name};
use crate::world::client::Client;
use crate::world::model::{Item, Verb};
use crate::world::part::{Contest, Dialect, Form, Part};
use crate::world::scene::Scene;

impl Client {
    fn form(&self, quiet: bool, opaque: u64) -> Form {
        Form { dialect: self.dialect, quiet, opaque }
    }

    /// A classic request.
    pub fn ask_classic(&mut self, scene: &mut Scene) -> Asking {
        let what = scene.random.below(20);
        let any = scene.random.index(self.keys.len());
        let name = self.keys[any].name.clone();
        let form = self.form(false, 0);
        match what {
            0..6 => {
                let count = scene.random.of(&[1, 1, 1, 3, 40]);
                let keys: Vec<usize> = (0..count).map(|_| scene.random.index(self.keys.len())).collect();
                let names: Vec<&str> = keys.iter().map(|key| &*self.keys[*key].name).collect();
                let bytes = format!("get {}\r\n", names.join(" "));
                let mut parts: Vec<Part> =
                    keys.iter().map(|key| self.part(scene, *key, Verb::Get, form)).collect();
                parts.push(Part::Bytes(b"END\r\n".into()));
                Asking::new(bytes, parts)
            }
            6..13 => {
                let verb = scene.random.of(&["set", "set", "set", "set", "add", "replace"]);
                let mut item = self.item(scene, any);
                let seconds = self.expiry(scene, &mut item);
                self.store_classic(scene, any, verb, item, seconds)
            }
            13 => {
                let key = self.text_key(&mut scene.random);
                let value = self.value(scene, key);
                let item = Item { value, flags: 0, expires: None };
                self.store_classic(scene, key, "append", item, 0)
            }
            14 | 15 => {
                let part = self.part(scene, any, Verb::Delete, form);
                Asking::new(format!("delete {name}\r\n"), vec![part])
            }
            16 => {
                let key = scene.random.index(NUMBERS);
                let by = scene.random.below(100);
                let part = self.part(scene, key, Verb::Plus(by), form);
                Asking::new(format!("incr {} {by}\r\n", self.keys[key].name), vec![part])
            }
            17 if scene.plan.contends() => {
                let (counter, by, part) = self.count(scene);
                Asking::new(format!("incr {} {by}\r\n", counter_name(counter)), vec![part])
            }
            18 => self.contend(scene).unwrap_or_else(|| self.nothing()),
            _ => self.nothing(),
        }
    }

    fn nothing(&self) -> Asking {
        Asking::new("mn\r\n", vec![Part::Bytes(b"MN\r\n".into())])
    }

    fn store_classic(
        &mut self,
        scene: &mut Scene,
        key: usize,
        name: &str,
        item: Item,
        seconds: u64,
    ) -> Asking {
        let quiet = scene.random.one_in(4);
        let head = format!("{name} {} {} {seconds} {}", self.keys[key].name, item.flags, item.value.len());
        let head = if quiet { format!("{head} noreply\r\n") } else { format!("{head}\r\n") };
        let bytes = [head.as_bytes(), &item.value, b"\r\n"].concat();
        let verb = match name {
            "add" => Verb::Add(item),
            "replace" => Verb::Replace(item),
            "append" => Verb::Append(item.value),
            _ => Verb::Set(item),
        };
        let asking = Asking::new(bytes, vec![self.part(scene, key, verb, self.form(quiet, 0))]);
        if quiet { asking.quiet() } else { asking }
    }

    /// A meta request.
    pub fn ask_meta(&mut self, scene: &mut Scene) -> Asking {
        let what = scene.random.below(20);
        let key = scene.random.index(self.keys.len());
        let opaque = scene.random.below(1_000_000);
        let form = self.form(false, opaque);
        let name = self.keys[key].name.clone();
        match what {
            0..3 => {
                let part = self.part(scene, key, Verb::Get, form);
                Asking::new(format!("mg {name} v k f O{opaque}\r\n"), vec![part])
            }
            3..6 => {
                // A hit has a reply; a miss has none.
                let (mut bytes, mut parts) = (String::new(), Vec::new());
                for opaque in 0..scene.random.of(&[1, 5, 40]) {
                    let key = scene.random.index(self.keys.len());
                    bytes.push_str(&format!("mg {} v k f O{opaque} q\r\n", self.keys[key].name));
                    parts.push(self.part(scene, key, Verb::Get, self.form(true, opaque)));
                }
                Asking::new(bytes, parts).quiet()
            }
            6..13 => {
                let mut item = self.item(scene, key);
                let seconds = self.expiry(scene, &mut item);
                self.store_meta(scene, key, item, seconds, opaque)
            }
            13 => {
                let key = self.text_key(&mut scene.random);
                let name = &self.keys[key].name.clone();
                let value = self.value(scene, key);
                let head = format!("ms {name} {} MA k O{opaque}\r\n", value.len());
                let part = self.part(scene, key, Verb::Append(value.clone()), form);
                Asking::new([head.as_bytes(), &value, b"\r\n"].concat(), vec![part])
            }
            14 | 15 => {
                let part = self.part(scene, key, Verb::Delete, form);
                Asking::new(format!("md {name} k O{opaque}\r\n"), vec![part])
            }
            16 => {
                let key = scene.random.index(NUMBERS);
                let by = scene.random.below(100);
                let part = self.part(scene, key, Verb::Plus(by), form);
                Asking::new(format!("ma {} v k D{by} O{opaque}\r\n", self.keys[key].name), vec![part])
            }
            17 if scene.plan.contends() => {
                let (counter, by, part) = self.count(scene);
                Asking::new(format!("ma {} v D{by}\r\n", counter_name(counter)), vec![part])
            }
            18 => self.contend(scene).unwrap_or_else(|| self.nothing()),
            _ => self.nothing(),
        }
    }

    fn store_meta(&mut self, scene: &mut Scene, key: usize, item: Item, seconds: u64, opaque: u64) -> Asking {
        let quiet = scene.random.one_in(4);
        let (mode, verb): (&str, fn(Item) -> Verb) = match scene.random.below(6) {
            0 => (" ME", Verb::Add),
            1 => (" MR", Verb::Replace),
            _ => ("", Verb::Set),
        };
        let name = &self.keys[key].name;
        let end = if quiet { " q\r\n" } else { "\r\n" };
        let (flags, bytes) = (item.flags, item.value.len());
        let head = format!("ms {name} {bytes} k F{flags} T{seconds} O{opaque}{mode}{end}");
        let bytes = [head.as_bytes(), &item.value, b"\r\n"].concat();
        let asking = Asking::new(bytes, vec![self.part(scene, key, verb(item), self.form(quiet, opaque))]);
        if quiet { asking.quiet() } else { asking }
    }

    /// An addition to a shared counter.
    pub fn count(&self, scene: &mut Scene) -> (usize, u64, Part) {
        let counter = scene.random.index(scene.books.counters.len());
        let by = 1 + scene.random.below(5);
        let book = &mut scene.books.counters[counter];
        book.asked += by;
        (counter, by, Part::Count { counter, by, before: book.sure })
    }

    /// Reads the number of a contended key, and a token.
    pub fn read_contested(&self, key: usize) -> Asking {
        let name = contest_name(key);
        let part = Part::Contest { key, what: Contest::Read };
        match self.dialect {
            Dialect::Classic => Asking::new(format!("gets {name}\r\n"), vec![part]),
            Dialect::Meta => Asking::new(format!("mg {name} v c\r\n"), vec![part]),
            Dialect::Resp2 | Dialect::Resp3 => self.watch_contested(&name, part),
        }
    }

    /// Writes a number if the key has not changed since.
    pub fn write_contested(&self, key: usize, number: u64, token: u64) -> Asking {
        let name = contest_name(key);
        let part = Part::Contest { key, what: Contest::Write };
        let (number, bytes) = (number.to_string(), number.to_string().len());
        match self.dialect {
            Dialect::Classic => {
                Asking::new(format!("cas {name} 0 0 {bytes} {token}\r\n{number}\r\n"), vec![part])
            }
            Dialect::Meta => Asking::new(format!("ms {name} {bytes} C{token}\r\n{number}\r\n"), vec![part]),
            Dialect::Resp2 | Dialect::Resp3 => self.execute_contested(&name, &number, part),
        }
    }
}
