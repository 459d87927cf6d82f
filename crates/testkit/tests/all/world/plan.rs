//! The plan that a seed makes: the size of a world, its weather, and its events.

use larder_eventloop::sim::Weather;

use crate::world::door::LISTENERS;
use crate::world::random::Random;

/// How much the store has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// All items.
    Ample,
    /// Not all items: some are evicted.
    Evicts,
    /// Not all items: writes are refused.
    Refuses,
}

/// How the system's clock jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    None,
    Forward,
    /// Items have no expiry then: an expired item may or may not come back with the clock.
    BothWays,
}

/// The plan of a world.
#[derive(Clone, Debug)]
pub struct Plan {
    pub workers: usize,
    pub memory: Memory,
    /// Owners of keys, of all dialects.
    pub owners: usize,
    pub listeners: usize,
    pub keys: usize,
    /// Number of requests of each owner.
    pub requests: u64,
    /// Requests on their way at a time.
    pub depth: usize,
    /// Most bytes of a value.
    pub value_max: usize,
    /// Items that are stored before the first client comes.
    pub fill: u64,
    pub steps: Steps,
    pub flushes: bool,
    pub resets: bool,
    pub kills: bool,
    pub stalls: bool,
    pub refusals: bool,
    pub tuning: bool,
    /// Once, more clients connect at a time than stalled workers can be handed.
    pub crowd: bool,
    /// The server is stopped during the traffic, not after it.
    pub stops_early: bool,
    /// RESP clients run scripts. `script_kills`: an administrator kills them.
    pub scripts: bool,
    pub script_kills: bool,
    /// RESP clients push to lists, pop from them, and wait for their elements.
    pub queues: bool,
    /// Which listeners speak TLS.
    pub tls: [bool; LISTENERS],
    /// Clients are users with rules, and an administrator changes them.
    pub users: bool,
    /// Scrapers ask an HTTP thread.
    pub http: bool,
}

impl Plan {
    /// The plan of a seed. `later` gives draws for options that were added later: the other options, and
    /// worlds without the added ones, stay as they were.
    pub fn draw(random: &mut Random, later: &mut Random) -> Plan {
        let plan = Plan::draw_first(random);
        let speaks = later.of(&[[true, true], [true, false], [false, true]]);
        let tls = if later.one_in(4) { speaks } else { [false; LISTENERS] };
        let users = later.one_in(3);
        let http = later.one_in(3);
        // A crowd's connections are unauthenticated, and few of these are allowed. With TLS each is charged a
        // handshake, for which small stores have no memory.
        let crowd = plan.crowd && !users && !tls.contains(&true);
        Plan { tls, users, crowd, http, ..plan }
    }

    fn draw_first(random: &mut Random) -> Plan {
        let memory = random.of(&[Memory::Ample, Memory::Ample, Memory::Evicts, Memory::Refuses]);
        let some = |random: &mut Random| random.one_in(2);
        Plan {
            workers: 2 + random.index(2),
            memory,
            owners: 4 + random.index(8),
            listeners: random.index(4),
            keys: 4 + random.index(8),
            requests: 60 + random.below(120),
            depth: random.of(&[1, 3, 10, 30]),
            value_max: random.of(&[200, 20_000, 70_000, 150_000]),
            fill: match memory {
                Memory::Ample if random.one_in(3) => random.below(20_000),
                Memory::Ample => 0,
                Memory::Evicts | Memory::Refuses => 50_000 + random.below(50_000),
            },
            steps: random.of(&[Steps::None, Steps::Forward, Steps::BothWays]),
            flushes: random.one_in(3),
            resets: some(random),
            kills: some(random),
            stalls: some(random),
            refusals: some(random),
            tuning: some(random),
            stops_early: random.one_in(3),
            crowd: random.one_in(6),
            scripts: random.one_in(2),
            script_kills: some(random),
            queues: some(random),
            tls: [false; LISTENERS],
            users: false,
            http: false,
        }
    }

    /// True if a listener speaks TLS.
    pub fn speaks_tls(&self) -> bool {
        self.tls.contains(&true)
    }

    /// True if clients send wrong passwords. The server delays what such a client sends next, for ever if the
    /// clock is set back again and again.
    pub fn has_wrong_passwords(&self) -> bool {
        self.users && self.steps != Steps::BothWays
    }

    /// True if there are shared counters and contended keys. Their sums must be exact, so nothing may remove
    /// items.
    pub fn contends(&self) -> bool {
        self.memory == Memory::Ample && !self.flushes
    }

    /// True if scripts move money. The sum of all money must stay exact.
    pub fn moves_money(&self) -> bool {
        self.scripts && self.contends()
    }

    /// True if clients push to lists and pop from them. Each element is accounted for, so nothing else may
    /// remove one.
    pub fn has_queues(&self) -> bool {
        self.queues && self.contends()
    }

    /// True if scripts run commands on their clients' keys. That needs memory for the keys, and for their
    /// values in Lua.
    pub fn scripts_own_keys(&self) -> bool {
        self.scripts && self.memory == Memory::Ample && self.value_max <= 20_000
    }

    pub fn memory_mb(&self) -> u64 {
        if self.memory == Memory::Ample { 64 } else { 12 }
    }

    /// Draws the weather for some time. Bytes come one by one only if values are short.
    pub fn weather(&self, random: &mut Random) -> Weather {
        let least = if self.value_max > 1000 { 1 } else { 0 };
        let sizes = [1, 300, 4096, usize::MAX, usize::MAX, usize::MAX];
        let mut size = || sizes[least + random.index(sizes.len() - least)];
        let (receive_max, send_max) = (size(), size());
        let window = random.of(&[500, 8 << 10, 64 << 10, 256 << 10, 256 << 10]);
        Weather { receive_max, send_max, window, arbitrary: !random.one_in(3) }
    }
}
