//! State of a client of the [`Model`](super::model::Model): its protocol, its user and its database.

use super::reply::{Reply, bulk};
use super::words::{Answer, Fail, SYNTAX, Words, database, int, integer, ok};

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

impl Words<'_> {
    pub(super) fn select(&mut self) -> Answer {
        let db = database(&self.args[0])?;
        self.model.client(self.client).db = db;
        ok()
    }

    pub(super) fn ping(&mut self) -> Answer {
        match self.args {
            [] => Ok(b"+PONG\r\n".to_vec().into()),
            [word] => Ok(bulk(word).into()),
            _ => Fail::of("ERR wrong number of arguments for 'ping' command"),
        }
    }

    pub(super) fn reset(&mut self) -> Answer {
        *self.model.client(self.client) = Default::default();
        Ok(b"+RESET\r\n".to_vec().into())
    }

    /// Whether a login succeeds. There are no passwords: only the user decides.
    fn admits(&mut self, user: &[u8]) -> bool {
        let was_wrong = &mut self.model.client(self.client).was_wrong;
        let admits = user == b"default" && *was_wrong != Some(true);
        if let Some(was_wrong) = was_wrong {
            *was_wrong = !admits;
        }
        admits
    }

    pub(super) fn auth(&mut self) -> Answer {
        match self.args {
            [_] => Fail::of(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            ),
            [user, _] => {
                if self.admits(user) {
                    ok()
                } else {
                    Fail::of(WRONG_PASSWORD)
                }
            }
            _ => Fail::of(SYNTAX),
        }
    }

    pub(super) fn hello(&mut self) -> Answer {
        let mut resp3 = self.resp3();
        let mut name = None;
        if let Some(version) = self.args.first() {
            resp3 = match integer(version) {
                Ok(2) => false,
                Ok(3) => true,
                Ok(_) => return Fail::of("NOPROTO unsupported protocol version"),
                Err(_) => return Fail::of("ERR Protocol version is not an integer or out of range"),
            };
        }
        let (mut at, mut user) = (1, None);
        while at < self.args.len() {
            match (self.option(at).as_str(), self.args.len() - at - 1) {
                ("AUTH", 2..) => {
                    user = Some(&self.args[at + 1]);
                    at += 3;
                }
                ("SETNAME", 1..) => {
                    if self.args[at + 1].iter().any(|byte| !byte.is_ascii_graphic()) {
                        return Fail::of(
                            "ERR Client names cannot contain spaces, newlines or special characters.",
                        );
                    }
                    name = Some(self.args[at + 1].clone());
                    at += 2;
                }
                _ => {
                    let word: String = self.args[at].iter().map(|&byte| char::from(byte)).collect();
                    let word = word.split('\0').next().unwrap_or("").to_owned();
                    return Fail::of(&format!("ERR Syntax error in HELLO option '{word}'"));
                }
            }
        }
        if user.is_some_and(|user| !self.admits(user)) {
            return Fail::of(WRONG_PASSWORD);
        }
        let client = self.model.client(self.client);
        client.resp3 = resp3;
        client.name = name.unwrap_or(std::mem::take(&mut client.name));
        let words = |words: &[&str]| words.iter().flat_map(|word| bulk(word.as_bytes())).collect::<Vec<u8>>();
        let start = [self.map_head(7), words(&["server", "redis", "version"])].concat();
        let proto = format!(":{}\r\n", if resp3 { 3 } else { 2 }).into_bytes();
        let end = words(&["mode", "standalone", "role", "master", "modules"]);
        Ok(Reply::Several(vec![
            start.into(),
            Reply::Text,
            [words(&["proto"]), proto, words(&["id"])].concat().into(),
            Reply::Number,
            [end, b"*0\r\n".to_vec()].concat().into(),
        ]))
    }

    pub(super) fn client_name(&mut self) -> Answer {
        let name = self.model.client(self.client).name.clone();
        Ok(self.maybe((!name.is_empty()).then_some(&name)))
    }

    /// WAIT: there are no replicas to wait for.
    pub(super) fn wait(&mut self) -> Answer {
        self.number(0)?;
        match self.number(1) {
            Err(_) => Fail::of("ERR timeout is not an integer or out of range"),
            Ok(..0) => Fail::of("ERR timeout is negative"),
            Ok(_) => int(0),
        }
    }
}
