//! Rules for memcached's requests. Each request is checked as a command of Redis that does the same, so that one line of rules
//! holds for every protocol.
//!
//! | request | command | key |
//! |---|---|---|
//! | `get`, `gets`, `mg` | `get` | read |
//! | `gat`, `gats`, `mg` with `N` or `T` | `getex` | read and written |
//! | `set`, `add`, `replace`, `cas`, `ms` | `set` | written |
//! | `append`, `prepend`, `ms` with `MA` or `MP` | `append` | written |
//! | `incr`, `ma`; `decr`, `ma` with `MD` | `incrby`; `decrby` | read and written |
//! | `touch` | `expire` | written |
//! | `delete`, `md` | `del` | written |
//! | `me` | `object|idletime` | read |
//! | `flush_all` | `flushall` | |
//! | `stats`; `stats reset`, `stats detail on` and `off` | `info`; `config|resetstat` | |
//! | what names keys: `stats cachedump`, `detail dump`, `hotkeys`, `prefixes`, `lru_crawler metadump` and `mgdump` | `keys` | |
//! | `stats conns` | `client|list` | |
//! | `watch` | `monitor` | |
//! | `verbosity`, `cache_memlimit`, `slabs`, `lru`, other `lru_crawler`, `refresh_certs` | `config|set` | |
//! | `debugtime` | `debug` | |
//! | `shutdown` | `shutdown` | |
//! | `version`, `mn`, `quit`, frames by which a client logs in | | |

use super::catalog::{Catalog, CommandId};
use super::pattern::Need;

/// A request of memcached's, as far as rules distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    GetAndTouch,
    Set,
    Append,
    Add,
    Subtract,
    Touch,
    Delete,
    Inspect,
    Flush,
    Figures,
    ResetFigures,
    Keys,
    Clients,
    Watch,
    Turn,
    Clock,
    Shutdown,
}

/// The command as which each verb is checked, and the need for its key; in the order of [`Verb`].
const ROWS: [(Verb, &str, Need); 18] = [
    (Verb::Get, "get", Need::READ),
    (Verb::GetAndTouch, "getex", Need::BOTH),
    (Verb::Set, "set", Need::WRITE),
    (Verb::Append, "append", Need::WRITE),
    (Verb::Add, "incrby", Need::BOTH),
    (Verb::Subtract, "decrby", Need::BOTH),
    (Verb::Touch, "expire", Need::WRITE),
    (Verb::Delete, "del", Need::WRITE),
    (Verb::Inspect, "object|idletime", Need::READ),
    (Verb::Flush, "flushall", Need::NOTHING),
    (Verb::Figures, "info", Need::NOTHING),
    (Verb::ResetFigures, "config|resetstat", Need::NOTHING),
    (Verb::Keys, "keys", Need::NOTHING),
    (Verb::Clients, "client|list", Need::NOTHING),
    (Verb::Watch, "monitor", Need::NOTHING),
    (Verb::Turn, "config|set", Need::NOTHING),
    (Verb::Clock, "debug", Need::NOTHING),
    (Verb::Shutdown, "shutdown", Need::NOTHING),
];

impl Verb {
    /// The name of the command as which it is checked.
    pub fn command(self) -> &'static str {
        ROWS[self as usize].1
    }

    /// The need for its key.
    pub fn need(self) -> Need {
        ROWS[self as usize].2
    }
}

/// The number of each verb's command, in the order of [`Verb`].
#[derive(Clone, Debug)]
pub(crate) struct Verbs([CommandId; ROWS.len()]);

impl Verbs {
    /// Looks the commands up by their names. A command that is not in the catalog is refused to each user that may not do
    /// everything.
    pub fn of(catalog: &Catalog) -> Verbs {
        Verbs(ROWS.map(|(_, name, _)| catalog.find(name.as_bytes()).unwrap_or(CommandId::MAX)))
    }

    /// The number of a verb's command.
    pub fn id(&self, verb: Verb) -> CommandId {
        self.0[verb as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_has_its_row() {
        for (at, (verb, ..)) in ROWS.iter().enumerate() {
            assert_eq!(*verb as usize, at, "{verb:?}");
        }
    }
}
