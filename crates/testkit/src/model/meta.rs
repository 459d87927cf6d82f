//! The meta commands, by memcached's documentation.

use super::op::{Meta, MetaVerb};
use super::{Exchange, Item, Model};
use crate::pattern::Pattern;

/// Bits of [`Meta::asks`].
mod ask {
    pub const VALUE: u16 = 1;
    pub const KEY: u16 = 1 << 1;
    pub const OPAQUE: u16 = 1 << 2;
    pub const QUIET: u16 = 1 << 3;
    pub const TOKEN: u16 = 1 << 4;
    pub const TTL: u16 = 1 << 5;
    pub const SIZE: u16 = 1 << 6;
    pub const FLAGS: u16 = 1 << 7;
    pub const HIT: u16 = 1 << 8;
    pub const TOUCH: u16 = 1 << 9;
    pub const VIVIFY: u16 = 1 << 10;
    pub const COMPARE: u16 = 1 << 11;
    pub const INVALIDATE: u16 = 1 << 12;
    pub const RECACHE: u16 = 1 << 13;
    pub const TRACELESS: u16 = 1 << 14;
}

/// A command and its reply, both built flag by flag.
struct Talk {
    sent: Pattern,
    flags: Pattern,
}

impl Talk {
    /// A flag that is sent as it is and answered with `reply`.
    fn flag(&mut self, sent: &str, reply: &str) {
        self.sent.push(format!(" {sent}").as_bytes());
        if !reply.is_empty() {
            self.flags.push(format!(" {reply}").as_bytes());
        }
    }

    fn key(&mut self, op: &Meta) {
        if op.has(ask::KEY) {
            self.sent.push(b" k");
            self.flags.push(b" k");
            self.flags.push(&op.key);
        }
        if op.has(ask::OPAQUE) {
            self.flag("O42", "O42");
        }
    }

    fn ends(mut self, op: &Meta, code: &str, value: Option<&[u8]>, quiet: bool) -> Exchange {
        self.sent.push(b"\r\n");
        if op.verb == MetaVerb::Set {
            self.sent.push(&op.value);
            self.sent.push(b"\r\n");
        }
        let mut expected = Pattern::default();
        if !(quiet && op.has(ask::QUIET)) {
            expected.push(code.as_bytes());
            expected.join(&self.flags);
            expected.push(b"\r\n");
            if let Some(value) = value {
                expected.push(value);
                expected.push(b"\r\n");
            }
        }
        Exchange { sent: self.sent, expected, seconds: 0 }
    }
}

impl Meta {
    /// Whether it compares with a token.
    pub(super) fn names_token(&self) -> bool {
        self.has(ask::COMPARE)
    }

    /// The command in the form of most of a pipeline: a read of a value, or a plain store.
    pub(super) fn plainly(self) -> Meta {
        // No mode: a plain set.
        const MODE: u8 = 5;
        let (verb, asks) = match self.verb {
            MetaVerb::Get | MetaVerb::Delete => (MetaVerb::Get, ask::VALUE),
            MetaVerb::Set | MetaVerb::Arithmetic => (MetaVerb::Set, 0),
        };
        Meta { verb, asks, flags: 0, exptime: 0, mode: MODE, ..self }
    }

    fn has(&self, bit: u16) -> bool {
        self.asks & bit != 0
    }

    fn talk(&self, name: &str) -> Talk {
        let mut sent = Pattern::default();
        sent.push(name.as_bytes());
        sent.push(b" ");
        sent.push(&self.key);
        Talk { sent, flags: Pattern::default() }
    }
}

impl Model {
    pub(super) fn meta(&mut self, op: &Meta) -> Exchange {
        match op.verb {
            MetaVerb::Get => self.mg(op),
            MetaVerb::Set => self.ms(op),
            MetaVerb::Delete => self.md(op),
            MetaVerb::Arithmetic => self.ma(op),
        }
    }

    fn mg(&mut self, op: &Meta) -> Exchange {
        let mut talk = op.talk("mg");
        let there = self.items.contains_key(&op.key);
        let vivify = op.has(ask::VIVIFY);
        if op.has(ask::QUIET) {
            talk.sent.push(b" q");
        }
        if vivify {
            talk.sent.push(b" N30");
        }
        if !there && !vivify {
            if op.has(ask::VALUE) {
                talk.sent.push(b" v");
            }
            talk.key(op);
            return talk.ends(op, "EN", None, true);
        }
        if !there {
            let expires_at = self.expiry(30);
            self.insert(&op.key, Vec::new(), 0, expires_at);
        }
        let before = self.items[&op.key].clone();
        let mut wins = !there || (before.stale && !before.token_sent);
        // With a new time to live in the same command, memcached leaves open which one counts.
        let touch = op.has(ask::TOUCH);
        if op.has(ask::RECACHE) && !touch && there {
            talk.sent.push(b" R30");
            let left_ms = before.expires_at.saturating_sub(self.now);
            let soon = before.expires_at != 0 && (left_ms + 500) / 1000 < 30;
            wins |= soon && !before.token_sent;
        }
        if op.has(ask::VALUE) {
            talk.sent.push(b" v");
        }
        self.shows(op, &mut talk, &before);
        if op.has(ask::HIT)
            && let Some(fetched) = before.fetched
            && there
        {
            talk.flag("h", if fetched { "h1" } else { "h0" });
        }
        if touch {
            talk.flag(&format!("T{}", op.exptime), "");
        }
        // A traceless read leaves no mark: whether the item counts as read is left as it was.
        let traceless = op.has(ask::TRACELESS);
        if traceless {
            talk.flag("u", "");
        }
        for (shown, letter) in [(before.token_sent, " Z"), (before.stale, " X"), (wins, " W")] {
            if shown {
                talk.flags.push(letter.as_bytes());
            }
        }
        if touch {
            self.touched.push(op.key.clone());
        }
        let expires_at = if touch { self.expiry(op.exptime) } else { before.expires_at };
        let item = self.items.get_mut(&op.key).expect("it is there");
        item.expires_at = expires_at;
        item.token_sent |= wins;
        item.fetched = (!traceless && there && !touch).then_some(true);
        if op.has(ask::VALUE) {
            let code = format!("VA {}", before.value.len());
            return talk.ends(op, &code, Some(&before.value), false);
        }
        talk.ends(op, "HD", None, false)
    }

    /// The flags that describe an item, in one order of many.
    fn shows(&mut self, op: &Meta, talk: &mut Talk, item: &Item) {
        if op.has(ask::SIZE) {
            talk.flag("s", &format!("s{}", item.value.len()));
        }
        talk.key(op);
        if op.has(ask::TTL) {
            talk.flag("t", &format!("t{}", self.ttl(item)));
        }
        if op.has(ask::TOKEN) {
            talk.sent.push(b" c");
            talk.flags.push(b" c");
            self.show(&op.key, item.version, &mut talk.flags);
        }
        if op.has(ask::FLAGS) {
            talk.flag("f", &format!("f{}", item.flags));
        }
    }

    fn ms(&mut self, op: &Meta) -> Exchange {
        let before = self.items.get(&op.key).cloned();
        let open = before.as_ref().is_some_and(Item::is_open);
        let mode = match op.mode % 8 {
            0 => Some('E'),
            1 => Some('R'),
            2 if !open => Some('A'),
            3 if !open => Some('P'),
            4 => Some('S'),
            _ => None,
        };
        let mut talk = op.talk("ms");
        talk.sent.push(format!(" {}", op.value.len()).as_bytes());
        if op.flags != 0 {
            talk.flag(&format!("F{}", op.flags), "");
        }
        if op.exptime != 0 {
            talk.flag(&format!("T{}", op.exptime), "");
        }
        if op.has(ask::QUIET) {
            talk.flag("q", "");
        }
        if let Some(mode) = mode {
            talk.flag(&format!("M{mode}"), "");
        }
        let concat = matches!(mode, Some('A' | 'P'));
        let vivify = concat && op.has(ask::VIVIFY);
        if vivify {
            talk.flag("N40", "");
        }
        let compare = op.has(ask::COMPARE) && !matches!(mode, Some('E' | 'R'));
        let mut stale = false;
        let mut changed = false;
        if compare {
            let (token, version) = self.token(&op.key, op.token);
            talk.sent.push(b" C");
            talk.sent.join(&token);
            changed = before.as_ref().is_some_and(|item| Some(item.version) != version);
            if op.has(ask::INVALIDATE) && !concat {
                talk.flag("I", "");
                // Tokens of a key grow, so an earlier version has a lower one; 9 is lower than any.
                stale = changed;
                changed = false;
            }
        }
        let code = match (&before, mode) {
            (Some(_), Some('E')) => "NS",
            (None, Some('R')) => "NS",
            (None, Some('A' | 'P')) if !vivify => "NS",
            (None, _) if compare && !concat => "NF",
            _ if changed => "EX",
            _ => "HD",
        };
        talk.key(op);
        // memcached leaves open whether a refused add counts as an access.
        if let ("NS", Some(item)) = (code, self.items.get_mut(&op.key)) {
            item.fetched = None;
        }
        let mut version = None;
        if code == "HD" {
            let expires_at = self.expiry(if vivify { 40 } else { op.exptime });
            version = Some(match &before {
                Some(_) if concat => self.concat(&op.key, &op.value, mode == Some('P')),
                _ => self.insert(&op.key, op.value.clone(), op.flags, expires_at),
            });
            let item = self.items.get_mut(&op.key).expect("just stored");
            if let Some(before) = before.filter(|_| stale) {
                item.stale = true;
                item.expires_at = before.expires_at;
                item.token_sent = before.token_sent;
            }
            if op.has(ask::SIZE) {
                let bytes = item.value.len();
                talk.flag("s", &format!("s{bytes}"));
            }
        }
        if op.has(ask::TOKEN) {
            talk.sent.push(b" c");
            talk.flags.push(b" c");
            match version {
                Some(version) if !op.has(ask::QUIET) => self.show(&op.key, version, &mut talk.flags),
                // A quiet success has no reply that could show it.
                Some(_) => {}
                None => talk.flags.push(b"0"),
            }
        }
        talk.ends(op, code, None, code == "HD")
    }

    fn md(&mut self, op: &Meta) -> Exchange {
        let mut talk = op.talk("md");
        if op.has(ask::QUIET) {
            talk.flag("q", "");
        }
        let mut changed = false;
        let there = self.items.contains_key(&op.key);
        if op.has(ask::COMPARE) {
            let (token, version) = self.token(&op.key, op.token);
            talk.sent.push(b" C");
            talk.sent.join(&token);
            changed = there && Some(self.items[&op.key].version) != version;
        }
        let invalidate = op.has(ask::INVALIDATE);
        if invalidate {
            talk.flag("I", "");
            if op.has(ask::TOUCH) {
                talk.flag(&format!("T{}", op.exptime), "");
            }
        }
        talk.key(op);
        if !there {
            return talk.ends(op, "NF", None, false);
        }
        if changed {
            return talk.ends(op, "EX", None, false);
        }
        if invalidate {
            let version = self.version();
            let expires_at = self.expiry(op.exptime);
            let item = self.items.get_mut(&op.key).expect("it is there");
            item.stale = true;
            item.token_sent = false;
            item.version = version;
            item.fetched = None;
            if op.has(ask::TOUCH) {
                item.expires_at = expires_at;
            }
        } else {
            self.items.remove(&op.key);
        }
        talk.ends(op, "HD", None, true)
    }

    fn ma(&mut self, op: &Meta) -> Exchange {
        let mut talk = op.talk("ma");
        let before = self.items.get(&op.key).cloned();
        if before.as_ref().is_some_and(|item| item.is_open() || item.value.len() > super::NUMBER_BYTES_MAX) {
            // memcached leaves open what becomes of a stale number, or of a long text.
            return self.mg(&Meta { verb: MetaVerb::Get, ..op.clone() });
        }
        if op.has(ask::QUIET) {
            talk.flag("q", "");
        }
        talk.flag(&format!("D{}", op.delta), "");
        let down = match op.mode % 4 {
            0 => Some("MD"),
            1 => Some("M-"),
            _ => None,
        };
        if let Some(mode) = down.or((op.mode & 4 == 0).then_some("MI")) {
            talk.flag(mode, "");
        }
        let vivify = op.has(ask::VIVIFY);
        if vivify {
            talk.flag("N60", "");
            talk.flag("J13", "");
        }
        let mut changed = false;
        if op.has(ask::COMPARE) {
            let (token, version) = self.token(&op.key, op.token);
            talk.sent.push(b" C");
            talk.sent.join(&token);
            changed = before.as_ref().is_some_and(|item| Some(item.version) != version);
        }
        talk.key(op);
        if op.has(ask::VALUE) {
            talk.sent.push(b" v");
        }
        let is_number = before.as_ref().is_none_or(|item| super::number(&item.value).is_some());
        match &before {
            None if !vivify => return talk.ends(op, "NF", None, false),
            // memcached leaves open which error comes first, so both are never possible at once.
            Some(_) if changed && is_number => return talk.ends(op, "EX", None, false),
            Some(_) if changed => return self.mg(&Meta { verb: MetaVerb::Get, ..op.clone() }),
            Some(_) if !is_number => {
                talk.flags = Pattern::default();
                let error = "CLIENT_ERROR cannot increment or decrement non-numeric value";
                return talk.ends(&Meta { asks: 0, ..op.clone() }, error, None, false);
            }
            None | Some(_) => {}
        }
        let (number, version) = match before {
            None => (13, {
                let expires_at = self.expiry(60);
                self.insert(&op.key, b"13".to_vec(), 0, expires_at)
            }),
            Some(_) => self.count(&op.key, op.delta, down.is_some()).expect("it is a number"),
        };
        let item = self.items[&op.key].clone();
        if op.has(ask::TTL) {
            talk.flag("t", &format!("t{}", self.ttl(&item)));
        }
        // For a new number memcached leaves open whether N or T counts.
        if op.has(ask::TOUCH) && !vivify {
            talk.flag(&format!("T{}", op.exptime), "");
            let expires_at = self.expiry(op.exptime);
            self.items.get_mut(&op.key).expect("it is there").expires_at = expires_at;
        }
        self.items.get_mut(&op.key).expect("it is there").fetched = None;
        if op.has(ask::TOKEN) {
            talk.sent.push(b" c");
            talk.flags.push(b" c");
            if !op.has(ask::QUIET) {
                self.show(&op.key, version, &mut talk.flags);
            }
        }
        let number = number.to_string();
        match op.has(ask::VALUE) {
            true => talk.ends(op, &format!("VA {}", number.len()), Some(number.as_bytes()), true),
            false => talk.ends(op, "HD", None, true),
        }
    }
}
