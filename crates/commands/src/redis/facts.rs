//! What others may see of a client; and all clients.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_store::Millis;
use smallvec::SmallVec;

use crate::core::access::{DEFAULT_ID, DEFAULT_USER};
use crate::core::acl::log::Log;
use crate::core::calls::RowId;
use crate::core::context::Context;

/// What a connection holds of the memory while nothing is on its way.
const CLIENT_BYTES: u64 = 1 << 10;

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
    /// Bytes of its requests, and of its replies and messages; and its commands. Written by its worker alone.
    pub(crate) received_bytes: AtomicU64,
    pub(crate) replied_bytes: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) no_evict: AtomicBool,
    pub(crate) no_touch: AtomicBool,
    /// It is to be closed.
    pub(crate) killed: AtomicBool,
    /// What the command of a row is called.
    command_name: CommandName,
    /// None as long as it says nothing of itself, as most do.
    names: Mutex<Option<Box<Names>>>,
}

/// The name of the command of a row, as the table has it.
pub(crate) type CommandName = fn(RowId) -> &'static str;

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
    /// What is known of a client that has just begun to speak.
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

    /// Its line of CLIENT LIST, which ACL LOG shows of it, too.
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
            // Redis shows nothing of it: lines of plain connections are as there.
            if self.speaks_tls { " tls=yes" } else { "" },
        )
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
#[derive(Debug)]
pub(crate) struct Clients {
    last_id: AtomicU64,
    command_name: CommandName,
    /// All of them by number, ascending.
    all: Mutex<Vec<Arc<ClientFacts>>>,
}

impl Clients {
    /// None yet.
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
