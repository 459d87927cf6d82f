//! Libraries of functions. All workers know them by their names, until a client deletes or replaces them.
//!
//! ```text
//! #!lua name=mylib                                              the first line names the library
//! redis.register_function('f', function(keys, args) … end)      the functions that loading registers have names of their own
//! ```
//!
//! Libraries are charged to the memory limit, and take 1/64 of it at most. Each worker loads a library into its own Lua state
//! when it first calls one of its functions: variables that a library keeps between calls are there. A run of a function that may
//! keep something is not begun anew as other runs are (`run`).
//!
//! A load has little time, in which garbage of other runs is not collected. A command that makes a library known reads it in a
//! state of its own, if the worker's state has much in it ([`Reading`]); a call that has to load one is begun again behind a
//! collection ([`State::function`]).

use std::sync::{Arc, Weak};

use larder_protocol::resp::{Args, split};
use larder_script::{Caller, Compiled, End, Functions, Given, Kind, Level, Registered, Stop, Tick};

use super::cache::Nature;
use super::compiling::{Compiles, wrong_library};
use super::later::{self, Preparing};
use super::logged::Logged;
use super::run::{Asked, Run, ticks_of};
use super::worker::State;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail, shown};
pub(super) use crate::redis::lua::bounded;
use crate::redis::lua::libraries::Function;
pub(super) use crate::redis::lua::libraries::{Libraries, Library, Policy};

/// Bytes of a name, at most.
const NAME_BYTES_MAX: usize = 1 << 10;
/// Ticks of scripts, a tenth of a millisecond each, that the libraries of one request may take to load; more is refused.
const TICKS_MAX: u32 = 100;

/// Work to make a state.
const STATE_NS: u64 = 1_000_000;
/// Work to read a library that only registers a function, and for each byte of its text.
const LIBRARY_NS: u64 = 30_000;
const TEXT_BYTE_NS: u64 = 50;
/// Work to read libraries in a transaction, before the last of them.
pub(super) const READ_NS_MAX: u64 = 10_000_000;

/// The error of a load that takes too long.
pub(super) const TIMEOUT: Fail = Fail::of("ERR Error registering functions: FUNCTION LOAD timeout");

/// Libraries that a state has loaded at a time, at most: each takes a place in it.
const LIBRARIES_MAX: usize = 64;

/// Whether a name is allowed.
fn is_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Parses a library's first line: its name, and where the line ends.
///
/// # Errors
/// It is not such a line.
pub(crate) fn head(code: &[u8]) -> Result<(Box<str>, usize), Fail> {
    const INVALID: Fail = Fail::of("ERR Invalid library metadata");
    if !code.starts_with(b"#!") {
        return Err(Fail::of("ERR Missing library metadata"));
    }
    let end = memchr::memchr(b'\n', code).ok_or(INVALID)?;
    let words = split(&code[..end]).ok_or(INVALID)?;
    let mut words = words.args();
    let engine = words.next().and_then(|word| word.strip_prefix(b"#!")).ok_or(INVALID)?;
    let mut name: Option<&[u8]> = None;
    for word in words {
        let Some(given) = word.get(..5).filter(|key| key.eq_ignore_ascii_case(b"name=")).map(|_| &word[5..])
        else {
            let word = shown(word, 128);
            return Err(Fail::with(format!("ERR Invalid metadata value given: {word}")));
        };
        if name.replace(given).is_some() {
            return Err(Fail::of("ERR Invalid metadata value, name argument was given multiple times"));
        }
    }
    let name = name.ok_or(Fail::of("ERR Library name was not given"))?;
    if !is_name(name) {
        return Err(Fail::of(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ));
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(Fail::with(format!("ERR Engine '{}' not found", shown(engine, 64))));
    }
    Ok((String::from_utf8_lossy(name).into(), end))
}

/// The error if there is no memory for a library.
fn no_memory() -> Fail {
    Fail::of("ERR Error registering functions: not enough memory")
}

/// The server as a library sees it while it is loaded.
struct Loader<'r, 'x, 'c, 'w> {
    call: &'r mut Call<'x, 'c, 'w>,
    /// Ticks that the request has taken.
    ticks: &'r mut u32,
    logged: &'r mut Logged,
}

impl Caller for Loader<'_, '_, '_, '_> {
    fn call(&mut self, _: Args<'_>, _: bool) -> Result<&[u8], Stop> {
        Ok(b"-ERR redis.call can only be called inside a script invocation\r\n")
    }

    fn may_call(&mut self, _: Args<'_>) -> Option<bool> {
        None
    }

    fn log(&mut self, level: Level, text: &[u8]) {
        self.logged.add(self.call, level, text, false);
    }

    fn tick(&mut self, took_ns: u64) -> Result<Tick, Stop> {
        self.call.cx.room.work().spend(took_ns);
        *self.ticks = self.ticks.saturating_add(ticks_of(took_ns));
        if *self.ticks > TICKS_MAX { Err(Stop::TooLong) } else { Ok(Tick::GoOn) }
    }
}

/// What loading a library into a state gave.
pub(crate) struct Contents {
    all: Vec<Registered>,
    functions: Functions,
    /// The functions may keep something in variables of their library.
    keeps: bool,
}

/// Loads a library into a state, and returns what it registers. `waits`: the request may come again behind a collection, which is
/// asked for if there is no room, or if the state would be collected in the load's time. `ticks`: what the request has taken for
/// other libraries, to which this adds; `logged`: its log lines, which are still to be written.
///
/// # Errors
/// What Lua says of it, or it registers nothing.
fn load(
    call: &mut Call<'_, '_, '_>,
    state: &mut State,
    code: &[u8],
    waits: bool,
    (ticks, logged): (&mut u32, &mut Logged),
) -> Result<Contents, Fail> {
    let given = given();
    let mut compiled = state.engine.compile(code, Kind::Library);
    // Garbage of other runs does not count. If other libraries are loaded it is not collected here: what they keep may be more
    // than can be looked through in the time of a load.
    let collects = !waits && state.libraries.is_empty();
    if compiled.is_err() && state.engine.wants_room() && collects {
        state.make_room();
        let nothing = state.engine.nothing();
        if state.engine.begin(&nothing, given) {
            let mut loader = Loader { call: &mut *call, ticks: &mut *ticks, logged: &mut *logged };
            state.engine.go_on("", &mut loader);
        }
        compiled = state.engine.compile(code, Kind::Library);
    }
    let compiled = compiled.map_err(|error| wrong_library(&error))?;
    load_compiled(call, state, &compiled, waits, (ticks, logged))
}

/// What a library is given while it is loaded.
fn given() -> Given<'static> {
    let (keys, args, kind) = (Args::EMPTY, Args::EMPTY, Kind::Library);
    Given { keys, args, kind, resp3: false, reply_bytes_max: 0, is_timed: true }
}

/// Loads a compiled library, as [`load`] does.
///
/// # Errors
/// What Lua says of it, or it registers nothing.
fn load_compiled(
    call: &mut Call<'_, '_, '_>,
    state: &mut State,
    compiled: &Compiled,
    waits: bool,
    (ticks, logged): (&mut u32, &mut Logged),
) -> Result<Contents, Fail> {
    let given = given();
    let collects = !waits && state.libraries.is_empty();
    // The library's own code may be what makes a collection due.
    if waits && state.engine.is_due() {
        state.make_room();
        return Err(no_memory());
    }
    let keeps = compiled.keeps();
    if !state.engine.begin(compiled, given) {
        return Err(no_memory());
    }
    let mut loader = Loader { call: &mut *call, ticks: &mut *ticks, logged: &mut *logged };
    let mut end = state.engine.go_on("", &mut loader);
    if matches!(end, Some(End::NoMemory)) {
        logged.begin_anew();
        state.make_room();
        if collects && state.engine.begin(compiled, given) {
            let mut loader = Loader { call: &mut *call, ticks, logged: &mut *logged };
            end = state.engine.go_on("", &mut loader);
        }
    }
    let (all, functions) = match end {
        Some(End::Value(outcome)) => state.engine.registered(&outcome).ok_or_else(no_memory)?,
        Some(End::Failed { text, .. }) => {
            let text: String = text.into_iter().map(char::from).collect();
            return Err(Fail::with(format!("ERR Error registering functions: {text}")));
        }
        // Its time may have gone into collecting garbage of other runs.
        Some(End::Stopped { stop: Stop::TooLong, .. }) if waits => {
            logged.begin_anew();
            state.make_room();
            return Err(no_memory());
        }
        Some(End::Stopped { .. }) => return Err(TIMEOUT),
        Some(End::NoMemory | End::TooLarge) | None => return Err(no_memory()),
    };
    if all.is_empty() {
        return Err(Fail::of("ERR No functions registered"));
    }
    Ok(Contents { all, functions, keeps })
}

/// Reads libraries for a request, one behind the other in one state. That is the worker's, if it has no library and little
/// garbage, and else one made for the request: beside other libraries and garbage a collection might take more time than a load
/// has.
pub(crate) struct Reading {
    state: Box<State>,
    is_own: bool,
}

impl Reading {
    /// Begins; the caller has to call [`Reading::end`].
    ///
    /// # Errors
    /// Lua cannot be begun.
    pub fn begin(call: &mut Call<'_, '_, '_>) -> Result<Reading, Fail> {
        let state = State::of(call)?;
        if state.libraries.is_empty() && !state.engine.is_half_due() {
            return Ok(Reading { state, is_own: false });
        }
        state.give_back(call);
        let state = State::new(call)?;
        call.spend(STATE_NS);
        Ok(Reading { state, is_own: true })
    }

    /// Goes on in a state. `is_own`: it was made for the request.
    pub fn of(state: Box<State>, is_own: bool) -> Reading {
        Reading { state, is_own }
    }

    /// Compiles the text of a library in later turns, for FUNCTION LOAD of these words. `name`: what errors call it.
    pub fn compile(self, call: &mut Call<'_, '_, '_>, text: &[u8], name: Box<str>, words: Args<'_>) -> Done {
        let Reading { state, is_own } = self;
        let run = Compiles::FunctionLoad { is_own }.run(call, &state, text, name);
        later::run(call, state, run, Asked { words, keys: Args::EMPTY, args: Args::EMPTY })
    }

    /// As [`Reading::compile`], between steps of another job.
    pub fn compile_beside(self, call: &Call<'_, '_, '_>, text: &[u8], name: Box<str>) -> Preparing {
        let Reading { state, is_own } = self;
        let run = Compiles::FunctionLoad { is_own }.run(call, &state, text, name);
        Preparing::new(call, state, run)
    }

    /// Compiles a text at once, where nothing may go on in later turns, within the time of a run.
    ///
    /// # Errors
    /// What is wrong with the text, or why the run was ended.
    pub fn compile_at_once(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        text: &[u8],
        name: Box<str>,
    ) -> Result<Compiled, Fail> {
        let mut run = Compiles::FunctionLoad { is_own: self.is_own }.run(call, &self.state, text, name);
        let asked = Asked { words: Args::EMPTY, keys: Args::EMPTY, args: Args::EMPTY };
        let pauses = later::pauses(call);
        let end = run.go_on(call, &mut self.state, asked, pauses, None).unwrap_or(End::NoMemory);
        match run.compiles.take() {
            Some(compiles) => compiles.compiled(call, &self.state, &run, end),
            None => Err(no_memory()),
        }
    }

    /// Goes on in the state in which a run compiled a text. `end`: how the run ended.
    ///
    /// # Errors
    /// What is wrong with the text, or why the run was ended.
    pub fn behind(
        call: &mut Call<'_, '_, '_>,
        (state, mut run, end): (Box<State>, Run, End),
    ) -> (Reading, Result<Compiled, Fail>) {
        let compiles = run.compiles.take();
        let is_own = compiles.as_ref().is_some_and(Compiles::is_apart);
        let compiled = match &compiles {
            Some(compiles) => compiles.compiled(call, &state, &run, end),
            None => Err(no_memory()),
        };
        (Reading { state, is_own }, compiled)
    }

    /// Loads a library that was compiled before.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_compiled(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        code: &[u8],
        name: Box<str>,
        compiled: &Compiled,
        ticks: &mut u32,
    ) -> Result<Library, Fail> {
        let mut logged = Logged::default();
        let loaded = load_compiled(call, &mut self.state, compiled, false, (ticks, &mut logged));
        logged.write(call);
        call.spend(LIBRARY_NS);
        Ok(made(name, code, loaded?))
    }

    /// Compiles and loads a library whose first line says `name` and ends at `end`. `ticks`: what the request has taken for other
    /// libraries, to which this adds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        code: &[u8],
        (name, end): (Box<str>, usize),
        ticks: &mut u32,
    ) -> Result<Library, Fail> {
        bounded(code)?;
        let mut logged = Logged::default();
        let loaded = load(call, &mut self.state, &code[end..], false, (ticks, &mut logged));
        logged.write(call);
        call.spend(reading_ns(code.len()));
        Ok(made(name, code, loaded?))
    }

    /// Ends reading for this request.
    pub fn end(self, call: &mut Call<'_, '_, '_>) {
        if !self.is_own {
            self.state.give_back(call);
        }
    }
}

/// Work to read a library of so many bytes, beside its own code.
pub(super) fn reading_ns(bytes: usize) -> u64 {
    LIBRARY_NS + bytes as u64 * TEXT_BYTE_NS
}

/// Makes a library of what was loaded.
fn made(name: Box<str>, code: &[u8], Contents { all, keeps, .. }: Contents) -> Library {
    let functions = all.iter().map(|made| function(made, keeps)).collect();
    Library { name, code: code.into(), functions }
}

/// Makes a function of what was registered. `keeps`: functions of its library may keep something.
fn function(registered: &Registered, keeps: bool) -> Function {
    let mut nature = Nature::of_function(&registered.name);
    nature.keeps = keeps && registered.has_upvalues;
    // Unknown flags were refused when the function was registered.
    registered.flags.iter().for_each(|flag| {
        nature.take_flag(flag.as_bytes());
    });
    let description = registered.description.as_deref().map(Box::from);
    Function { nature: Arc::new(nature), description, flags: registered.flags.clone() }
}

/// A library that was loaded into a state.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Weak: a library is freed when it is no longer known, though a worker has loaded it.
    library: Weak<Library>,
    functions: Functions,
}

impl Loaded {
    /// Whether the library is still known.
    pub fn is_known(&self) -> bool {
        self.library.strong_count() > 0
    }
}

impl State {
    /// Whether this state has loaded the library.
    pub fn has(&self, library: &Arc<Library>) -> bool {
        let there = self.libraries.get(&library.name);
        there.is_some_and(|there| std::ptr::eq(there.library.as_ptr(), Arc::as_ptr(library)))
    }

    /// A function of a library, ready to run in this state. `is_collected`: the state was collected for this call. `compiled`:
    /// the library's compiled text, if that was done in later turns.
    ///
    /// # Errors
    /// The library cannot be loaded here, or not before a collection, which the state then asks for.
    pub fn function(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        library: &Arc<Library>,
        name: &str,
        is_collected: bool,
        compiled: Option<Compiled>,
    ) -> Result<Compiled, Fail> {
        if !self.has(library) {
            let mut logged = Logged::default();
            let (waits, counted) = (!is_collected, (&mut 0, &mut logged));
            let loaded = match compiled {
                Some(compiled) => load_compiled(call, self, &compiled, waits, counted),
                // The state is collected before, so that loading has all of its time for itself.
                None if waits && self.engine.is_due() => {
                    self.engine.make_room();
                    return Err(no_memory());
                }
                None => load(call, self, library.text(), waits, counted),
            };
            logged.write(call);
            let loaded = Loaded { library: Arc::downgrade(library), functions: loaded?.functions };
            self.libraries.retain(|_, there| there.is_known());
            if self.libraries.len() >= LIBRARIES_MAX {
                self.libraries.clear();
            }
            self.libraries.insert(library.name.clone(), loaded);
        }
        let found = self.libraries.get(&library.name).and_then(|there| there.functions.get(name));
        found.ok_or(super::functions::NOT_FOUND)
    }
}
