//! Scripts of RESP clients: they move money between accounts, read all accounts, and run commands on their client's keys. They
//! are called by `EVAL`, `EVALSHA` and `FCALL`, with and without declared keys, between other requests and in `EXEC`; some take
//! so long that they go on in later turns of their worker.

use larder_testkit::redis::scripts::digest;

use crate::world::asking::Asking;
use crate::world::bank::{ACCOUNTS, LEDGER, Query, Since, account_name, entry};
use crate::world::client::Client;
use crate::world::part::{Part, bulk, words};
use crate::world::scene::Scene;

/// The beginning of all scripts.
const SPIN: &str = "local function spin(n) for i = 1, tonumber(n) do end end ";

/// Moves money: an order, an amount, and how long the script spins before it reads, before it writes, and in between.
const MOVE: &str = "local from, to, ledger = KEYS[1] or ARGV[6], KEYS[2] or ARGV[7], KEYS[3] or ARGV[8] \
    local amount = tonumber(ARGV[2]) \
    spin(ARGV[3]) \
    local place = redis.call('STRLEN', ledger) / 8 \
    local there, here = tonumber(redis.call('GET', from)), tonumber(redis.call('GET', to)) \
    spin(ARGV[4]) \
    if there < amount then return {place, there, here, 0} end \
    redis.call('DECRBY', from, amount) \
    spin(ARGV[5]) \
    redis.call('INCRBY', to, amount) \
    redis.call('APPEND', ledger, ARGV[1]) \
    return {place, there, here, 1} ";

/// Reads all accounts.
const LOOK: &str = "spin(ARGV[1]) \
    local told = {redis.call('STRLEN', KEYS[1] or ARGV[3]) / 8} \
    for i = 2, 7 do \
        told[i] = tonumber(redis.call('GET', KEYS[i] or ARGV[i + 2])) \
        if i == 4 then spin(ARGV[2]) end \
    end \
    return told ";

/// Runs commands: how long the script spins before and in between, then each command behind its number of words.
const EACH: &str = "local told, at = {}, 2 \
    while at <= #ARGV do \
        spin(ARGV[1]) \
        local count = tonumber(ARGV[at]) \
        told[#told + 1] = redis.pcall(unpack(ARGV, at + 1, at + count)) \
        at = at + count + 1 \
    end \
    return told ";

/// The library with the same scripts as functions.
const LIBRARY: &str = "bank";

/// Added to scripts without declared keys, so that their text differs: the server remembers which scripts
/// declare keys.
const DECLARES_NONE: &str = "-- declares none";

/// As many iterations as make a script go on in a later turn.
const LONG: u64 = 15_000;

/// A command, and the parts of its reply.
type Piece = (Vec<u8>, Vec<Part>);

/// A task of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Move,
    Look,
    Each,
}

impl Deed {
    const ALL: [Deed; 3] = [Deed::Move, Deed::Look, Deed::Each];

    fn body(self) -> &'static str {
        match self {
            Deed::Move => MOVE,
            Deed::Look => LOOK,
            Deed::Each => EACH,
        }
    }

    fn function(self) -> &'static str {
        match self {
            Deed::Move => "move",
            Deed::Look => "look",
            Deed::Each => "each",
        }
    }

    fn script(self, declares: bool) -> String {
        format!("{SPIN}{}{}", self.body(), if declares { "" } else { DECLARES_NONE })
    }
}

fn library() -> String {
    let functions = Deed::ALL.map(|deed| {
        let flags = if deed == Deed::Look { "'no-writes'" } else { "" };
        format!(
            "redis.register_function{{function_name = '{}', flags = {{{flags}}}, callback = function(KEYS, ARGV) {} end}}\n",
            deed.function(),
            deed.body()
        )
    });
    format!("#!lua name={LIBRARY}\n{SPIN}\n{}", functions.concat())
}

/// A call of a script or a function.
fn call(scene: &mut Scene, deed: Deed, keys: &[String], args: &[Vec<u8>]) -> Vec<u8> {
    let declares = scene.random.one_in(2);
    let script = deed.script(declares);
    let digest = digest(script.as_bytes());
    let reads = deed == Deed::Look && scene.random.one_in(2);
    let (name, what) = match (scene.random.below(3), reads) {
        (0, false) => ("EVAL", script.as_str()),
        (0, true) => ("EVAL_RO", script.as_str()),
        (1, false) => ("EVALSHA", digest.as_str()),
        (1, true) => ("EVALSHA_RO", digest.as_str()),
        (_, false) => ("FCALL", deed.function()),
        (_, true) => ("FCALL_RO", deed.function()),
    };
    let count = if declares { keys.len() } else { 0 };
    let count = count.to_string();
    let mut all = vec![name.as_bytes(), what.as_bytes(), count.as_bytes()];
    let (declared, others) = if declares { (keys, &[][..]) } else { (&[][..], keys) };
    all.extend(declared.iter().map(String::as_bytes));
    all.extend(args.iter().map(Vec::as_slice));
    // The script finds its keys behind its arguments.
    if deed != Deed::Each {
        all.extend(others.iter().map(String::as_bytes));
    }
    words(&all)
}

fn bank(told: Query, since: Since) -> Part {
    Part::Bank { told, since }
}

impl Client {
    /// Loads all scripts.
    pub fn load_scripts(&mut self, scene: &mut Scene) {
        let (mut bytes, mut parts) = (Vec::new(), Vec::new());
        for script in Deed::ALL.iter().flat_map(|deed| [deed.script(true), deed.script(false)]) {
            bytes.extend(words(&[b"SCRIPT", b"LOAD", script.as_bytes()]));
            parts.push(Part::Bytes(bulk(digest(script.as_bytes()).as_bytes())));
        }
        bytes.extend(words(&[b"FUNCTION", b"LOAD", b"REPLACE", library().as_bytes()]));
        parts.push(Part::Bytes(bulk(LIBRARY.as_bytes())));
        self.put(scene, Asking::new(bytes, parts));
    }

    /// A request with scripts; none if this world has no scripts.
    pub fn ask_script(&mut self, scene: &mut Scene) -> Option<Asking> {
        let (money, own) = (scene.plan.moves_money(), scene.plan.scripts_own_keys());
        if !money && !own {
            return None;
        }
        let (bytes, parts) = match scene.random.below(10) {
            0..4 if money => self.move_money(scene, false),
            4 if money => self.look(scene, false),
            5 if money => self.read_accounts(scene),
            // Not while the client watches a key: if the key was changed, EXEC would run nothing.
            6 | 7 if self.contesting.is_none() => return Some(self.scripts_at_once(scene, money, own)),
            _ if own => self.script_of_own(scene),
            _ if money => self.move_money(scene, false),
            _ => return None,
        };
        Some(Asking::new(bytes, parts))
    }

    /// How long a script spins at this place: mostly not at all.
    fn spin(scene: &mut Scene) -> Vec<u8> {
        let times = if scene.random.one_in(8) { 1 + scene.random.below(LONG) } else { 0 };
        times.to_string().into_bytes()
    }

    fn move_money(&mut self, scene: &mut Scene, follows: bool) -> Piece {
        let from = scene.random.index(ACCOUNTS);
        let to = (from + 1 + scene.random.index(ACCOUNTS - 1)) % ACCOUNTS;
        let amount = scene.random.below(150);
        let since = scene.books.bank.since(follows);
        let order = scene.books.bank.order(from, to, amount);
        let keys = [account_name(from), account_name(to), LEDGER.to_owned()];
        let mut args = vec![entry(order).into_bytes(), amount.to_string().into_bytes()];
        args.extend((0..3).map(|_| Client::spin(scene)));
        (call(scene, Deed::Move, &keys, &args), vec![bank(Query::Moved(order), since)])
    }

    fn look(&mut self, scene: &mut Scene, follows: bool) -> Piece {
        let since = scene.books.bank.since(follows);
        let accounts = (0..ACCOUNTS).map(account_name);
        let keys: Vec<String> = std::iter::once(LEDGER.to_owned()).chain(accounts).collect();
        let args = [Client::spin(scene), Client::spin(scene)];
        (call(scene, Deed::Look, &keys, &args), vec![bank(Query::Looked, since)])
    }

    /// The ledger and all accounts, by MGET.
    fn read_accounts(&mut self, scene: &mut Scene) -> Piece {
        let bank_now = &scene.books.bank;
        let names: Vec<String> = (0..ACCOUNTS).map(account_name).collect();
        let all = [&b"MGET"[..], LEDGER.as_bytes()].into_iter().chain(names.iter().map(String::as_bytes));
        let parts = vec![
            Part::Bytes(format!("*{}\r\n", 1 + ACCOUNTS).into()),
            bank(Query::Ledger, bank_now.since(false)),
            bank(Query::Balances, bank_now.since(true)),
        ];
        (words(&all.collect::<Vec<_>>()), parts)
    }

    /// A script with commands on the client's own keys.
    fn script_of_own(&mut self, scene: &mut Scene) -> Piece {
        let count = 1 + scene.random.index(3);
        // After a kill it is unknown which commands ran, and the model of these keys needs to know.
        let spin = if scene.plan.script_kills { b"0".to_vec() } else { Client::spin(scene) };
        let (mut args, mut keys) = (vec![spin], Vec::new());
        let mut parts = vec![Part::Bytes(format!("*{count}\r\n").into())];
        for _ in 0..count {
            let (command, part) = self.command_words(scene);
            if let Part::Key { key, .. } = &part {
                keys.push(self.keys[*key].name.clone());
            }
            args.push(command.len().to_string().into_bytes());
            args.extend(command);
            parts.push(part);
        }
        (call(scene, Deed::Each, &keys, &args), parts)
    }

    /// Scripts and other commands in one transaction.
    fn scripts_at_once(&mut self, scene: &mut Scene, money: bool, own: bool) -> Asking {
        let (mut pieces, mut follows) = (Vec::new(), false);
        for _ in 0..1 + scene.random.index(5) {
            match scene.random.below(6) {
                0 | 1 if money => {
                    pieces.push(self.move_money(scene, follows));
                    follows = true;
                }
                2 if money => {
                    pieces.push(self.look(scene, follows));
                    follows = true;
                }
                3 if money => {
                    let since = scene.books.bank.since(follows);
                    pieces.push((words(&[b"STRLEN", LEDGER.as_bytes()]), vec![bank(Query::Length, since)]));
                    let names: Vec<String> = (0..ACCOUNTS).map(account_name).collect();
                    let all = std::iter::once(&b"MGET"[..]).chain(names.iter().map(String::as_bytes));
                    let parts = vec![
                        Part::Bytes(format!("*{ACCOUNTS}\r\n").into()),
                        bank(Query::Balances, scene.books.bank.since(true)),
                    ];
                    pieces.push((words(&all.collect::<Vec<_>>()), parts));
                    follows = true;
                }
                4 if own => pieces.push(self.script_of_own(scene)),
                _ => {
                    let (bytes, part) = self.command(scene);
                    pieces.push((bytes, vec![part]));
                }
            }
        }
        let count = pieces.len();
        // No client kills a script in EXEC.
        for part in pieces.iter_mut().flat_map(|(_, parts)| parts) {
            if let Part::Bank { since, .. } = part {
                since.is_never_killed();
            }
        }
        let (mut bytes, mut parts) = (words(&[b"MULTI"]), vec![Part::Bytes(b"+OK\r\n".into())]);
        parts.extend((0..count).map(|_| Part::Bytes(b"+QUEUED\r\n".into())));
        parts.push(Part::Bytes(format!("*{count}\r\n").into()));
        for (command, answer) in pieces {
            bytes.extend(command);
            parts.extend(answer);
        }
        bytes.extend(words(&[b"EXEC"]));
        Asking::new(bytes, parts)
    }
}
