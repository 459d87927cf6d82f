//! Decides when a state is collected, so that no script fails for lack of memory that earlier runs, or the run itself, no longer
//! use.
//!
//! Lua 5.1 raises `not enough memory` where an allocation would pass the limit, however much of the state is out of use: it does
//! not collect first. Lua's own collector begins a cycle at twice what was in use after the last one, which may be above the
//! limit. So the whole state is collected when it takes `due` bytes:
//!
//! ```text
//! 0            in use             due                  limit
//! ├──────────────┼─────────────────┼─────────────────────┤
//!                └── half of what is free, 1/16 of the limit or more
//! ```
//!
//! This is checked every 200 instructions, before a run begins, and before a reply becomes values. After each check half of what
//! is not in use is free. Where values of a known size find no room (the words of a run, a reply, results of functions in Rust),
//! the state is collected, and they are made once more. So they fail by what is in use alone.
//!
//! A run that holds keys from its beginning would hold them for the collection, too. EXEC therefore has the state collected
//! before it takes its keys, once half of the way to `due` is taken ([`Collector::is_half_taken`]).
//!
//! `sandbox.lua` collects, in Lua's small steps with looks between them, on the script's stack: the run may be left meanwhile, as
//! at any other work. A short script is compiled on no such stack: where there is no room for its code, the run of a script
//! without a statement collects the state, and the script is compiled once more.
//!
//! What libraries keep in their variables is in use at all times. Where it is nearly all of the state, runs lack memory until the
//! library is deleted or replaced: the state is never made anew for that.

use std::cell::Cell;

/// At least this part of the limit is taken between two collections, so that a state that is nearly full is not collected at each
/// check.
const STEPS: usize = 16;

/// When a state is collected next.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    due: Cell<usize>,
    /// `due` as of the last collection at a run's beginning, when no run had anything in use.
    rest: Cell<usize>,
    /// Half of the way from what was in use then to `rest`.
    half: Cell<usize>,
    /// A run has begun, and may have something in use.
    works: Cell<bool>,
}

impl Collector {
    /// Prepares for a run. True if the state, which takes `used` bytes, is to be collected first.
    pub fn begin(&self, used: usize) -> bool {
        // The run before was ended while it collected.
        let due = if self.due.get() == usize::MAX { 0 } else { self.due.get() };
        // What that run had in use is out of use now.
        self.due.set(due.min(self.rest.get()));
        let is_due = self.is_due(used);
        self.works.set(!is_due);
        is_due
    }

    /// True if a state that takes `used` bytes is to be collected.
    pub fn is_due(&self, used: usize) -> bool {
        used >= self.due.get()
    }

    /// Between two runs: true if a state that takes `used` bytes has taken half of what it may before it is due, or more.
    pub fn is_half_taken(&self, used: usize) -> bool {
        used >= self.half.get()
    }

    /// Has the state collected before the next run, however little it takes.
    pub fn want(&self) {
        self.due.set(0);
    }

    /// A collection was asked for by [`Collector::want`], and has not begun.
    pub fn is_wanted(&self) -> bool {
        self.due.get() == 0
    }

    /// Notes that a collection begins: none is due meanwhile.
    pub fn collecting(&self) {
        self.due.set(usize::MAX);
    }

    /// Notes that a collection has ended: `used` bytes of `limit` are in use.
    pub fn collected(&self, used: usize, limit: usize) {
        let free = limit.saturating_sub(used);
        let more = (free / 2).max(limit / STEPS);
        self.due.set(used + more);
        if !self.works.replace(true) {
            self.rest.set(self.due.get());
            self.half.set(used + more / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_protocol::resp::Args;

    use super::*;
    use crate::{Account, Caller, Compiled, End, Engine, Given, Kind, Level, Pace, Sink, Stop, Tick};

    /// What a state may take of a server with `-m 64 -t 2`.
    const LIMIT: usize = 4 << 20;

    struct Free;

    impl Account for Free {
        fn aside(&self, _: i64) {}

        fn hold(&self, _: i64) -> bool {
            true
        }
    }

    /// Gives a script its arguments, and the same reply to all that it asks.
    struct Host {
        args: Vec<u8>,
        count: usize,
        reply: Vec<u8>,
    }

    impl Host {
        fn of(args: usize, elements: usize) -> Host {
            let list = |count| (0..count).map(|n| format!("$6\r\n{n:06}\r\n")).collect::<String>();
            let reply = format!("*{elements}\r\n{}", list(elements));
            Host { args: list(args).into_bytes(), count: args, reply: reply.into_bytes() }
        }

        fn args(&self) -> Args<'_> {
            Args::rest(&self.args, self.count)
        }
    }

    impl Caller for Host {
        fn given(&self) -> (Args<'_>, Args<'_>) {
            (Args::EMPTY, self.args())
        }

        fn call(&mut self, _: Args<'_>, _: bool) -> Result<&[u8], Stop> {
            Ok(&self.reply)
        }

        fn may_call(&mut self, _: Args<'_>) -> Option<bool> {
            None
        }

        fn log(&mut self, _: Level, _: &[u8]) {}

        fn tick(&mut self, _: u64) -> Result<Tick, Stop> {
            Ok(Tick::GoOn)
        }
    }

    #[derive(Default)]
    struct Sunk(Vec<u8>);

    impl Sink for Sunk {
        fn put(&mut self, bytes: &[u8]) -> bool {
            self.0.extend_from_slice(bytes);
            true
        }

        fn put_bulk(&mut self, text: &[u8]) -> bool {
            self.put(text)
        }

        fn failed(&mut self, _: &[u8], _: bool) {}
    }

    fn engine() -> Engine {
        Engine::new(LIMIT, Arc::default(), Box::new(Free), Pace::Machine).expect("a state")
    }

    fn compiled(engine: &Engine, script: &str) -> Compiled {
        engine.compile(script.as_bytes(), Kind::Script).expect("it compiles")
    }

    /// What a run comes to: its reply, the text of its error, or `no memory`.
    fn run(engine: &mut Engine, script: &Compiled, host: &mut Host) -> String {
        let (keys, args, kind) = (Args::EMPTY, host.args(), Kind::Script);
        if !engine.begin(
            script,
            Given { keys, args, kind, resp3: false, reply_bytes_max: 1 << 20, is_timed: false },
        ) {
            return "no memory".to_owned();
        }
        match engine.go_on("script", host).expect("it is not left") {
            End::Value(outcome) => {
                let mut sunk = Sunk::default();
                assert!(engine.write(outcome, &mut sunk));
                String::from_utf8(sunk.0).expect("a text")
            }
            End::Failed { text, .. } => String::from_utf8(text).expect("a text"),
            End::NoMemory => "no memory".to_owned(),
            end => panic!("{end:?}"),
        }
    }

    #[test]
    fn a_state_is_collected_where_half_of_what_is_free_is_taken_and_not_before() {
        let collector = Collector::default();
        assert!(collector.begin(0), "what it has is not known");
        collector.collected(400, 1600);
        assert!(!collector.is_half_taken(699) && collector.is_half_taken(700));
        assert!(!collector.begin(999) && collector.begin(1000));
        // Nearly full, it is not collected with each look.
        collector.collected(1550, 1600);
        assert!(!collector.is_due(1649) && collector.is_due(1650));
        assert!(!collector.is_half_taken(1599) && collector.is_half_taken(1600));
        collector.collecting();
        assert!(!collector.is_due(1 << 40));
        // The collection was ended before its end.
        assert!(collector.begin(1));
        collector.collected(400, 1600);
        // A run that has more in use; it is out of use when the next one begins.
        assert!(!collector.begin(900));
        collector.collected(1200, 1600);
        assert!(!collector.is_due(1399) && collector.is_due(1400));
        assert!(!collector.is_half_taken(699) && collector.is_half_taken(700));
        assert!(collector.begin(1000));
        // What libraries keep stays in use.
        collector.collected(1200, 1600);
        assert!(!collector.begin(1399) && collector.begin(1400));
        assert!(!collector.is_wanted());
        collector.want();
        assert!(collector.is_wanted() && collector.begin(401));
        collector.collecting();
        assert!(!collector.is_wanted());
    }

    #[test]
    fn words_that_found_room_once_always_do() {
        let mut engine = engine();
        let counts = compiled(&engine, "return #ARGV .. ARGV[#ARGV]");
        for count in [20_000, 25_000] {
            let (mut host, last) = (Host::of(count, 0), count - 1);
            for _ in 0..50 {
                assert_eq!(run(&mut engine, &counts, &mut host), format!("{count}{last:06}"));
            }
        }
        // These never find room, and take none from others.
        let (mut many, mut some) = (Host::of(50_000, 0), Host::of(25_000, 0));
        for _ in 0..5 {
            assert_eq!(run(&mut engine, &counts, &mut many), "no memory");
            assert_eq!(run(&mut engine, &counts, &mut some), "25000024999");
        }
    }

    #[test]
    fn a_reply_that_found_room_once_always_does() {
        let mut engine = engine();
        let once = compiled(&engine, "local t = redis.call('LRANGE') return #t .. t[#t]");
        let leaves = compiled(&engine, "local t = {} for i = 1, 15000 do t[i] = 'x' .. i end return 'left'");
        for count in [20_000, 25_000] {
            let (mut host, last) = (Host::of(0, count), count - 1);
            for n in 0..50 {
                assert_eq!(run(&mut engine, &once, &mut host), format!("{count}{last:06}"));
                if n % 3 == 0 {
                    assert_eq!(run(&mut engine, &leaves, &mut host), "left");
                }
            }
        }
        // One behind another in the same run, of which the last is in use.
        let many = "local n, t = 0 for i = 1, 20 do t = nil t = redis.call('LRANGE') n = n + #t end \
            return n .. ''";
        let many = compiled(&engine, many);
        assert_eq!(run(&mut engine, &many, &mut Host::of(0, 20_000)), "400000");
        let caught = compiled(&engine, "return redis.pcall('LRANGE').err");
        let mut large = Host::of(0, 50_000);
        for _ in 0..5 {
            let failed = run(&mut engine, &once, &mut large);
            assert_eq!(failed, "ERR not enough memory script: script, on @user_script:1.");
            assert_eq!(run(&mut engine, &caught, &mut large), "ERR not enough memory");
        }
        assert_eq!(run(&mut engine, &once, &mut Host::of(0, 25_000)), "25000024999");
    }

    #[test]
    fn what_a_run_drops_is_collected_while_it_keeps_half_of_its_state() {
        let mut engine = engine();
        for script in [
            // 2 MiB in use, and as much again dropped many times over.
            "local t = {} for i = 1, 15000 do t[i] = {i} end \
             for i = 1, 200000 do local s = 'some text of a few bytes ' .. i end return #t .. ''",
            "local t = {} for i = 1, 15000 do t[i] = {i} end \
             for i = 1, 100 do local s = string.rep('x', 100000) end return #t .. ''",
            "local t = {} for i = 1, 15000 do t[i] = {i} end \
             local a, b = string.rep('x', 50000), string.rep('y', 50000) \
             for i = 1, 100 do local s = table.concat({a, b}) end return #t .. ''",
            "local t, text = {}, '[' .. string.rep('1,', 2999) .. '1]' for i = 1, 15000 do t[i] = {i} end \
             for i = 1, 100 do local s = cjson.decode(text) end return #t .. ''",
        ] {
            let script = compiled(&engine, script);
            for _ in 0..3 {
                assert_eq!(run(&mut engine, &script, &mut Host::of(0, 0)), "15000");
            }
        }
    }
}
