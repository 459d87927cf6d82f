//! The Lua state of one worker. It is made at the worker's first script, and collected when it has taken much of its bound.
//!
//! The memory of a state is bounded ([`Engine::new`]) and charged to an account at each look: every 0.1 ms, and with every
//! command. Between two looks a state may grow by what a script makes in that time, up to its bound.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_protocol::resp::{Args, format_double};
use mlua::prelude::{
    Lua, LuaError, LuaFunction, LuaHookTriggers, LuaMultiValue, LuaOptions, LuaResult, LuaStdLib, LuaString,
    LuaTable, LuaValue, LuaVmState,
};
use rustix::time::{ClockId, clock_gettime};
use sha1::{Digest, Sha1};

use crate::answer::{self, CHUNK, LIBRARY_CHUNK, NO_MEMORY, table_of, text_of};
use crate::collector::Collector;
use crate::random::Random;
use crate::reply::{Budget, Reader, Unwritten, Writer, Written, least_bytes};
use crate::running::{Account, Caller, Level, Running, Sink, Stop, Tick};
use crate::strand::{Resume, Said, Strand, TICK};
use crate::{sandbox, variables};

/// Instructions between two looks at the clock: one may take a millisecond, where it joins long strings.
const INSTRUCTIONS: u32 = 200;
/// Time between two looks at a script. Functions that take long look at the clock themselves.
const LOOK: Duration = Duration::from_micros(100);
/// How often in a row a script may be too deep in calls to be looked at.
const MISSED_MAX: u32 = 10;
/// The error for a value that is no word of a command.
const NO_WORD: &str = "ERR Lua redis lib command arguments must be strings or integers";
/// The error of a script that is too deep in calls for too long.
const TOO_DEEP: &[u8] = b"ERR Script ended: calls in calls as deep as may be, for too long";
/// What a state takes is charged in steps of this many bytes.
const TOLD_BYTES: i64 = 64 << 10;
/// Room for the words of a command that is kept from one command to the next.
const WORDS_BYTES: usize = 64 << 10;
/// Most bytes of a text that is compiled in one step, which takes some milliseconds at most.
pub(crate) const WHOLE_BYTES_MAX: usize = 8 << 10;
/// First byte of compiled code, which is never loaded.
const BYTECODE: u8 = 27;
/// Name in the registry of the function that collects the state.
pub(crate) const COLLECT: &str = "collect";
/// Values that Rust may hold without the state growing for it.
const REFERENCES: usize = 1024;

/// Kinds of questions, as `sandbox.lua` numbers them.
const CALL: i64 = 1;
const PCALL: i64 = 2;
const MAY: i64 = 3;
const RESP: i64 = 4;
const LOG: i64 = 5;
/// Asks for the reply that waits for room.
const TAKE: i64 = 6;
/// Asks for `KEYS` and `ARGV`, which waited for room.
const WORDS: i64 = 7;
/// Added to a kind whose values come as their count and a table of them.
const MANY: i64 = 10;

/// True and an answer; or false and an error to raise, or nil: the script ends, or true: the state is collected, and then the
/// reply is taken.
type Answer = (bool, LuaValue);

/// What the functions of a state share.
pub(crate) struct Shared {
    pub running: Arc<Running>,
    pub random: RefCell<Random>,
    /// When `os.clock` was 0.
    pub start: Instant,
    /// A function that does nothing and makes nothing.
    idle: LuaFunction,
    /// A script without a statement.
    nothing: LuaFunction,
    /// Lua's own `next`, which scripts do not reach.
    next: LuaFunction,
    /// The error of a script whose calls are too deep for one more.
    pub overflow: LuaString,
    account: Box<dyn Account>,
    told_bytes: Cell<i64>,
    /// When the state is collected.
    pub collector: Collector,
    /// Bytes of a reply that waits for a collection.
    parked_bytes: Cell<usize>,
    /// The text that runs of [`Kind::Text`] and [`Kind::LibraryText`] compile.
    text: RefCell<Vec<u8>>,
    /// Looks in a row for which calls were too deep.
    missed: Cell<u32>,
    /// When the script was last looked at, or went on, plus the time that its requests took since. `worked` is the work before
    /// that which its caller was not told of.
    looked: Cell<Instant>,
    worked: Cell<Duration>,
    pace: Pace,
    /// The reply of the script that ran last, and its memory: `written_bytes` are always kept, and `held_bytes` are charged to
    /// connections until the reply is out of use.
    written: RefCell<Written>,
    written_bytes: Cell<usize>,
    held_bytes: Cell<usize>,
    /// How that reply is written, and whether writing has begun.
    how: Cell<How>,
    replies: Cell<bool>,
    /// The thread's CPU time at the last look, if the script is measured by it: a thread that waits for a core does not work.
    own: Cell<Option<Duration>>,
}

/// The clock that measures the work of scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// The machine's clocks.
    #[default]
    Machine,
    /// Each look at the clock counts as this much time. There is one every so many instructions, and one behind each function in
    /// Rust. So the same scripts always take the same time, as simulations need it.
    Look(Duration),
}

/// How the reply of a script is written.
#[derive(Clone, Copy, Debug, Default)]
struct How {
    /// The client speaks RESP3.
    resp3: bool,
    /// The script has asked for RESP3.
    script_resp3: bool,
    bytes_max: usize,
    /// There was no room for all of it.
    is_full: bool,
}

/// Most memory of the system's allocator that so many bytes of a state take. Lua asks for many small objects, and each has a head
/// and is rounded up: a table of one element is 80 bytes that take 112. Only texts of a few letters take more, up to 48 for 26.
fn with_heads(bytes: usize) -> usize {
    bytes + bytes / 2
}

/// The CPU time of this thread. Costs a system call, some 0.2 µs.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Shared {
    /// Tells the account what the state takes.
    fn charge(&self, lua: &Lua) {
        let beside = self.written_bytes.get() + self.parked_bytes.get() + self.text.borrow().len();
        let used = with_heads(lua.used_memory()) + beside;
        self.running.set_used(used);
        self.tell((used as i64 + TOLD_BYTES - 1) / TOLD_BYTES * TOLD_BYTES);
    }

    fn tell(&self, bytes: i64) {
        let before = self.told_bytes.replace(bytes);
        if bytes != before {
            self.account.aside(bytes - before);
        }
    }

    /// Bytes that may still be made in the state.
    pub fn budget(&self, lua: &Lua) -> Budget {
        Budget(self.running.limit().saturating_sub(lua.used_memory()))
    }

    /// Runs `make`, which makes values within a budget, with the state's own bound off, so that nothing fails halfway.
    ///
    /// Where there is no bound, mlua does not catch what Lua raises. An error jumps to the next frame that catches: over frames
    /// of Rust, and from the worker's stack to the script's, and no stack is valid after that. `make` may also have Lua collect,
    /// which calls finalizers of Rust's values. So a call is tried first where errors are caught: if there is room for it, there
    /// is room for what `make` calls. The bound is off by then, since the value that tells of an error is made where nothing
    /// catches another. A `make` that calls Lua from within has to ask again.
    ///
    /// # Errors
    /// If calls are so deep that there is no room for another.
    pub fn made<R>(&self, lua: &Lua, make: impl FnOnce(Budget) -> R) -> LuaResult<R> {
        let budget = self.budget(lua);
        let limit = lua.set_memory_limit(0).unwrap_or(0);
        let made = self.idle.call::<()>((LuaValue::Nil, LuaValue::Nil)).map(|()| make(budget));
        let _ = lua.set_memory_limit(limit);
        made
    }

    /// The bytes `from` to `to` of the text that is compiled, counted from 1.
    ///
    /// # Errors
    /// If calls are so deep that there is no room for another.
    pub fn piece(&self, lua: &Lua, from: usize, to: usize) -> LuaResult<LuaString> {
        let text = self.text.borrow();
        let to = to.min(text.len());
        let piece = text.get(from.saturating_sub(1)..to).unwrap_or_default();
        self.made(lua, |_| lua.create_string(piece)).and_then(|piece| piece)
    }

    /// Notes that the state was collected.
    pub fn collected(&self, lua: &Lua) {
        self.collector.collected(lua.used_memory(), self.running.limit());
    }

    /// Collects the state if that is due, and looks at the clock: true if the script may go on.
    pub fn looks(&self, lua: &Lua) -> bool {
        (!self.collector.is_due(lua.used_memory()) || self.collect(lua)) && self.look(lua)
    }

    /// Collects the state in steps, with looks between them: true if the script may go on.
    fn collect(&self, lua: &Lua) -> bool {
        let done = self.made(lua, |_| {
            let collect = lua.named_registry_value::<LuaFunction>(COLLECT);
            collect.and_then(|collect| collect.call::<()>(()))
        });
        if done.and_then(|done| done).is_err() {
            // Calls are so deep that there is no room to collect. It is due again as if the state had been collected.
            self.collected(lua);
        }
        !self.running.stops()
    }

    /// Looks at the clock: true if the script may go on.
    pub fn look(&self, lua: &Lua) -> bool {
        if let Pace::Look(each) = self.pace {
            self.worked.set(self.worked.get() + each);
        }
        self.worked.get() + self.since_looked() < LOOK || self.tick(lua)
    }

    /// Writes the reply of a script that has come to this value. A table is written on the script's stack.
    pub fn write(&self, lua: &Lua, value: &LuaValue) {
        self.replies.set(true);
        // Only names of fields are made, and calls are no deeper than where a script begins.
        let _ = lua.set_memory_limit(0);
        let mut written = self.written.take();
        let look = |bytes| {
            self.written_bytes.set(bytes);
            self.look(lua)
        };
        let (how, steps) = (self.how.get(), 0);
        let How { resp3, script_resp3, bytes_max, .. } = how;
        let hold = |bytes| self.hold(bytes);
        let (look, hold): (&dyn Fn(usize) -> bool, &dyn Fn(usize) -> bool) = (&look, &hold);
        let next = &self.next;
        let mut writer =
            Writer { written: &mut written, bytes_max, resp3, script_resp3, look, hold, steps, next };
        let is_full = writer.whole(lua, value) == Err(Unwritten::Full);
        self.how.set(How { is_full, ..how });
        self.written_bytes.set(written.taken_bytes());
        self.written.replace(written);
    }

    /// Drops the reply of the last script.
    fn forget_reply(&self) {
        let mut written = self.written.borrow_mut();
        written.clear();
        self.written_bytes.set(written.taken_bytes());
        self.hold(0);
    }

    /// Charges connections with `bytes` in all for the reply that is written; false if they hold as much as they may.
    fn hold(&self, bytes: usize) -> bool {
        let more = bytes as i64 - self.held_bytes.get() as i64;
        let may = more == 0 || self.account.hold(more);
        if may {
            self.held_bytes.set(bytes);
        }
        may
    }

    /// Time since the last look by the machine's clock, if that measures the script.
    fn since_looked(&self) -> Duration {
        match self.pace {
            Pace::Machine => self.looked.get().elapsed(),
            Pace::Look(_) => Duration::ZERO,
        }
    }

    /// Returns how long the script has worked since the last look, and counts anew.
    fn took_ns(&self) -> u64 {
        let took = self.worked.take() + self.since_looked();
        self.looked.set(Instant::now());
        let took = self.own.get().map_or(took, |before| {
            let own = own_time();
            self.own.set(Some(own));
            took.min(own.saturating_sub(before))
        });
        u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Leaves the script's stack, since the script has worked for a while. True if it may go on, which may be in a later turn.
    fn tick(&self, lua: &Lua) -> bool {
        let told = self.made(lua, |_| {
            let tick = lua.named_registry_value::<LuaFunction>(TICK);
            tick.and_then(|tick| tick.call::<bool>(()))
        });
        let told = told.and_then(|told| told);
        // A script so deep in calls that there is no room for another cannot be looked at. It may not be so for long.
        let missed = if told.is_ok() { 0 } else { self.missed.get() + 1 };
        if missed > 0 {
            self.took_ns();
        }
        self.missed.set(missed);
        if missed > MISSED_MAX {
            self.running.stop();
        }
        told.unwrap_or(missed <= MISSED_MAX)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.tell(0);
        self.hold(0);
        self.running.set_used(0);
    }
}

/// A script that was compiled by an engine, and runs on it.
#[derive(Clone, Debug)]
pub struct Compiled(LuaFunction);

impl Compiled {
    /// True if functions of this library may keep something from one call to the next, in variables of the library.
    pub fn keeps(&self) -> bool {
        variables::keeps(&self.0.dump(true))
    }
}

/// What is compiled and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A script.
    Script = 1,
    /// A function of a library.
    Function = 2,
    /// A library.
    Library = 3,
    /// A text of a script, which is compiled ([`Engine::set_text`]).
    Text = 4,
    /// A text of a library, which is compiled.
    LibraryText = 5,
}

/// True if a text is compiled by a run ([`Engine::set_text`]), not in one step.
pub fn is_long_text(source: &[u8]) -> bool {
    // Compiled code is refused in one step.
    source.len() > WHOLE_BYTES_MAX && source.first() != Some(&BYTECODE)
}

/// A function that a library has registered.
#[derive(Debug)]
pub struct Registered {
    /// Its name: letters, digits and underscores.
    pub name: String,
    /// Its description.
    pub description: Option<Vec<u8>>,
    /// Its flags, such as `no-writes`.
    pub flags: Vec<String>,
    /// It uses variables of the code around it.
    pub has_upvalues: bool,
}

/// The functions of a library, by name, in the state that has loaded it: however many there are, Rust holds one value.
#[derive(Debug)]
pub struct Functions(LuaTable);

impl Functions {
    /// The function of this name, ready to run.
    pub fn get(&self, name: &str) -> Option<Compiled> {
        self.0.raw_get(name).ok().map(Compiled)
    }
}

/// The result of a script, for [`Engine::write`].
#[derive(Debug)]
pub struct Outcome {
    /// Nil if it was a table, whose reply is written already.
    value: LuaValue,
    is_written: bool,
}

/// How a script has ended.
#[derive(Debug)]
pub enum End {
    /// With a value.
    Value(Outcome),
    /// With a table for whose reply there is no room: it would be too long, or connections hold as much as they may.
    TooLarge,
    /// With an error.
    Failed {
        /// The reply without its minus sign.
        text: Vec<u8>,
        /// The error is a command's, which was counted.
        is_counted: bool,
    },
    /// It was ended.
    Stopped {
        /// Why.
        stop: Stop,
        /// Its name and the place in it, as errors tell them: `NAME, on CHUNK:LINE.` Empty if it is begun anew, or told `BUSY`.
        place: String,
    },
    /// The state may not grow any more.
    NoMemory,
}

/// What a run is given.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// `KEYS`
    pub keys: Args<'a>,
    /// `ARGV`
    pub args: Args<'a>,
    /// What is run.
    pub kind: Kind,
    /// Its client speaks RESP3.
    pub resp3: bool,
    /// Most bytes of a reply that is a table.
    pub reply_bytes_max: usize,
    /// The thread's CPU time measures its work from its beginning on, and not only after it was left: time in which the thread
    /// waits for a core does not count. Costs a system call, some 0.2 µs.
    pub is_timed: bool,
}

/// A reply for which there was no room.
struct Parked {
    bytes: Vec<u8>,
    /// An error is raised, and is no value.
    raises: bool,
}

/// A Lua state with all that scripts see, and the stack that they run on.
pub struct Engine {
    /// The stack that scripts run on. It ends before the state is dropped.
    strand: Strand,
    lua: Lua,
    shared: Rc<Shared>,
    /// Why the script at work ends.
    stop: Option<Stop>,
    /// What the script's stack is resumed with next.
    next: Option<Resume>,
    /// The thread's CPU time measures the script: [`Given::is_timed`] says so, or it has been left.
    is_timed: bool,
    /// Room for the words of a command.
    words: Vec<u8>,
    /// A reply that waits for the state to be collected.
    parked: Option<Parked>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("running", &self.shared.running).finish_non_exhaustive()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.running.stop();
        self.strand.end();
        self.shared.running.end();
    }
}

impl Engine {
    /// A state that may ask for `limit_bytes`. `account` is charged with what it takes and what the allocator adds. `pace`
    /// measures the work of its scripts.
    ///
    /// # Errors
    /// If there is no memory for the script's stack. Lua has no errors in a state that has just been made.
    pub fn new(
        limit_bytes: usize,
        running: Arc<Running>,
        account: Box<dyn Account>,
        pace: Pace,
    ) -> Result<Engine, String> {
        let made = || -> LuaResult<Engine> {
            let libraries = LuaStdLib::TABLE | LuaStdLib::STRING | LuaStdLib::MATH;
            let lua = Lua::new_with(libraries, LuaOptions::default())?;
            running.set_limit(limit_bytes);
            let shared = Rc::new(Shared {
                running,
                random: RefCell::default(),
                start: Instant::now(),
                idle: lua.globals().raw_get("rawequal")?,
                nothing: lua.load("").into_function()?,
                next: lua.globals().raw_get("next")?,
                overflow: lua.create_string("stack overflow")?,
                account,
                told_bytes: Cell::new(0),
                collector: Collector::default(),
                parked_bytes: Cell::default(),
                text: RefCell::default(),
                missed: Cell::new(0),
                looked: Cell::new(Instant::now()),
                worked: Cell::default(),
                pace,
                written: RefCell::default(),
                written_bytes: Cell::default(),
                held_bytes: Cell::default(),
                how: Cell::default(),
                replies: Cell::default(),
                own: Cell::default(),
            });
            let run = sandbox::make(&lua, &shared)?;
            let strand = Strand::new(&lua, &run, &shared)?;
            let hook = Rc::clone(&shared);
            let every = LuaHookTriggers::new().every_nth_instruction(INSTRUCTIONS);
            lua.set_global_hook(every, move |lua, _| match hook.looks(lua) {
                true => Ok(LuaVmState::Continue),
                false => Err(answer::error("script ended")),
            })?;
            // The table of values that Rust holds grows now, and not while a script is at its bound.
            let held: Vec<LuaTable> =
                (0..REFERENCES).map(|_| lua.create_table()).collect::<LuaResult<_>>()?;
            drop(held);
            lua.gc_collect()?;
            shared.collected(&lua);
            shared.charge(&lua);
            let (stop, next, words, parked) = (None, None, Vec::new(), None);
            Ok(Engine { strand, lua, shared, stop, next, words, parked, is_timed: false })
        };
        made().map_err(|error| text_of(&error))
    }

    /// Compiles a script, or a library, in one step. If there is no room for it, a collection may make some, as
    /// [`Engine::wants_room`] then says. This step does not collect, which takes the longer the more the state has.
    ///
    /// # Errors
    /// What Lua says of it.
    pub fn compile(&self, source: &[u8], kind: Kind) -> Result<Compiled, String> {
        let source = crate::tail::untailed(source);
        let name = if kind == Kind::Script { CHUNK } else { LIBRARY_CHUNK };
        let _ = self.lua.set_memory_limit(self.shared.running.limit());
        let chunk = self.lua.load(source.as_ref()).set_name(name).set_mode(mlua::chunk::ChunkMode::Text);
        let compiled = chunk.set_environment(self.lua.globals()).into_function();
        let _ = self.lua.set_memory_limit(0);
        if matches!(compiled, Err(LuaError::MemoryError(_))) {
            self.shared.collector.want();
        }
        self.shared.charge(&self.lua);
        compiled.map(Compiled).map_err(|error| text_of(&error))
    }

    /// Sets the text that a run of [`Kind::Text`] or [`Kind::LibraryText`] compiles, until it is forgotten. The script of that
    /// run is [`Engine::nothing`]. It looks between two pieces of the text, so that it can be left, as others can. The text has
    /// to be long ([`is_long_text`]).
    pub fn set_text(&self, source: &[u8]) {
        debug_assert!(is_long_text(source));
        self.shared.text.replace(crate::tail::untailed(source).into_owned());
    }

    /// Drops the text that runs compile.
    pub fn forget_text(&self) {
        drop(self.shared.text.take());
        self.shared.charge(&self.lua);
    }

    /// The code that a run of [`Kind::Text`] or [`Kind::LibraryText`] has compiled.
    pub fn compiled(&self, outcome: Outcome) -> Option<Compiled> {
        match outcome.value {
            LuaValue::Function(function) => Some(Compiled(function)),
            _ => None,
        }
    }

    /// Has the next run collect the state before it does anything.
    pub fn make_room(&mut self) {
        self.shared.collector.want();
    }

    /// No room was found, and the state was not collected since.
    pub fn wants_room(&self) -> bool {
        self.shared.collector.is_wanted()
    }

    /// Between two runs: true if the next one collects the state before it does anything.
    pub fn is_due(&self) -> bool {
        self.shared.collector.begin(self.lua.used_memory())
    }

    /// Between two runs: true if that is so, or the state has taken half of what it may before it is.
    pub fn is_half_due(&self) -> bool {
        self.is_due() || self.shared.collector.is_half_taken(self.lua.used_memory())
    }

    /// Bytes that the state has asked for.
    pub fn used_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// A script without a statement: its run collects the state if that is due, and does nothing else.
    pub fn nothing(&self) -> Compiled {
        Compiled(self.shared.nothing.clone())
    }

    /// Begins a run of a script of this engine. Nothing of it runs before [`Engine::go_on`]. False if a state cannot hold the
    /// words that it is given. If there is no room for them now, or the state is due to be collected, the run collects it first,
    /// and then asks [`Caller::given`].
    pub fn begin(&mut self, script: &Compiled, given: Given<'_>) -> bool {
        if least_bytes(given.keys) + least_bytes(given.args) > self.shared.running.limit() {
            return false;
        }
        let is_due = self.shared.collector.begin(self.lua.used_memory());
        let budget = self.shared.budget(&self.lua);
        let words = if is_due { None } else { self.tables(given.keys, given.args, budget).ok() };
        self.park(None);
        self.shared.running.begin(given.kind == Kind::Function);
        // The work of the run before, and the looks that it missed, are not this one's.
        self.shared.worked.set(Duration::ZERO);
        self.shared.missed.set(0);
        self.shared.forget_reply();
        self.shared.replies.set(false);
        let (resp3, bytes_max) = (given.resp3, given.reply_bytes_max);
        self.shared.how.set(How { resp3, script_resp3: false, bytes_max, is_full: false });
        (self.stop, self.is_timed) = (None, given.is_timed);
        let _ = self.lua.set_memory_limit(self.shared.running.limit());
        let (script, kind) = (script.0.clone(), given.kind as u32);
        self.next = Some(Resume::Run { script, words, kind });
        true
    }

    /// Sets the reply that waits for a collection, if one does.
    fn park(&mut self, parked: Option<Parked>) {
        self.shared.parked_bytes.set(parked.as_ref().map_or(0, |parked| parked.bytes.len()));
        self.parked = parked;
    }

    /// Goes on with the script that was begun, which asks `caller` for what it calls. Returns how it has ended; `None` if its
    /// caller pauses. `name` is the script's name in errors.
    pub fn go_on(&mut self, name: &str, caller: &mut dyn Caller) -> Option<End> {
        let (shared, lua) = (Rc::clone(&self.shared), self.lua.clone());
        let mut told = self.next.take().unwrap_or(Resume::GoOn);
        shared.running.pause(false);
        shared.looked.set(Instant::now());
        // What it had worked when it was left counts, too.
        let is_timed = self.is_timed && shared.pace == Pace::Machine;
        shared.own.set(is_timed.then(|| own_time().saturating_sub(shared.worked.get())));
        // From the next turn on: a short script has none, and pays nothing for it.
        self.is_timed = true;
        let done = loop {
            told = match self.strand.resume(told) {
                Some(Said::Asks(values)) => {
                    let answer = shared.made(&lua, |budget| self.ask(&lua, caller, values, budget));
                    let (done, value) =
                        answer.unwrap_or_else(|_| (false, LuaValue::String(shared.overflow.clone())));
                    let beside = caller.beside();
                    if !beside.is_zero() {
                        shared.looked.set(shared.looked.get() + beside);
                    }
                    let tick = if self.stop.is_none() { caller.answered() } else { Ok(Tick::GoOn) };
                    match tick {
                        Ok(Tick::GoOn) => Resume::Answer(done, value),
                        Ok(Tick::Pause) => {
                            shared.worked.set(shared.worked.get() + shared.since_looked());
                            self.next = Some(Resume::Answer(done, value));
                            shared.running.pause(true);
                            return None;
                        }
                        Err(stop) => {
                            self.ends(stop);
                            Resume::Answer(false, LuaValue::Nil)
                        }
                    }
                }
                Some(Said::Ticks) => {
                    shared.charge(&lua);
                    if shared.replies.get() {
                        caller.replies();
                    }
                    let looked = self.looked(caller, shared.took_ns());
                    shared.looked.set(Instant::now());
                    match looked {
                        Ok(Tick::GoOn) => Resume::GoOn,
                        Ok(Tick::Pause) => {
                            shared.running.pause(true);
                            return None;
                        }
                        Err(stop) => {
                            self.ends(stop);
                            Resume::End
                        }
                    }
                }
                Some(Said::Ended(done)) => break done,
                Some(Said::Ready) | None => break Err(answer::no_memory()),
            }
        };
        let _ = lua.set_memory_limit(0);
        let was_told = shared.running.end();
        self.park(None);
        let failed = |text| End::Failed { text, is_counted: false };
        let end = match (self.stop, done) {
            (Some(stop), done) => {
                let stop = if stop == Stop::Again && was_told { Stop::Killed } else { stop };
                let place = match (stop, &done) {
                    (Stop::Again | Stop::Busy, _) => String::new(),
                    (_, Ok((false, LuaValue::Table(told)))) => answer::place(Some(told), name),
                    _ => answer::place(None, name),
                };
                End::Stopped { stop, place }
            }
            (None, _) if shared.running.stops() => failed(TOO_DEEP.to_vec()),
            (None, Ok((true, _))) if shared.how.get().is_full => End::TooLarge,
            // A client was told that the script ends: what was compiled is not to run.
            (None, Ok((true, LuaValue::Function(_)))) if was_told => {
                End::Stopped { stop: Stop::Killed, place: answer::place(None, name) }
            }
            (None, Ok((true, value))) => End::Value(Outcome { value, is_written: shared.replies.get() }),
            (None, Ok((false, LuaValue::Table(told)))) => match answer::reply(&told, name) {
                Ok((text, is_counted)) => End::Failed { text, is_counted },
                Err(_) => End::NoMemory,
            },
            (None, Ok((false, LuaValue::String(text)))) if text != NO_MEMORY => {
                failed([b"ERR ", &*text.as_bytes()].concat())
            }
            (None, Err(LuaError::RuntimeError(text))) => failed(format!("ERR {text}").into_bytes()),
            // A script that lacks memory might be begun anew, but not if a client was told that it ends.
            (None, _) if was_told => End::Stopped { stop: Stop::Killed, place: answer::place(None, name) },
            (None, _) => End::NoMemory,
        };
        if !matches!(end, End::Value(_)) {
            shared.forget_reply();
        }
        shared.charge(&lua);
        Some(end)
    }

    /// Ends the script that was begun and has not ended, as a kill does, and drops its result. What libraries have in their
    /// variables stays. False if the script does not end: the state is of no more use then.
    pub fn abandon(&mut self) -> bool {
        self.shared.running.stop();
        // What has not run yet has nothing to end.
        let has_begun = !matches!(self.next.take(), Some(Resume::Run { .. })) && self.shared.running.works();
        let has_ended = !has_begun || self.strand.leave();
        let _ = self.lua.set_memory_limit(0);
        self.shared.running.end();
        self.park(None);
        self.shared.forget_reply();
        self.forget_text();
        has_ended
    }

    /// Asks whether the script may go on.
    fn looked(&self, caller: &mut dyn Caller, took_ns: u64) -> Result<Tick, Stop> {
        if let Some(stop) = self.stop {
            return Err(stop);
        }
        self.shared.running.look()?;
        caller.tick(took_ns)
    }

    /// Makes `KEYS` and `ARGV`.
    fn tables(&self, keys: Args<'_>, args: Args<'_>, budget: Budget) -> LuaResult<(LuaTable, LuaTable)> {
        let mut left = budget;
        Ok((left.words(&self.lua, keys)?, left.words(&self.lua, args)?))
    }

    /// Writes the result of the script that ended last; false if there is no room for all of it.
    pub fn write(&self, outcome: Outcome, sink: &mut dyn Sink) -> bool {
        let done = match outcome.value {
            // A string may be long, but none of it is looked at.
            LuaValue::String(text) => sink.put_bulk(&text.as_bytes()),
            value => {
                if !outcome.is_written {
                    self.shared.write(&self.lua, &value);
                }
                let written = self.shared.written.borrow();
                written.failed.iter().for_each(|(text, is_counted)| sink.failed(text, *is_counted));
                // From here on it counts as output, though both are there while it is copied.
                self.shared.hold(0);
                !self.shared.how.get().is_full && sink.put(&written.bytes)
            }
        };
        self.shared.forget_reply();
        self.shared.charge(&self.lua);
        done
    }

    /// The functions that a library has registered. `None` if this is no library's outcome, or there is no room for all of them.
    pub fn registered(&self, outcome: &Outcome) -> Option<(Vec<Registered>, Functions)> {
        let LuaValue::Table(all) = &outcome.value else { return None };
        let functions = self.lua.create_table().ok()?;
        let read = |made: LuaTable| {
            let description = made.raw_get::<Option<LuaString>>("description")?;
            let name: String = made.raw_get("name")?;
            let callback: LuaFunction = made.raw_get("callback")?;
            let has_upvalues = callback.info().num_upvalues > 0;
            functions.raw_set(name.as_str(), callback)?;
            LuaResult::Ok(Registered {
                name,
                description: description.map(|text| text.as_bytes().to_vec()),
                flags: made.raw_get("flags")?,
                has_upvalues,
            })
        };
        let all: LuaResult<_> = all.sequence_values::<LuaTable>().map(|made| read(made?)).collect();
        self.shared.charge(&self.lua);
        Some((all.ok()?, Functions(functions)))
    }

    /// Answers what the script asks.
    fn ask(
        &mut self,
        lua: &Lua,
        caller: &mut dyn Caller,
        mut values: LuaMultiValue,
        budget: Budget,
    ) -> Answer {
        if self.stop.is_none() {
            self.shared.charge(lua);
            if let Err(stop) = self.shared.running.look() {
                self.ends(stop);
            }
        }
        if self.stop.is_some() {
            return (false, LuaValue::Nil);
        }
        let Some(LuaValue::Integer(kind)) = values.pop_front() else { return (true, LuaValue::Nil) };
        let (kind, are_many) = if kind > MANY { (kind - MANY, true) } else { (kind, false) };
        let answer = match kind {
            CALL | PCALL => {
                let words = if are_many { self.many_words(&values) } else { self.words(&values) };
                self.call(lua, caller, words, budget, kind == CALL)
            }
            MAY => self.may(lua, caller, &values),
            RESP => {
                let script_resp3 = matches!(values.front(), Some(LuaValue::Integer(3)));
                self.shared.how.set(How { script_resp3, ..self.shared.how.get() });
                Ok((true, LuaValue::Nil))
            }
            LOG => {
                log(caller, &values);
                Ok((true, LuaValue::Nil))
            }
            TAKE => self.take(lua, budget),
            WORDS => {
                let (keys, args) = caller.given();
                let pair = self.tables(keys, args, budget).and_then(|(keys, args)| {
                    let pair = lua.create_table_with_capacity(2, 0)?;
                    pair.raw_set(1, keys)?;
                    pair.raw_set(2, args)?;
                    Ok(pair)
                });
                Ok(pair.map_or((false, LuaValue::Nil), |pair| (true, LuaValue::Table(pair))))
            }
            _ => Ok((true, LuaValue::Nil)),
        };
        // Within the budget nothing fails, unless Rust holds as many values as it may.
        answer.unwrap_or_else(|_| {
            self.shared.running.stop();
            (false, LuaValue::Nil)
        })
    }

    fn ends(&mut self, stop: Stop) {
        self.stop = Some(stop);
        self.shared.running.stop();
    }

    /// Encodes the words of a command and returns their number; an error's text if a value is no word, or they have more bytes
    /// together than a state may take: each may be the same long text.
    fn words(&mut self, values: &LuaMultiValue) -> Result<usize, &'static str> {
        if values.is_empty() {
            return Err("ERR Please specify at least one argument for this redis lib call");
        }
        self.begin_words();
        for value in values {
            self.word(value)?;
        }
        Ok(values.len())
    }

    /// Encodes the words of a command that come as their count and a table. Rust holds one of them at a time.
    fn many_words(&mut self, values: &LuaMultiValue) -> Result<usize, &'static str> {
        let (Some(LuaValue::Integer(count)), Some(LuaValue::Table(all))) = (values.front(), values.get(1))
        else {
            return Err(NO_WORD);
        };
        self.begin_words();
        for n in 1..=*count {
            self.word(&all.raw_get(n).map_err(|_| NO_WORD)?)?;
        }
        Ok(*count as usize)
    }

    fn begin_words(&mut self) {
        self.words.clear();
        self.words.shrink_to(WORDS_BYTES);
    }

    fn word(&mut self, value: &LuaValue) -> Result<(), &'static str> {
        match value {
            LuaValue::String(text) => push(&mut self.words, &text.as_bytes()),
            LuaValue::Integer(n) => push(&mut self.words, n.to_string().as_bytes()),
            // Replies have one NaN; words tell its sign.
            LuaValue::Number(n) if n.is_nan() && n.is_sign_negative() => {
                push(&mut self.words, b"-nan");
            }
            LuaValue::Number(n) => push(&mut self.words, format_double(*n).as_bytes()),
            _ => return Err(NO_WORD),
        }
        if self.words.len() > self.shared.running.limit() {
            self.words = Vec::new();
            return Err("ERR arguments have too many bytes together");
        }
        Ok(())
    }

    fn call(
        &mut self,
        lua: &Lua,
        caller: &mut dyn Caller,
        words: Result<usize, &'static str>,
        budget: Budget,
        raises: bool,
    ) -> LuaResult<Answer> {
        let count = match words {
            Ok(count) => count,
            Err(text) => return told(lua, text, raises),
        };
        let script_resp3 = self.shared.how.get().script_resp3;
        let reply = match caller.call(Args::decode(&self.words, count), script_resp3) {
            Ok(reply) => reply,
            Err(stop) => {
                self.ends(stop);
                return Ok((false, LuaValue::Nil));
            }
        };
        let limit = self.shared.running.limit();
        let is_due = self.shared.collector.is_due(limit.saturating_sub(budget.0));
        let value = if is_due { Err(answer::no_memory()) } else { value_of(lua, reply, budget, raises) };
        match value {
            Ok(value) => Ok(value),
            // Values of a reply take more than its bytes.
            Err(LuaError::MemoryError(_)) if reply.len() <= limit => {
                self.park(Some(Parked { bytes: reply.to_vec(), raises }));
                Ok((false, LuaValue::Boolean(true)))
            }
            Err(error) => told(lua, &text_of(&error), raises),
        }
    }

    /// Makes the value of the reply that waited, now that the state was collected.
    fn take(&mut self, lua: &Lua, budget: Budget) -> LuaResult<Answer> {
        let Some(Parked { bytes, raises }) = self.parked.take() else { return Ok((true, LuaValue::Nil)) };
        self.park(None);
        value_of(lua, &bytes, budget, raises).or_else(|error| told(lua, &text_of(&error), raises))
    }

    fn may(&mut self, lua: &Lua, caller: &mut dyn Caller, values: &LuaMultiValue) -> LuaResult<Answer> {
        let text = match self.words(values) {
            Ok(count) => match caller.may_call(Args::decode(&self.words, count)) {
                Some(may) => return Ok((true, LuaValue::Boolean(may))),
                None => "ERR Invalid command passed to redis.acl_check_cmd()",
            },
            Err(text) => text,
        };
        Ok((false, LuaValue::Table(table_of(lua, text.as_bytes())?)))
    }
}

/// Makes the value of a reply. An error is raised if `raises`, else it is a value.
fn value_of(lua: &Lua, reply: &[u8], budget: Budget, raises: bool) -> LuaResult<Answer> {
    let failed = reply.first() == Some(&b'-');
    let value = Reader::new(reply, budget).value(lua, 0)?;
    Ok((!(failed && raises), value))
}

/// Makes an error of this text, which is raised if `raises`, else is a value.
fn told(lua: &Lua, text: &str, raises: bool) -> LuaResult<Answer> {
    let text = if text.starts_with("ERR ") { text.to_owned() } else { format!("ERR {text}") };
    Ok((!raises, LuaValue::Table(table_of(lua, text.as_bytes())?)))
}

/// Logs a line for the script.
fn log(caller: &mut dyn Caller, values: &LuaMultiValue) {
    let level = match values.front() {
        Some(LuaValue::Integer(0)) => Level::Debug,
        Some(LuaValue::Integer(1)) => Level::Verbose,
        Some(LuaValue::Integer(2)) => Level::Notice,
        _ => Level::Warning,
    };
    if let Some(LuaValue::String(text)) = values.get(1) {
        caller.log(level, &text.as_bytes());
    }
}

/// Adds a word in the form in which requests carry them.
fn push(words: &mut Vec<u8>, word: &[u8]) {
    let mut head = [0; larder_protocol::resp::HEAD_BYTES_MAX];
    let bytes = larder_protocol::resp::write_bulk_head(&mut head, word.len() as u64);
    words.extend_from_slice(&head[..bytes]);
    words.extend_from_slice(word);
    words.extend_from_slice(b"\r\n");
}

/// SHA1 of a script, by which clients name it, as hexadecimal digits.
pub fn sha1_hex(source: &[u8]) -> String {
    hex(&Sha1::digest(source))
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(40), |mut text, byte| {
        text.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
        text.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::KEPT_BYTES;
    use crate::running::Kill;

    const SLOW: Duration = Duration::from_millis(20);

    /// Does everything slowly, and then has the script go on later.
    #[derive(Default)]
    struct Slow {
        calls: u32,
        beside: Duration,
        told_ns: u64,
    }

    impl Caller for Slow {
        fn call(&mut self, _: Args<'_>, _: bool) -> Result<&[u8], Stop> {
            self.calls += 1;
            let began = Instant::now();
            std::thread::sleep(SLOW);
            self.beside += began.elapsed();
            Ok(b":1\r\n")
        }

        fn may_call(&mut self, _: Args<'_>) -> Option<bool> {
            None
        }

        fn log(&mut self, _: Level, _: &[u8]) {}

        fn tick(&mut self, took_ns: u64) -> Result<Tick, Stop> {
            self.told_ns += took_ns;
            Ok(Tick::GoOn)
        }

        fn beside(&mut self) -> Duration {
            std::mem::take(&mut self.beside)
        }

        fn answered(&mut self) -> Result<Tick, Stop> {
            Ok(if self.calls == 1 { Tick::Pause } else { Tick::GoOn })
        }
    }

    /// Counts what replies hold, and has a limit for it.
    #[derive(Clone, Default)]
    struct Counted(Rc<Cell<i64>>, i64);

    impl Account for Counted {
        fn aside(&self, _: i64) {}

        fn hold(&self, more: i64) -> bool {
            let may = more <= 0 || self.0.get() + more <= self.1;
            if may {
                self.0.set(self.0.get() + more);
            }
            may
        }
    }

    #[test]
    fn a_reply_is_held_while_it_is_there_and_no_more_of_it_than_there_is_room_for() {
        let held = Counted(Rc::default(), 1 << 20);
        let mut engine =
            Engine::new(8 << 20, Arc::default(), Box::new(held.clone()), Pace::Machine).expect("a state");
        let none = Args::rest(b"", 0);
        let given = |reply_bytes_max| Given {
            keys: none,
            args: none,
            kind: Kind::Script,
            resp3: false,
            reply_bytes_max,
            is_timed: false,
        };
        let of = |elements: usize| {
            format!(
                "local t, s = {{}}, string.rep('x', 10000) for i = 1, {elements} do t[i] = s end return t"
            )
        };
        struct Sunk(usize);
        impl Sink for Sunk {
            fn put(&mut self, bytes: &[u8]) -> bool {
                self.0 += bytes.len();
                true
            }

            fn put_bulk(&mut self, text: &[u8]) -> bool {
                self.put(text)
            }

            fn failed(&mut self, _: &[u8], _: bool) {}
        }
        for (elements, bytes_max, is_whole) in
            [(50, 1 << 20, true), (50, 100_000, false), (150, 1 << 30, false), (60, 1 << 20, true)]
        {
            let script = engine.compile(of(elements).as_bytes(), Kind::Script).expect("it compiles");
            assert!(engine.begin(&script, given(bytes_max)));
            let end = loop {
                if let Some(end) = engine.go_on("script", &mut Slow { calls: 1, ..Slow::default() }) {
                    break end;
                }
            };
            match end {
                End::Value(outcome) => {
                    assert!(
                        is_whole && held.0.get() as usize >= elements * 10_000 - KEPT_BYTES,
                        "{elements}"
                    );
                    let mut sunk = Sunk(0);
                    assert!(engine.write(outcome, &mut sunk) && sunk.0 > elements * 10_000, "{elements}");
                }
                end => assert!(!is_whole && matches!(end, End::TooLarge), "{elements}: {end:?}"),
            }
            assert_eq!(held.0.get(), 0, "{elements}");
        }
    }

    /// Has a script go on later whenever it may.
    struct Leaves;

    impl Caller for Leaves {
        fn call(&mut self, _: Args<'_>, _: bool) -> Result<&[u8], Stop> {
            Ok(b":1\r\n")
        }

        fn may_call(&mut self, _: Args<'_>) -> Option<bool> {
            None
        }

        fn log(&mut self, _: Level, _: &[u8]) {}

        fn tick(&mut self, _: u64) -> Result<Tick, Stop> {
            Ok(Tick::Pause)
        }

        fn answered(&mut self) -> Result<Tick, Stop> {
            Ok(Tick::Pause)
        }
    }

    #[test]
    fn a_script_that_nobody_goes_on_with_is_ended_where_it_is_and_the_next_one_runs() {
        let held = Counted(Rc::default(), 1 << 30);
        let mut engine =
            Engine::new(8 << 20, Arc::default(), Box::new(held.clone()), Pace::Look(LOOK)).expect("a state");
        let none = Args::rest(b"", 0);
        let given = Given {
            keys: none,
            args: none,
            kind: Kind::Script,
            resp3: false,
            reply_bytes_max: 1 << 30,
            is_timed: false,
        };
        let plain = engine.compile(b"return 'fine'", Kind::Script).expect("it compiles");
        let is_fine = |engine: &mut Engine, script: &str| {
            assert!(engine.begin(&plain, given), "{script}");
            let end = loop {
                if let Some(end) = engine.go_on("plain", &mut Leaves) {
                    break end;
                }
            };
            match end {
                End::Value(Outcome { value: LuaValue::String(text), .. }) => {
                    assert_eq!(&*text.as_bytes(), b"fine", "{script}");
                }
                end => panic!("{script}: {end:?}"),
            }
        };
        // None is at work.
        assert!(engine.abandon());
        is_fine(&mut engine, "none");
        for script in [
            "while true do end",
            "while true do pcall(function() while true do end end) end",
            "xpcall(function() while true do end end, function() while true do end end) while true do end",
            "while true do coroutine.wrap(function() while true do end end)() end",
            "while true do redis.call('GET', 'k') end",
            "while true do redis.pcall('GET', 'k') end",
            "while true do collectgarbage() end",
            "local s = string.rep('x', 100000) while true do s:gsub('x', 'y') end",
            "while true do cjson.decode('[' .. string.rep('1,', 9999) .. '1]') end",
            // This script is writing its reply.
            "local t = {} for i = 1, 14 do t = {t, t, t} end return t",
        ] {
            let compiled = engine.compile(script.as_bytes(), Kind::Script).expect("it compiles");
            for turns in 0..=10 {
                assert!(engine.begin(&compiled, given), "{script}");
                for _ in 0..turns {
                    assert!(engine.go_on("script", &mut Leaves).is_none(), "{script}");
                }
                assert!(engine.shared.running.works(), "{script}");
                assert!(engine.abandon(), "{script}, {turns}");
                assert!(!engine.shared.running.works() && held.0.get() == 0, "{script}, {turns}");
                is_fine(&mut engine, script);
            }
        }
    }

    #[test]
    fn what_was_compiled_is_of_no_use_where_a_client_was_told_that_it_ends() {
        let running = Arc::new(Running::default());
        // The script is never looked at, as where the rest of it takes less than a tenth of a millisecond.
        let pace = Pace::Look(Duration::ZERO);
        let mut engine =
            Engine::new(8 << 20, Arc::clone(&running), Box::new(Counted::default()), pace).expect("a state");
        let none = Args::rest(b"", 0);
        let given = Given {
            keys: none,
            args: none,
            kind: Kind::Text,
            resp3: false,
            reply_bytes_max: 0,
            is_timed: false,
        };
        let text = format!("return 42 --{}", "x".repeat(WHOLE_BYTES_MAX));
        for is_killed in [false, true, false] {
            engine.set_text(text.as_bytes());
            let nothing = engine.nothing();
            assert!(engine.begin(&nothing, given));
            if is_killed {
                assert_eq!(running.kill(), Kill::Ends);
            }
            match engine.go_on("text", &mut Slow::default()) {
                Some(End::Value(outcome)) => assert!(!is_killed && engine.compiled(outcome).is_some()),
                Some(End::Stopped { stop: Stop::Killed, .. }) => assert!(is_killed),
                end => panic!("{end:?}"),
            }
            engine.forget_text();
        }
    }

    /// Above 512 elements the sandbox's own sort does what Lua's does, by as many comparisons, also with elements that are
    /// alike and with functions that are no order.
    #[test]
    fn long_tables_are_sorted_as_lua_sorts_them() {
        let mut engine = Engine::new(8 << 20, Arc::default(), Box::new(Counted::default()), Pace::Machine)
            .expect("a state");
        let none = Args::rest(b"", 0);
        let given = Given {
            keys: none,
            args: none,
            kind: Kind::Script,
            resp3: false,
            reply_bytes_max: 0,
            is_timed: false,
        };
        let luas = Lua::new();
        for elements in [511, 512, 513, 514, 2000] {
            for less in ["a < b", "a > b", "a % 10 < b % 10", "a % 10 <= b % 10", "a <= b", "true", "a ~= b"]
            {
                let code = format!(
                    "local t, n, asked = {{}}, 1, 0 for i = 1, {elements} do n = n * 7919 % 10007 t[i] = n end \
                     local ok = pcall(table.sort, t, function(a, b) asked = asked + 1 return {less} end) \
                     return table.concat(t, ' ') .. ' ' .. asked .. ' ' .. tostring(ok)"
                );
                let script = engine.compile(code.as_bytes(), Kind::Script).expect("it compiles");
                assert!(engine.begin(&script, given));
                let sorted = match engine.go_on("script", &mut Slow::default()) {
                    Some(End::Value(Outcome { value: LuaValue::String(sorted), .. })) => sorted,
                    end => panic!("{elements}, {less}: {end:?}"),
                };
                let expected: LuaString = luas.load(code).eval().expect("a text");
                assert!(*sorted.as_bytes() == *expected.as_bytes(), "{elements}, {less}");
            }
        }
    }

    #[test]
    fn what_is_done_for_a_script_is_not_its_work_and_what_it_worked_not_the_next_ones() {
        let mut engine = Engine::new(8 << 20, Arc::default(), Box::new(Counted::default()), Pace::Machine)
            .expect("a state");
        let none = Args::rest(b"", 0);
        let given = |kind| Given {
            keys: none,
            args: none,
            kind,
            resp3: false,
            reply_bytes_max: 0,
            is_timed: kind == Kind::Library,
        };
        let mut slow = Slow::default();
        let asks = engine.compile(b"return redis.call('GET', 'k')", Kind::Script).expect("it compiles");
        assert!(engine.begin(&asks, given(Kind::Script)));
        assert!(engine.go_on("asks", &mut slow).is_none(), "it is to go on later");
        assert!(matches!(engine.go_on("asks", &mut slow), Some(End::Value(_))));
        let works = engine.compile(b"for i = 1, 100000 do end", Kind::Library).expect("it compiles");
        assert!(engine.begin(&works, given(Kind::Library)));
        let began = own_time();
        assert!(matches!(engine.go_on("", &mut slow), Some(End::Value(_))));
        let worked = own_time() - began;
        assert!(
            slow.told_ns > 0 && u128::from(slow.told_ns) <= worked.as_nanos(),
            "{} of {worked:?}",
            slow.told_ns
        );
    }
}
