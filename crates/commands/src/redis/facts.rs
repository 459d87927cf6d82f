//! What others may know of a client; and the list of all clients.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_store::Millis;
use smallvec::SmallVec;

use crate::core::access::{DEFAULT_ID, DEFAULT_USER};
use crate::core::acl::log::Log;
use crate::core::calls::RowId;
use crate::core::context::Context;

/// Memory of an idle connection.
const CLIENT_BYTES: u64 = 1 << 10;

/// What others may know of a client.
#[derive(Debug)]
pub(crate) struct ClientFacts {
    /// Its number, which is never used again.
    pub(crate) id: u64,
    /// Its place in the server.
    pub(crate) place: u64,
    pub(crate) address: Box<str>,
    pub(crate) listen_address: Arc<str>,
    /// Whether its connection is TLS.
    pub(crate) speaks_tls: bool,
    /// When it connected.
    pub(crate) since: Millis,
    /// When it last sent something.
    pub(crate) active: AtomicU64,
    /// The row of its last command.
    pub(crate) row: AtomicU32,
    pub(crate) db: AtomicU32,
    pub(crate) resp3: AtomicBool,
    /// One more than the commands that it has queued; 0 outside MULTI.
    pub(crate) queued: AtomicU32,
    /// Bytes of the queue.
    pub(crate) queue_bytes: AtomicU64,
    /// How many keys it watches.
    pub(crate) watched: AtomicU32,
    /// How many channels, patterns and sharded channels it is subscribed to.
    pub(crate) listens: [AtomicU32; 3],
    /// Whether it is a monitor.
    pub(crate) monitors: AtomicBool,
    /// Whether its command waits: for the end of a pause, for something to be there, or because of wrong passwords.
    pub(crate) waits: AtomicBool,
    /// Bytes of its incomplete request.
    pub(crate) query_bytes: AtomicU64,
    /// Bytes of replies that it has not taken.
    pub(crate) output_bytes: AtomicU64,
    /// Bytes of its requests, bytes of its replies and messages, and its commands. Only its worker writes them.
    pub(crate) received_bytes: AtomicU64,
    pub(crate) replied_bytes: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) no_evict: AtomicBool,
    pub(crate) no_touch: AtomicBool,
    /// Whether it is to be closed.
    pub(crate) killed: AtomicBool,
    /// Names a row's command.
    command_name: CommandName,
    /// `None` until it gives any name, as few clients do.
    names: Mutex<Option<Box<Names>>>,
}

/// Returns the name of a row's command, from the table.
pub(crate) type CommandName = fn(RowId) -> &'static str;

/// The names that a client gives.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub name: Box<str>,
    pub user: Box<str>,
    /// The user's number: a new user of the same name has another.
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
    /// Makes the facts of a client that has just begun to speak.
    fn new(id: u64, cx: &Context<'_, '_>, command_name: CommandName) -> ClientFacts {
        ClientFacts {
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
            command_name,
            names: Mutex::default(),
        }
    }

    /// Adds to a count that only its worker writes.
    #[inline]
    pub(crate) fn raise(count: &AtomicU64, n: u64) {
        count.store(count.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The value of `flags=` in CLIENT LIST.
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

    /// Its line in CLIENT LIST, which ACL LOG shows, too.
    pub(crate) fn line(&self, now: Millis) -> String {
        let (command, names) = ((self.command_name)(self.row.load(Relaxed)), self.names());
        let flags = self.flags();
        let [channels, patterns, shards] = [0, 1, 2].map(|kind: usize| self.listens[kind].load(Relaxed));
        let (query, output) = (self.query_bytes.load(Relaxed), self.output_bytes.load(Relaxed));
        let queue = self.queue_bytes.load(Relaxed);
        format!(
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={channels} psub={patterns} ssub={shards} multi={} watch={} qbuf={query} qbuf-free=0 argv-mem=0 multi-mem={queue} rbs=0 rbp=0 obl={output} oll=0 omem={output} tot-mem={} events={} cmd={command} user={} redir=-1 resp={} lib-name={} lib-ver={} tot-net-in={} tot-net-out={} tot-cmds={}{}",
            self.id,
            self.address,
            self.listen_address,
            self.place & 0xffff_ffff,
            names.name,
            now.saturating_sub(self.since) / 1000,
            now.saturating_sub(self.active.load(Relaxed)) / 1000,
            self.db.load(Relaxed),
            i64::from(self.queued.load(Relaxed)) - 1,
            self.watched.load(Relaxed),
            CLIENT_BYTES + query + output + queue,
            if output > 0 { "rw" } else { "r" },
            names.user,
            if self.resp3.load(Relaxed) { 3 } else { 2 },
            names.library,
            names.library_version,
            self.received_bytes.load(Relaxed),
            self.replied_bytes.load(Relaxed),
            self.commands.load(Relaxed),
            // Redis shows nothing for TLS: lines of plain connections are as in Redis.
            if self.speaks_tls { " tls=yes" } else { "" },
        )
    }

    /// Marks it to be closed after a change of users, which is counted. False if it was marked already.
    pub(crate) fn turn_out(&self, log: &Log) -> bool {
        let is_first = !self.killed.swap(true, Relaxed);
        if is_first {
            log.count_closed();
        }
        is_first
    }

    /// Whether it is subscribed to anything.
    pub(crate) fn listens(&self) -> bool {
        self.listens.iter().any(|count| count.load(Relaxed) > 0)
    }

    /// The names that it gives.
    pub(crate) fn names(&self) -> Names {
        self.said().as_deref().cloned().unwrap_or_default()
    }

    /// Its user's number.
    pub(crate) fn user_id(&self) -> u64 {
        self.said().as_deref().map_or(DEFAULT_ID, |names| names.user_id)
    }

    /// Whether one of its names is this text.
    pub(crate) fn says(&self, text: &[u8], which: impl FnOnce(&Names) -> &str) -> bool {
        match self.said().as_deref() {
            Some(names) => which(names).as_bytes() == text,
            None => which(&Names::default()).as_bytes() == text,
        }
    }

    /// Changes its names; returns the bytes of all of them.
    pub(crate) fn rename(&self, change: impl FnOnce(&mut Names)) -> usize {
        let mut said = self.said();
        let names = said.get_or_insert_default();
        change(names);
        names.bytes()
    }

    fn said(&self) -> MutexGuard<'_, Option<Box<Names>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clients that [`Clients::next`] returns at a time.
const CLIENTS_AT_ONCE: usize = 16;

/// A place in the list of all clients, kept from one step of a command to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The clients that are to come have greater numbers than this.
    after: u64,
    /// Their greatest number at most.
    last: u64,
}

/// All clients that speak RESP. A client enters with its first request and leaves when it ends: the data path does not come here.
#[derive(Debug)]
pub(crate) struct Clients {
    last_id: AtomicU64,
    command_name: CommandName,
    /// The clients by number, ascending.
    all: Mutex<Vec<Arc<ClientFacts>>>,
}

impl Clients {
    /// Makes an empty list.
    pub fn new(command_name: CommandName) -> Clients {
        Clients { last_id: AtomicU64::new(0), command_name, all: Mutex::default() }
    }

    pub fn enter(&self, cx: &Context<'_, '_>) -> Arc<ClientFacts> {
        let mut all = self.all();
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let facts = Arc::new(ClientFacts::new(id, cx, self.command_name));
        all.push(Arc::clone(&facts));
        facts
    }

    pub fn leave(&self, id: u64) {
        let mut all = self.all();
        if let Ok(at) = all.binary_search_by_key(&id, |facts| facts.id) {
            all.remove(at);
        }
    }

    /// All clients now, but for those that are to be closed: other clients do not see these, although their workers may not have
    /// closed them yet.
    pub fn list(&self) -> Vec<Arc<ClientFacts>> {
        self.all().iter().filter(|facts| !facts.killed.load(Relaxed)).cloned().collect()
    }

    /// A cursor in front of all clients that are there now.
    pub fn cursor(&self) -> Cursor {
        Cursor { after: 0, last: self.last_id.load(Relaxed) }
    }

    /// The next clients of those that were there when `cursor` was made and still are; none at the end.
    pub fn next(&self, cursor: &mut Cursor) -> SmallVec<[Arc<ClientFacts>; CLIENTS_AT_ONCE]> {
        let all = self.all();
        let from = all.partition_point(|facts| facts.id <= cursor.after);
        let rest = all[from..].iter().take_while(|facts| facts.id <= cursor.last);
        let next: SmallVec<_> =
            rest.filter(|facts| !facts.killed.load(Relaxed)).take(CLIENTS_AT_ONCE).cloned().collect();
        cursor.after = next.last().map_or(cursor.last, |facts: &Arc<ClientFacts>| facts.id);
        next
    }

    /// How many clients there are.
    pub fn count(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<ClientFacts>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
