//! Administrators, in either protocol.

use crate::world::asking::Asking;
use crate::world::client::Client;
use crate::world::part::{Part, words};
use crate::world::plan::Memory;
use crate::world::scene::{Flush, Scene};

impl Client {
    /// An administrator's request.
    pub fn ask_as_admin(&mut self, scene: &mut Scene) -> Asking {
        if self.changes_users(scene)
            && (self.left == 0 || !scene.random.one_in(4))
            && let Some(asking) = self.change_user(scene)
        {
            return asking;
        }
        if scene.plan.flushes && scene.flush == Flush::None && scene.random.one_in(3) {
            scene.flush = Flush::Begins;
            let bytes = match (self.dialect.is_resp(), scene.random.one_in(2)) {
                (true, true) => words(&[b"FLUSHDB"]),
                (true, false) => words(&[b"FLUSHALL"]),
                (false, _) => b"flush_all\r\n".to_vec(),
            };
            return Asking::new(bytes, vec![Part::Flushed]);
        }
        if self.dialect.is_resp() { self.ask_as_redis_admin(scene) } else { self.ask_as_text_admin(scene) }
    }

    fn ask_as_text_admin(&self, scene: &mut Scene) -> Asking {
        let most = scene.plan.memory_mb();
        let least = if scene.plan.memory == Memory::Ample { 48 } else { most - 4 };
        let ok = || Part::Bytes(b"OK\r\n".into());
        match scene.random.below(6) {
            _ if !scene.plan.tuning => Asking::new("version\r\n", vec![Part::Line]),
            0 => {
                let mb = least + scene.random.below(most - least + 1);
                Asking::new(format!("cache_memlimit {mb}\r\n"), vec![ok()])
            }
            1 => Asking::new("slabs reassign -1 5\r\n", vec![Part::Line]),
            2 => Asking::new(format!("slabs automove {}\r\n", scene.random.below(3)), vec![ok()]),
            3 => Asking::new("stats\r\n", vec![Part::Lines]),
            4 => Asking::new("stats conns\r\n", vec![Part::Lines]),
            _ => Asking::new("version\r\n", vec![Part::Line]),
        }
    }

    fn ask_as_redis_admin(&self, scene: &mut Scene) -> Asking {
        let most = scene.plan.memory_mb();
        if scene.plan.scripts && scene.plan.script_kills && scene.random.one_in(2) {
            scene.books.bank.kills_asked += 1;
            return Asking::new(words(&[b"SCRIPT", b"KILL"]), vec![Part::ScriptsKilled]);
        }
        match scene.random.below(6) {
            0..3 if scene.plan.kills && !scene.connected.is_empty() => {
                let address = scene.random.of(&scene.connected);
                let bytes = words(&[b"CLIENT", b"KILL", b"ADDR", address.to_string().as_bytes()]);
                scene.may_be_killed.push(address);
                Asking::new(bytes, vec![Part::Killed(address)])
            }
            3 if scene.plan.tuning => {
                let bytes = ((most << 20) - scene.random.below(1 << 20)).to_string();
                let set = words(&[b"CONFIG", b"SET", b"maxmemory", bytes.as_bytes()]);
                Asking::new(set, vec![Part::Bytes(b"+OK\r\n".into())])
            }
            4 => Asking::new(words(&[b"INFO"]), vec![Part::Bulk]),
            5 => Asking::new(words(&[b"CLIENT", b"LIST"]), vec![Part::Bulk]),
            _ => Asking::new(words(&[b"DBSIZE"]), vec![Part::Line]),
        }
    }
}
