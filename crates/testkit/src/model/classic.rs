//! The classic commands, by memcached's documentation.

use super::op::{Classic, ClassicVerb};
use super::{Exchange, Model};
use crate::pattern::Pattern;

impl Model {
    pub(super) fn classic(&mut self, op: &Classic) -> Exchange {
        use ClassicVerb::*;
        let open = self.items.get(&op.key).is_some_and(super::Item::is_open);
        // memcached leaves open whether a long text is padded when it becomes a number.
        let long = self.items.get(&op.key).is_some_and(|item| item.value.len() > super::NUMBER_BYTES_MAX);
        match op.verb {
            Get => self.read(op, "get", None),
            Gets => self.read(op, "gets", None),
            Gat => self.read(op, "gat", Some(op.exptime)),
            Gats => self.read(op, "gats", Some(op.exptime)),
            // memcached leaves open whether a change of a stale item makes a stale one.
            Append | Prepend | Incr | Decr if open => self.read(op, "get", None),
            Incr | Decr if long => self.read(op, "get", None),
            Set | Add | Replace | Append | Prepend | Cas => self.store(op),
            Delete => {
                let there = self.items.remove(&op.key).is_some();
                self.line(op, "delete", "", if there { "DELETED" } else { "NOT_FOUND" })
            }
            Incr | Decr => self.counted(op),
            Touch => {
                let expires_at = self.expiry(op.exptime);
                let item = self.items.get_mut(&op.key);
                let reply = if item.is_some() { "TOUCHED" } else { "NOT_FOUND" };
                if let Some(item) = item {
                    self.touched.push(op.key.clone());
                    item.expires_at = expires_at;
                    item.fetched = None;
                }
                self.line(op, "touch", &op.exptime.to_string(), reply)
            }
            FlushAll => {
                self.flush_at = Some(self.now);
                let mut sent = String::from("flush_all");
                if op.exptime > 0 && op.exptime < 1000 {
                    self.flush_at = Some(self.expiry(op.exptime));
                    sent.push_str(&format!(" {}", op.exptime));
                }
                exchange(&sent, op.noreply, "OK")
            }
        }
    }

    fn read(&mut self, op: &Classic, name: &str, exptime: Option<i64>) -> Exchange {
        let mut exchange = Exchange::default();
        exchange.sent.push(name.as_bytes());
        if let Some(exptime) = exptime {
            exchange.sent.push(format!(" {exptime}").as_bytes());
        }
        let keys = [&op.key, &op.second, &op.key];
        for &key in if op.second.is_empty() { &keys[..1] } else { &keys } {
            exchange.sent.push(b" ");
            exchange.sent.push(key);
            let expires_at = exptime.map(|exptime| self.expiry(exptime));
            let Some(item) = self.items.get_mut(key) else { continue };
            // memcached leaves open whether a gat counts as a read. A get does.
            item.fetched = exptime.is_none().then_some(true);
            item.expires_at = expires_at.unwrap_or(item.expires_at);
            let item = item.clone();
            if exptime.is_some() {
                self.touched.push(key.clone());
            }
            exchange.expected.push(b"VALUE ");
            exchange.expected.push(key);
            exchange.expected.push(format!(" {} {}", item.flags, item.value.len()).as_bytes());
            if name.ends_with('s') {
                exchange.expected.push(b" ");
                self.show(key, item.version, &mut exchange.expected);
            }
            exchange.expected.push(b"\r\n");
            exchange.expected.push(&item.value);
            exchange.expected.push(b"\r\n");
            // The second read of the key misses if the gat has let the item expire.
            self.remove_expired();
        }
        exchange.sent.push(b"\r\n");
        exchange.expected.push(b"END\r\n");
        exchange
    }

    fn store(&mut self, op: &Classic) -> Exchange {
        use ClassicVerb::*;
        let there = self.items.contains_key(&op.key);
        let expires_at = self.expiry(op.exptime);
        let mut token = Pattern::default();
        let (name, reply) = match op.verb {
            Add => ("add", if there { "NOT_STORED" } else { "STORED" }),
            Replace => ("replace", if there { "STORED" } else { "NOT_STORED" }),
            Append => ("append", if there { "STORED" } else { "NOT_STORED" }),
            Prepend => ("prepend", if there { "STORED" } else { "NOT_STORED" }),
            Cas => {
                let (pattern, version) = self.token(&op.key, op.token);
                token.push(b" ");
                token.join(&pattern);
                match self.items.get(&op.key) {
                    None => ("cas", "NOT_FOUND"),
                    Some(item) if Some(item.version) == version => ("cas", "STORED"),
                    Some(_) => ("cas", "EXISTS"),
                }
            }
            _ => ("set", "STORED"),
        };
        // memcached leaves open whether a refused add counts as an access.
        if let (Add, Some(item)) = (op.verb, self.items.get_mut(&op.key)) {
            item.fetched = None;
        }
        if reply == "STORED" {
            match op.verb {
                Append | Prepend => self.concat(&op.key, &op.value, op.verb == Prepend),
                _ => self.insert(&op.key, op.value.clone(), op.flags, expires_at),
            };
        }
        let mut exchange = Exchange::default();
        exchange.sent.push(name.as_bytes());
        exchange.sent.push(b" ");
        exchange.sent.push(&op.key);
        exchange.sent.push(format!(" {} {} {}", op.flags, op.exptime, op.value.len()).as_bytes());
        exchange.sent.join(&token);
        exchange.sent.push(if op.noreply { b" noreply\r\n" } else { b"\r\n" });
        exchange.sent.push(&op.value);
        exchange.sent.push(b"\r\n");
        if !op.noreply {
            exchange.expected.push(format!("{reply}\r\n").as_bytes());
        }
        exchange
    }

    fn counted(&mut self, op: &Classic) -> Exchange {
        let down = op.verb == ClassicVerb::Decr;
        let reply = match self.items.contains_key(&op.key) {
            false => "NOT_FOUND".into(),
            true => match self.count(&op.key, op.delta, down) {
                Some((number, _)) => number.to_string(),
                None => "CLIENT_ERROR cannot increment or decrement non-numeric value".into(),
            },
        };
        self.line(op, if down { "decr" } else { "incr" }, &op.delta.to_string(), &reply)
    }

    fn line(&self, op: &Classic, name: &str, argument: &str, reply: &str) -> Exchange {
        let mut exchange = Exchange::default();
        exchange.sent.push(name.as_bytes());
        exchange.sent.push(b" ");
        exchange.sent.push(&op.key);
        if !argument.is_empty() {
            exchange.sent.push(format!(" {argument}").as_bytes());
        }
        exchange.sent.push(if op.noreply { b" noreply\r\n" } else { b"\r\n" });
        if !op.noreply {
            exchange.expected.push(format!("{reply}\r\n").as_bytes());
        }
        exchange
    }
}

fn exchange(sent: &str, noreply: bool, reply: &str) -> Exchange {
    let mut exchange = Exchange::default();
    exchange.sent.push(sent.as_bytes());
    exchange.sent.push(if noreply { b" noreply\r\n" } else { b"\r\n" });
    if !noreply {
        exchange.expected.push(format!("{reply}\r\n").as_bytes());
    }
    exchange
}
