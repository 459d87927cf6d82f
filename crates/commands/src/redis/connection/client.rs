//! A client: what its connection keeps between two commands, and what others may see of it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_store::{Millis, Store};
use smallvec::SmallVec;

use crate::core::access::{DEFAULT_ID, DEFAULT_USER, Standing};
use crate::core::acl::log::Log;
use crate::core::context::Context;
use crate::core::guesses::Tries;
use crate::core::output::Output;
use crate::redis::pubsub::Subscriptions;
use crate::redis::server::acl::Closing;
use crate::redis::shared::Shared;
use crate::redis::steps::job::UnderWay;
use crate::redis::transactions::Transaction;

/// Whether replies are sent (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    /// Not this command's, nor the next one's.
    SkipNext,
    /// Not this command's.
    Skip,
    Off,
}

impl Replies {
    /// The reply of the command at work is not sent.
    pub fn is_silent(self) -> bool {
        matches!(self, Replies::Skip | Replies::Off)
    }

    /// A command has ended, on its own or with its transaction.
    pub fn end_command(&mut self) {
        *self = match *self {
            Replies::On | Replies::Skip => Replies::On,
            Replies::SkipNext => Replies::Skip,
            Replies::Off => Replies::Off,
        };
    }
}

/// What a connection keeps between two commands.
#[derive(Debug)]
pub(crate) struct Client {
    /// The selected database.
    pub db: u8,
    /// It speaks RESP3.
    pub resp3: bool,
    /// Whether it has said who it is.
    pub standing: Standing,
    /// The passwords that it has said.
    pub logins: Tries,
    pub replies: Replies,
    /// Its reads leave no trace in what is evicted first.
    pub no_touch: bool,
    /// What it has queued and watches.
    pub transaction: Transaction,
    /// A command of its that has begun and goes on in its next turn.
    pub job: Option<UnderWay>,
    /// How often its command was begun before.
    pub tries: u8,
    /// The request at work was gathered, and can stay where it is.
    pub gathers: bool,
    /// EXEC is at its commands.
    pub executes: bool,
    /// Users that these have changed, and whose connections its end closes.
    pub closing: Option<Box<Closing>>,
    /// What it listens to, if it ever did.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// Messages that it is still told behind the reply of EXEC, in which it has stopped listening.
    pub late: Option<Box<Output>>,
    /// What others may see.
    pub facts: Arc<ClientFacts>,
    clients: Arc<Clients>,
    store: Arc<Store>,
    /// Bytes of the names that it gave itself.
    names_bytes: i64,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.clients.leave(self.facts.id);
        self.store.set_aside(-self.names_bytes);
    }
}

impl Client {
    /// A client that has just begun to speak.
    pub fn new(shared: &Shared, cx: &Context<'_, '_>) -> Client {
        let facts = shared.clients.enter(|id| ClientFacts {
            id,
            place: cx.peer.place(),
            address: cx.peer.address().into(),
            listen_address: cx.peer.listen_address(),
            speaks_tls: cx.peer.speaks_tls(),
            since: cx.now(),
            active: AtomicU64::new(cx.now()),
            row: AtomicU32::new(u32::MAX),
            db: AtomicU32::new(0),
            resp3: AtomicBool::new(false),
            queued: AtomicU32::new(0),
            queue_bytes: AtomicU64::new(0),
            watched: AtomicU32::new(0),
            listens: Default::default(),
            monitors: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            query_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            replied_bytes: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            names: Mutex::default(),
        });
        Client {
            db: 0,
            resp3: false,
            standing: Standing::new(cx),
            logins: Tries::default(),
            replies: Replies::On,
            no_touch: false,
            transaction: Transaction::default(),
            job: None,
            tries: 0,
            gathers: false,
            executes: false,
            closing: None,
            subscriptions: None,
            late: None,
            facts,
            clients: Arc::clone(&shared.clients),
            store: Arc::clone(cx.guard.store()),
            names_bytes: 0,
        }
    }

    /// Commands may be read ahead and run in batches: nothing is to be asked before each.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.standing.is_free()
            && self.replies == Replies::On
            && !self.transaction.is_open()
            && (self.resp3 || self.subscriptions.is_none())
    }

    /// It is shown every command.
    pub fn monitors(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.monitors())
    }

    /// It speaks RESP2 and listens to channels, so that its replies must not be taken for messages.
    #[inline]
    pub fn only_listens(&self) -> bool {
        !self.resp3 && self.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.listens())
    }

    /// Shows others what it has queued and watches.
    pub fn show_transaction(&self) {
        let queued = self.transaction.queued().map_or(0, |queued| queued as u32 + 1);
        self.facts.queued.store(queued, Relaxed);
        self.facts.queue_bytes.store(self.transaction.queue_bytes() as u64, Relaxed);
        self.facts.watched.store(self.transaction.watched() as u32, Relaxed);
    }

    /// Shows others what it listens to.
    pub fn show_subscriptions(&self) {
        let counts = self.subscriptions.as_ref().map_or([0; 3], |subscriptions| subscriptions.counts());
        for (shown, count) in self.facts.listens.iter().zip(counts) {
            shown.store(count as u32, Relaxed);
        }
        self.facts.monitors.store(self.monitors(), Relaxed);
    }

    /// It says something else of itself: the names are charged to the memory limit.
    pub fn rename(&mut self, change: impl FnOnce(&mut Names)) {
        let bytes = self.facts.rename(change) as i64;
        self.store.set_aside(bytes - std::mem::replace(&mut self.names_bytes, bytes));
    }

    /// Selects a database.
    pub fn select(&mut self, db: u8) {
        self.db = db;
        self.facts.db.store(u32::from(db), Relaxed);
    }

    /// Speaks RESP3 from now on, or RESP2.
    pub fn speak(&mut self, resp3: bool) {
        self.resp3 = resp3;
        self.facts.resp3.store(resp3, Relaxed);
    }
}

/// What others may see of a client.
#[derive(Debug)]
pub(crate) struct ClientFacts {
    /// Its number; never used again.
    pub(crate) id: u64,
    /// Its place in the server.
    pub(crate) place: u64,
    pub(crate) address: Box<str>,
    pub(crate) listen_address: Arc<str>,
    /// Its connection is TLS.
    pub(crate) speaks_tls: bool,
    /// When it connected.
    pub(crate) since: Millis,
    /// When it last sent something.
    pub(crate) active: AtomicU64,
    /// The row of its last command.
    pub(crate) row: AtomicU32,
    pub(crate) db: AtomicU32,
    pub(crate) resp3: AtomicBool,
    /// Commands that it has queued, and one; 0 outside MULTI.
    pub(crate) queued: AtomicU32,
    /// Bytes that they take.
    pub(crate) queue_bytes: AtomicU64,
    /// Keys that it watches.
    pub(crate) watched: AtomicU32,
    /// How many channels, patterns and sharded channels it listens to.
    pub(crate) listens: [AtomicU32; 3],
    /// It is shown every command.
    pub(crate) monitors: AtomicBool,
    /// Its command waits for the end of a pause, for something to be there, or because passwords were wrong.
    pub(crate) waits: AtomicBool,
    /// Bytes of a request that is not whole.
    pub(crate) query_bytes: AtomicU64,
    /// Bytes that hold replies which it has not taken.
    pub(crate) output_bytes: AtomicU64,
    /// Bytes of its requests, of what it was answered and told, and its commands; written by its worker alone.
    pub(crate) received_bytes: AtomicU64,
    pub(crate) replied_bytes: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) no_evict: AtomicBool,
    pub(crate) no_touch: AtomicBool,
    /// It is to be closed.
    pub(crate) killed: AtomicBool,
    /// None as long as it says nothing of itself, as most do.
    names: Mutex<Option<Box<Names>>>,
}

/// What a client says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub name: Box<str>,
    pub user: Box<str>,
    /// The user's number: another user of the same name has another.
    pub user_id: u64,
    pub library: Box<str>,
    pub library_version: Box<str>,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            name: "".into(),
            user: DEFAULT_USER.into(),
            user_id: DEFAULT_ID,
            library: "".into(),
            library_version: "".into(),
        }
    }
}

impl Names {
    fn bytes(&self) -> usize {
        self.name.len() + self.user.len() + self.library.len() + self.library_version.len()
    }
}

impl ClientFacts {
    /// Adds to one of the counts that its worker alone writes.
    #[inline]
    pub(crate) fn raise(count: &AtomicU64, n: u64) {
        count.store(count.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// `flags=` of CLIENT LIST.
    pub(crate) fn flags(&self) -> String {
        let shown = [
            ('O', self.monitors.load(Relaxed)),
            ('P', self.listens()),
            ('x', self.queued.load(Relaxed) > 0),
            ('b', self.waits.load(Relaxed)),
            ('e', self.no_evict.load(Relaxed)),
            ('T', self.no_touch.load(Relaxed)),
        ];
        let flags: String = shown.into_iter().filter(|(_, holds)| *holds).map(|(letter, _)| letter).collect();
        if flags.is_empty() { "N".into() } else { flags }
    }

    /// It is to be closed as users were changed, which is counted. False: it was to be closed already.
    pub(crate) fn turn_out(&self, log: &Log) -> bool {
        let is_first = !self.killed.swap(true, Relaxed);
        if is_first {
            log.count_closed();
        }
        is_first
    }

    /// It listens to something.
    pub(crate) fn listens(&self) -> bool {
        self.listens.iter().any(|count| count.load(Relaxed) > 0)
    }

    /// What it says of itself.
    pub(crate) fn names(&self) -> Names {
        self.said().as_deref().cloned().unwrap_or_default()
    }

    /// Its user's number.
    pub(crate) fn user_id(&self) -> u64 {
        self.said().as_deref().map_or(DEFAULT_ID, |names| names.user_id)
    }

    /// One of the things that it says of itself is this.
    pub(crate) fn says(&self, text: &[u8], which: impl FnOnce(&Names) -> &str) -> bool {
        match self.said().as_deref() {
            Some(names) => which(names).as_bytes() == text,
            None => which(&Names::default()).as_bytes() == text,
        }
    }

    /// It says something else of itself; the bytes of all that it says.
    fn rename(&self, change: impl FnOnce(&mut Names)) -> usize {
        let mut said = self.said();
        let names = said.get_or_insert_default();
        change(names);
        names.bytes()
    }

    fn said(&self) -> MutexGuard<'_, Option<Box<Names>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clients that [`Clients::next`] gives at a time.
const CLIENTS_AT_ONCE: usize = 16;

/// Which comes next of all clients, from one step of a command to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// Those with greater numbers …
    after: u64,
    /// … than the one, up to the other.
    last: u64,
}

/// All clients that speak RESP. Entered when one says its first word, left when it ends: the data
/// path does not come here.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    last_id: AtomicU64,
    /// By number, ascending.
    all: Mutex<Vec<Arc<ClientFacts>>>,
}

impl Clients {
    fn enter(&self, facts: impl FnOnce(u64) -> ClientFacts) -> Arc<ClientFacts> {
        let mut all = self.all();
        let facts = Arc::new(facts(self.last_id.fetch_add(1, Relaxed) + 1));
        all.push(Arc::clone(&facts));
        facts
    }

    pub fn leave(&self, id: u64) {
        let mut all = self.all();
        if let Ok(at) = all.binary_search_by_key(&id, |facts| facts.id) {
            all.remove(at);
        }
    }

    /// All of them, as of now. One that is to be closed is gone for everyone else, although its worker may
    /// not have looked yet.
    pub fn list(&self) -> Vec<Arc<ClientFacts>> {
        self.all().iter().filter(|facts| !facts.killed.load(Relaxed)).cloned().collect()
    }

    /// A place before all that are there now.
    pub fn cursor(&self) -> Cursor {
        Cursor { after: 0, last: self.last_id.load(Relaxed) }
    }

    /// The next of those that were there when `cursor` was made and still are, some of them; none at the end.
    pub fn next(&self, cursor: &mut Cursor) -> SmallVec<[Arc<ClientFacts>; CLIENTS_AT_ONCE]> {
        let all = self.all();
        let from = all.partition_point(|facts| facts.id <= cursor.after);
        let rest = all[from..].iter().take_while(|facts| facts.id <= cursor.last);
        let next: SmallVec<_> =
            rest.filter(|facts| !facts.killed.load(Relaxed)).take(CLIENTS_AT_ONCE).cloned().collect();
        cursor.after = next.last().map_or(cursor.last, |facts: &Arc<ClientFacts>| facts.id);
        next
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<ClientFacts>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
