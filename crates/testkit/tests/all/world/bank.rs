//! Accounts between which scripts move money, and a ledger of all moves. Each reply of a script, MGET and transaction has a place
//! in the ledger, and must have the balances at that place.
//!
//! ```text
//! ledger     0000004;0000001;0000009;…     orders, as they were carried out
//! places   0        1        2        3    the length of the ledger in a reply is its place
//! ```
//!
//! A move with a reply is in the ledger once, at the place in its reply; a move without a reply, once or not at all; one that was
//! refused or killed, not at all. No reply has an earlier place than any reply that had arrived when its request was sent.
//! Replies of one moment have one place.

use crate::world::client::Client;
use crate::world::judge::{bulk_at, line_end, shown};
use crate::world::scene::Scene;

/// Accounts, and the money that each holds at first.
pub const ACCOUNTS: usize = 6;
pub const EACH: u64 = 100;

/// The name of the ledger.
pub const LEDGER: &str = "ledger";
/// Bytes of an order in the ledger.
const ENTRY_BYTES: usize = 8;

/// A question about accounts; it determines what the part of the reply contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// A script that moved money: the place, both balances before, and whether there was enough.
    Moved(usize),
    /// A script that has read the place and all balances.
    Looked,
    /// The length of the ledger.
    Length,
    /// The ledger.
    Ledger,
    /// All balances, at the moment of the previous part.
    Balances,
}

/// The state when a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// The latest place in any reply at that time.
    place: u64,
    /// How many kills of scripts had been answered at that time.
    kills: u64,
    /// The part is of the same moment as the previous one.
    follows: bool,
}

impl Since {
    /// Marks a script that no client can have killed.
    pub fn is_never_killed(&mut self) {
        self.kills = u64::MAX;
    }
}

/// The result of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    /// The order is at this place.
    Done(u64),
    /// There was too little money, or the script was killed, or never sent.
    Not,
    /// The connection ended before the reply.
    Unsure,
}

#[derive(Debug)]
struct Order {
    from: usize,
    to: usize,
    amount: u64,
    fate: Fate,
}

/// A balance at a place, as a reply had it.
#[derive(Debug)]
struct Balance {
    place: u64,
    account: usize,
    amount: u64,
    who: String,
}

/// The whole bank.
#[derive(Debug, Default)]
pub struct Bank {
    orders: Vec<Order>,
    told: Vec<Balance>,
    /// The ledger, as far as any reply has shown it.
    ledger: Vec<u8>,
    /// The last place that any reply has had.
    reached: u64,
    /// Requested kills of scripts. `kills_done`: those that were answered, or never will be.
    pub kills_asked: u64,
    pub kills_done: u64,
}

/// The name of an account.
pub fn account_name(account: usize) -> String {
    format!("account-{account}")
}

/// An order as it stands in the ledger.
pub fn entry(order: usize) -> String {
    format!("{order:0width$};", width = ENTRY_BYTES - 1)
}

impl Bank {
    /// The state now: the reply to a request that is sent now has this place or a later one.
    pub fn since(&self, follows: bool) -> Since {
        Since { place: self.reached, kills: self.kills_done, follows }
    }

    /// Creates an order to move money; returns its number.
    pub fn order(&mut self, from: usize, to: usize, amount: u64) -> usize {
        self.orders.push(Order { from, to, amount, fate: Fate::Open });
        self.orders.len() - 1
    }

    /// Notes that the connection of an order ended before its reply.
    pub fn left(&mut self, order: usize, sent: bool) {
        self.orders[order].fate = if sent { Fate::Unsure } else { Fate::Not };
    }

    /// How many moves were answered as done.
    pub fn moves(&self) -> u64 {
        self.orders.iter().filter(|order| matches!(order.fate, Fate::Done(_))).count() as u64
    }

    fn note(&mut self, place: u64, account: usize, amount: u64, who: &str) {
        self.told.push(Balance { place, account, amount, who: who.to_owned() });
    }

    /// Notes the reply to a move.
    fn moved(&mut self, order: usize, told: &[u64], who: &str) -> Result<(), String> {
        let &[place, there, here, done] = told else { return Err("this is no move".into()) };
        let Order { from, to, amount, .. } = self.orders[order];
        if done != u64::from(there >= amount) {
            return Err(format!("of {there} so many were to be moved: {amount}"));
        }
        self.note(place, from, there, who);
        self.note(place, to, here, who);
        self.orders[order].fate = if done == 1 { Fate::Done(place) } else { Fate::Not };
        Ok(())
    }

    /// Notes a reading of the ledger, and returns its place. It must extend the known ledger, or be its
    /// beginning.
    fn read(&mut self, ledger: &[u8]) -> Result<u64, String> {
        let both = ledger.len().min(self.ledger.len());
        if ledger[..both] != self.ledger[..both] || !ledger.len().is_multiple_of(ENTRY_BYTES) {
            return Err(format!("the ledger was {} before", shown(&self.ledger)));
        }
        if ledger.len() > both {
            self.ledger = ledger.to_vec();
        }
        Ok((ledger.len() / ENTRY_BYTES) as u64)
    }

    /// Checks the ledger and the accounts at the end.
    ///
    /// # Errors
    /// What is wrong.
    pub fn agrees(&mut self, ledger: &[u8], balances: &[u64]) -> Result<(), String> {
        self.read(ledger)?;
        let mut now = [EACH; ACCOUNTS];
        let mut states = vec![now];
        let mut found = vec![false; self.orders.len()];
        for (place, bytes) in ledger.chunks(ENTRY_BYTES).enumerate() {
            let text = String::from_utf8_lossy(bytes);
            let number = text.strip_suffix(';').and_then(|text| text.parse::<usize>().ok());
            let order = number.filter(|order| *order < self.orders.len());
            let order = order.ok_or_else(|| format!("the ledger says {text} at {place}"))?;
            let Order { from, to, amount, fate } = self.orders[order];
            let may = match fate {
                Fate::Done(told) => told == place as u64,
                Fate::Unsure => true,
                Fate::Open | Fate::Not => false,
            };
            if std::mem::replace(&mut found[order], true) || !may || now[from] < amount {
                return Err(format!("order {order} is at {place} of the ledger: {:?}", self.orders[order]));
            }
            now[from] -= amount;
            now[to] += amount;
            states.push(now);
        }
        let missing = self.orders.iter().zip(&found).position(|(order, found)| {
            let done = matches!(order.fate, Fate::Done(_));
            done && !found
        });
        if let Some(order) = missing {
            return Err(format!("order {order} is not in the ledger: {:?}", self.orders[order]));
        }
        let wrong = self.told.iter().find(|told| {
            states.get(told.place as usize).is_none_or(|state| state[told.account] != told.amount)
        });
        if let Some(told) = wrong {
            let state = states.get(told.place as usize);
            let Balance { place, account, amount, who } = told;
            return Err(format!(
                "{who} was told that account {account} held {amount} at {place}, where the accounts held {state:?}"
            ));
        }
        if balances != now {
            return Err(format!("the accounts hold {balances:?}, and {now:?} is what was moved"));
        }
        Ok(())
    }
}

impl Client {
    /// Judges a part about accounts; returns its length in bytes, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge_bank(
        &mut self,
        scene: &mut Scene,
        told: Query,
        since: Since,
        rest: &[u8],
    ) -> Result<Option<usize>, String> {
        const KILLED: &[u8] = b"-ERR Script killed by user with ";
        let bank = &mut scene.books.bank;
        if matches!(told, Query::Moved(_) | Query::Looked) && bank.kills_asked > since.kills {
            let Some(end) = line_end(rest) else { return Ok(None) };
            if rest.starts_with(KILLED) && !since.follows {
                if let Query::Moved(order) = told {
                    bank.orders[order].fate = Fate::Not;
                }
                return Ok(Some(end));
            }
        }
        let count = match told {
            Query::Moved(_) => 4,
            Query::Looked => 1 + ACCOUNTS,
            Query::Length => 1,
            Query::Ledger => 0,
            Query::Balances => ACCOUNTS,
        };
        let head = if matches!(told, Query::Moved(_) | Query::Looked) {
            format!("*{count}\r\n")
        } else {
            String::new()
        };
        if rest.len() < head.len() && head.as_bytes().starts_with(rest) {
            return Ok(None);
        }
        let body =
            rest.strip_prefix(head.as_bytes()).ok_or_else(|| format!("{told:?} begins with {head:?}"))?;
        let (bytes, place, next) = if told == Query::Ledger {
            let Some((bytes, ledger)) = bulk_at(body)? else { return Ok(None) };
            let place = bank.read(ledger)?;
            (bytes, place, place)
        } else {
            let Some((bytes, numbers)) = numbers(body, count)? else { return Ok(None) };
            let (place, next) = match told {
                Query::Moved(order) => {
                    bank.moved(order, &numbers, &self.name)?;
                    (numbers[0], numbers[0] + numbers[3])
                }
                Query::Looked | Query::Ledger => (numbers[0], numbers[0]),
                Query::Length => {
                    let place = numbers[0] / ENTRY_BYTES as u64;
                    (place, place)
                }
                Query::Balances => (self.moment, self.moment),
            };
            if matches!(told, Query::Looked | Query::Balances) {
                let balances = &numbers[count - ACCOUNTS..];
                balances.iter().enumerate().for_each(|(n, amount)| bank.note(place, n, *amount, &self.name));
            }
            (bytes, place, next)
        };
        let least = self.moment.max(since.place);
        if place < least || since.follows && place != self.moment {
            let exactly = if since.follows { "it is of the moment before, " } else { "" };
            return Err(format!("it is of place {place}; {exactly}{least} was reached"));
        }
        self.moment = next;
        bank.reached = bank.reached.max(next);
        Ok(Some(head.len() + bytes))
    }
}

/// Reads `count` numbers, as integers or as strings, at the front; returns the bytes that they take, and the
/// numbers.
fn numbers(bytes: &[u8], count: usize) -> Result<Option<(usize, Vec<u64>)>, String> {
    let (mut at, mut numbers) = (0, Vec::new());
    for _ in 0..count {
        let rest = &bytes[at..];
        let (end, text) = if rest.starts_with(b":") {
            let Some(end) = line_end(rest) else { return Ok(None) };
            (end, &rest[1..end - 2])
        } else {
            let Some((end, text)) = bulk_at(rest)? else { return Ok(None) };
            (end, text)
        };
        let text = String::from_utf8_lossy(text);
        numbers.push(text.parse().map_err(|_| format!("this is no number: {text}"))?);
        at += end;
    }
    Ok(Some((at, numbers)))
}
