//! The scripts that all workers know, by the digests of their texts.
//!
//! They are charged to the memory limit, and take 1/64 of it at most. A script of SCRIPT LOAD stays; of the others the oldest is
//! forgotten first.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use larder_protocol::resp::split;
use larder_script::Running;
use larder_store::Store;

use super::bounded;
use crate::redis::fail::{Fail, shown};

/// All scripts together take at most one part in so many of the memory limit.
const SHARE: u64 = 64;
/// Bytes of a script besides its text: its digest twice, and its place.
const SCRIPT_BYTES: usize = 256;
/// After so many runs that wrote and whose keys were all declared, a script holds its declared keys alone.
const RUNS: u32 = 64;
/// A run has named undeclared keys.
const UNDECLARED: u32 = u32::MAX;

/// A script's digest in hexadecimal digits, in lower case.
pub(crate) type Id = [u8; 40];

/// Parses a digest.
pub(crate) fn id_of(word: &[u8]) -> Option<Id> {
    let mut id: Id = word.try_into().ok()?;
    id.make_ascii_lowercase();
    Some(id)
}

/// A script.
#[derive(Debug)]
pub(crate) struct Script {
    pub id: Id,
    pub body: Box<[u8]>,
    /// Bytes of its first line, if that is a shebang.
    head: usize,
    pub nature: Arc<Nature>,
    /// SCRIPT LOAD loaded it.
    loaded: AtomicBool,
    /// It was forgotten.
    gone: AtomicBool,
}

/// What is known of how a script or a function behaves.
#[derive(Debug, Default)]
pub(crate) struct Nature {
    /// What errors call it: its digest, or its name.
    pub name: Box<str>,
    /// Whether it is a function of a library.
    pub is_function: bool,
    /// Whether it has a shebang, or is a function.
    pub says: bool,
    /// The flag `no-writes`.
    pub no_writes: bool,
    /// The flag `allow-oom`.
    pub allow_oom: bool,
    /// Whether it is a function that may keep something in variables of its library. If a run of it is begun anew, it finds what
    /// it left there itself.
    pub keeps: bool,
    /// Runs that wrote and named only declared keys; or [`UNDECLARED`].
    runs: AtomicU32,
    /// Runs of a function that keeps something that wrote nothing and named only declared keys; or [`UNDECLARED`].
    reads: AtomicU32,
}

impl Nature {
    /// The nature of a function.
    pub fn of_function(name: &str) -> Nature {
        Nature { name: name.into(), is_function: true, says: true, ..Nature::default() }
    }

    /// The nature of a run that only prepares for a script.
    pub fn of_collection(name: Box<str>) -> Nature {
        Nature { name, ..Nature::default() }
    }

    /// Sets a flag; false if there is no such flag.
    pub fn take_flag(&mut self, flag: &[u8]) -> bool {
        match flag {
            b"no-writes" => self.no_writes = true,
            b"allow-oom" => self.allow_oom = true,
            b"allow-stale" | b"no-cluster" | b"allow-cross-slot-keys" => {}
            _ => return false,
        }
        true
    }

    /// Whether it may not begin while a full store refuses writes: it declares its flags, and neither `allow-oom` nor
    /// `no-writes`. A script without flags is refused at its first write that may need memory.
    pub fn needs_memory(&self) -> bool {
        self.says && !self.allow_oom && !self.no_writes
    }

    /// Whether all its runs named only declared keys, and enough of them wrote.
    pub fn is_trusted(&self) -> bool {
        self.runs.load(Relaxed) == RUNS
    }

    /// Whether a run has the store to itself from its first command on, so that it is never begun anew: it would keep things
    /// twice.
    pub fn begins_whole(&self) -> bool {
        self.keeps && !self.is_trusted() && self.reads.load(Relaxed) != RUNS
    }

    /// Notes a run that wrote with the store to itself. `undeclared`: it named undeclared keys.
    pub fn note_run(&self, undeclared: bool) {
        note(&self.runs, undeclared);
    }

    /// Notes a run that wrote nothing with the store to itself. `undeclared`: it named undeclared keys.
    pub fn note_read(&self, undeclared: bool) {
        note(&self.reads, undeclared);
    }

    /// Notes that a run that held only its declared keys named others, or was about to write for the first time.
    pub fn note_more(&self, undeclared: bool) {
        note(&self.reads, true);
        if undeclared {
            note(&self.runs, true);
        }
    }
}

/// Counts a run that named only declared keys, up to [`RUNS`], or notes that one did not.
fn note(count: &AtomicU32, undeclared: bool) {
    let _ = count.fetch_update(Relaxed, Relaxed, |runs| match (runs, undeclared) {
        (_, true) => Some(UNDECLARED),
        (runs, false) => (runs < RUNS).then(|| runs + 1),
    });
}

impl Script {
    /// Makes a script of this text, with the flags of its first line.
    ///
    /// # Errors
    /// The first line is no valid shebang.
    pub fn read(id: Id, body: &[u8]) -> Result<Script, Fail> {
        bounded(body)?;
        let name = std::str::from_utf8(&id).unwrap_or_default();
        let mut nature = Nature { name: name.into(), ..Nature::default() };
        let head = read_head(&mut nature, body)?;
        let (loaded, gone) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Script { id, body: body.into(), head, nature: Arc::new(nature), loaded, gone })
    }

    /// The text that is compiled. It begins at the end of the first line, so that lines keep their numbers.
    pub fn code(&self) -> &[u8] {
        &self.body[self.head..]
    }

    /// Whether the script was forgotten.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    fn bytes(&self) -> u64 {
        (self.body.len() + SCRIPT_BYTES) as u64
    }
}

/// The flags that a script's first line gives, if that is valid.
pub(crate) fn said(body: &[u8]) -> Option<Nature> {
    bounded(body).ok()?;
    let mut nature = Nature::default();
    read_head(&mut nature, body).is_ok().then_some(nature)
}

/// Reads a script's first line, if it is a shebang, and returns its length; 0 without one.
fn read_head(nature: &mut Nature, body: &[u8]) -> Result<usize, Fail> {
    const INVALID: Fail = Fail::of("ERR Invalid engine in script shebang");
    if !body.starts_with(b"#!") {
        return Ok(0);
    }
    nature.says = true;
    let head = memchr::memchr(b'\n', body).ok_or(Fail::of("ERR Invalid script shebang"))?;
    let line = &body[..head];
    let words = split(line).ok_or(INVALID)?;
    let mut words = words.args();
    let engine = words.next().ok_or(INVALID)?;
    if engine != b"#!lua" {
        let engine = shown(engine, 64);
        return Err(Fail::with(format!("ERR Unexpected engine in script shebang: {engine}")));
    }
    for word in words {
        let Some(flags) = word.strip_prefix(b"flags=") else {
            let word = shown(word, 64);
            return Err(Fail::with(format!("ERR Unknown lua shebang option: {word}")));
        };
        for flag in flags.split(|byte| *byte == b',').filter(|_| !flags.is_empty()) {
            if !nature.take_flag(flag) {
                let flag = shown(flag, 64);
                return Err(Fail::with(format!("ERR Unexpected flag in script shebang: {flag}")));
            }
        }
    }
    Ok(head)
}

/// The known scripts, and those at work.
#[derive(Debug)]
pub(crate) struct Scripts {
    known: Mutex<Known>,
    running: Mutex<Vec<Weak<Running>>>,
    /// `busy-reply-threshold`
    limit_ms: AtomicI64,
    /// How often scripts or libraries were forgotten.
    flushes: AtomicU32,
}

#[derive(Debug, Default)]
struct Known {
    all: HashMap<Id, Arc<Script>>,
    /// Scripts of EVAL, the oldest first, and some that are forgotten.
    evals: VecDeque<Id>,
    bytes: u64,
}

impl Default for Scripts {
    fn default() -> Scripts {
        let (known, running, limit_ms) = (Mutex::default(), Mutex::default(), AtomicI64::new(5000));
        Scripts { known, running, limit_ms, flushes: AtomicU32::new(0) }
    }
}

impl Scripts {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the script of this digest.
    pub fn find(&self, id: &Id) -> Option<Arc<Script>> {
        self.known().all.get(id).cloned()
    }

    /// How many scripts there are, and their bytes.
    pub fn size(&self) -> (usize, u64) {
        let known = self.known();
        (known.all.len(), known.bytes)
    }

    /// Makes a script known. `loaded`: it is SCRIPT LOAD's, and stays until all are forgotten.
    ///
    /// # Errors
    /// Scripts that stay leave no room for it.
    pub fn add(&self, store: &Store, script: Script, loaded: bool) -> Result<Arc<Script>, Fail> {
        let most = store.memory_bytes() / SHARE;
        let mut known = self.known();
        if let Some(there) = known.all.get(&script.id) {
            if loaded {
                there.loaded.store(true, Relaxed);
            }
            return Ok(Arc::clone(there));
        }
        while known.bytes + script.bytes() > most {
            if !known.forget_oldest(store) {
                return Err(Fail::of("OOM scripts take as much memory as they may"));
            }
        }
        script.loaded.store(loaded, Relaxed);
        let script = Arc::new(script);
        if !loaded {
            known.evals.push_back(script.id);
        }
        known.bytes += script.bytes();
        store.set_aside(script.bytes() as i64);
        known.all.insert(script.id, Arc::clone(&script));
        Ok(script)
    }

    /// Forgets all scripts.
    pub fn flush(&self, store: &Store) {
        let mut known = self.known();
        for script in known.all.values() {
            script.gone.store(true, Relaxed);
        }
        store.set_aside(-(known.bytes as i64));
        *known = Known::default();
    }

    /// How often scripts or libraries were forgotten.
    pub fn flushes(&self) -> u32 {
        self.flushes.load(Relaxed)
    }

    /// Counts that they were forgotten again; returns the new count.
    pub fn note_flush(&self) -> u32 {
        self.flushes.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Notes a new state, in which scripts will run.
    pub fn enter(&self, running: &Arc<Running>) {
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|running| running.strong_count() > 0);
        all.push(Arc::downgrade(running));
    }

    /// Calls `visit` with the running script of each state.
    pub fn each_running(&self, mut visit: impl FnMut(&Running)) {
        let all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).for_each(|running| visit(&running));
    }

    /// How long a script may run; `None`: for ever.
    pub fn limit(&self) -> Option<Duration> {
        u64::try_from(self.limit_ms.load(Relaxed)).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// Sets that limit in milliseconds; 0 or less: none.
    pub fn set_limit(&self, ms: i64) {
        self.limit_ms.store(ms, Relaxed);
    }
}

impl Known {
    /// Forgets the oldest script of EVAL; false if there is none.
    fn forget_oldest(&mut self, store: &Store) -> bool {
        while let Some(id) = self.evals.pop_front() {
            if self.all.get(&id).is_some_and(|script| !script.loaded.load(Relaxed))
                && let Some(script) = self.all.remove(&id)
            {
                script.gone.store(true, Relaxed);
                self.bytes -= script.bytes();
                store.set_aside(-(script.bytes() as i64));
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::lua::TEXT_BYTES_MAX;
    use larder_store::Config;

    fn script(text: &str) -> Script {
        let id = id_of(larder_script::sha1_hex(text.as_bytes()).as_bytes()).unwrap();
        Script::read(id, text.as_bytes()).unwrap()
    }

    #[test]
    fn the_oldest_scripts_go_and_loaded_ones_stay() {
        let store = Store::new(Config { memory_bytes: 8 << 20, ..Config::default() }).unwrap();
        let before = store.heap_bytes();
        let scripts = Scripts::default();
        let text = |n: usize| format!("return {n} -- {}", "x".repeat(10_000));
        let loaded = scripts.add(&store, script(&text(0)), true).unwrap();
        let first = scripts.add(&store, script(&text(1)), false).unwrap();
        for n in 2..100 {
            scripts.add(&store, script(&text(n)), false).unwrap();
            assert!(scripts.size().1 <= (8 << 20) / SHARE);
        }
        assert!(first.is_gone() && scripts.find(&first.id).is_none());
        assert!(!loaded.is_gone() && scripts.find(&loaded.id).is_some());
        for n in 100..120 {
            if scripts.add(&store, script(&text(n)), true).is_err() {
                break;
            }
            assert!(n < 115, "loaded ones are bounded, too");
        }
        scripts.flush(&store);
        assert!(loaded.is_gone());
        assert_eq!((scripts.size(), store.heap_bytes()), ((0, 0), before));
    }

    #[test]
    fn first_lines_are_read() {
        let script = script("#!lua flags=no-writes,allow-oom\nreturn 1");
        assert!(script.nature.no_writes && script.nature.allow_oom);
        assert_eq!(script.code(), b"\nreturn 1");
        // Words as a shell has them, of which one may be empty behind its sign.
        for text in
            ["#!lua\r\n", "#!lua flags=\n", "#!lua \"flags=no-writes\" \n", "#!lua\tflags=no-writes\n"]
        {
            let read = Script::read([b'0'; 40], text.as_bytes()).unwrap();
            assert_eq!(read.nature.no_writes, text.contains("no-writes"), "{text}");
        }
        assert!(Script::read([b'0'; 40], b"#!lua \"flags\n").is_err());
        assert!(Script::read([b'0'; 40], &vec![b' '; TEXT_BYTES_MAX]).is_ok());
        assert!(Script::read([b'0'; 40], &vec![b' '; TEXT_BYTES_MAX + 1]).is_err());
        for text in ["#!lua", "#!perl\n", "#!lua x=1\n", "#!lua flags=x\n"] {
            assert!(Script::read([b'0'; 40], text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_script_is_trusted_behind_runs_that_named_their_keys() {
        let nature = &script("return 1").nature;
        for _ in 0..RUNS {
            assert!(!nature.is_trusted());
            nature.note_run(false);
        }
        assert!(nature.is_trusted());
        nature.note_run(true);
        nature.note_run(false);
        assert!(!nature.is_trusted());
    }

    #[test]
    fn a_function_that_keeps_something_has_the_store_to_itself_until_it_is_known() {
        let function = || Nature { keeps: true, ..Nature::of_function("f") };
        assert!(!Nature::of_function("f").begins_whole());
        // One that writes, and then names another key.
        let nature = function();
        for _ in 0..RUNS {
            assert!(nature.begins_whole());
            nature.note_run(false);
        }
        assert!(!nature.begins_whole());
        nature.note_more(true);
        for _ in 0..2 * RUNS {
            nature.note_run(false);
            nature.note_read(false);
            assert!(nature.begins_whole());
        }
        // One that reads, and then writes.
        let nature = function();
        for _ in 0..RUNS {
            assert!(nature.begins_whole());
            nature.note_read(false);
        }
        assert!(!nature.begins_whole() && !nature.is_trusted());
        nature.note_more(false);
        for _ in 0..RUNS {
            assert!(nature.begins_whole());
            nature.note_read(false);
            nature.note_run(false);
        }
        assert!(!nature.begins_whole());
    }
}
