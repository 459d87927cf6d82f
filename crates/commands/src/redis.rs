//! Redis's commands: the session of a RESP client, one table, one function a command.
//!
//! - `session`: the conversation, what it reads ahead, its ways for short and long requests, and the checks before a request
//!   runs; `steps`: commands that take more than one turn
//! - `row`: what the table has of a command; `rows`: all of them as a value; `definition`: a row with the function that runs its
//!   command; `table`: these, by group, number and name; `help`: a container's help; `secret`: which words are shown to no
//!   client; `permissions`: what a client's user may do; `catalog`: the commands, as users' rules name them
//! - `client`: what a connection keeps between two commands; `queue`: before EXEC; `closing`: in EXEC; `subscriptions`: while it
//!   listens; `facts`: what others may know of it
//! - `shared`: what all RESP clients share: `settings`, `limits`, `parameters`, `waiters` for keys, what took long (`commandlog`,
//!   `latency`), scripts and libraries (`lua`), the `census` of keys that expire, a search for `rare` ones; `counters`: what a
//!   worker counts; `figures`, `metrics`, `shown`: what is shown of it
//! - `call`: what a command works with, and what it leaves for its next turn; `kept`: what it keeps of its request for that;
//!   `heap`, `held`, `sizes`: memory that it takes; `source`: what its steps read; `copied`: copied elements; `serialize`:
//!   payloads; `word`, `clock`, `decimal`, `bytes`: words, times and numbers in its arguments; `reply`, `fail`: its replies
//! - commands, by what they are about: `strings`, `collections`, `keys`, `pubsub`, `transactions`, `scripts`, `connection`,
//!   `server`

mod bytes;
mod call;
mod catalog;
mod census;
mod client;
mod clock;
mod closing;
mod collections;
pub(crate) mod commandlog;
mod connection;
mod copied;
pub(crate) mod counters;
mod decimal;
mod definition;
mod facts;
mod fail;
pub(crate) mod figures;
mod heap;
mod held;
mod help;
mod kept;
mod keys;
mod latency;
mod limits;
mod lua;
pub(crate) mod metrics;
mod parameters;
mod permissions;
mod pubsub;
mod queue;
mod rare;
mod reply;
pub mod row;
mod rows;
mod scripts;
mod secret;
mod serialize;
mod server;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod shown;
mod sizes;
mod source;
mod steps;
mod strings;
mod subscriptions;
pub mod table;
mod transactions;
mod waiters;
mod word;

pub(crate) use catalog::catalog;
pub(crate) use collections::block::{LEFT_ROUNDS, Serving};
pub(crate) use session::{Conversation, TOO_MANY_CONNECTIONS};
