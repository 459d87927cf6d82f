//! The axes of the matrix, and which of their combinations are measured.

use std::time::Duration;

use super::BATCH;
use crate::driver::own::Way;
use crate::driver::{Job, MANY_KEYS};

/// Bytes that are sent together at most, by hand or as a batch of Larder's own client.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Keys of a request for many.
pub const MGET_KEYS: u32 = MANY_KEYS;

/// libmemcached's options: a bit for each that is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Options(pub u8);

/// Names of the options, in the order of their bits.
pub const OPTIONS: [&str; 3] = ["NO_BLOCK", "NODELAY", "BUFFER"];
/// The bits.
pub const NO_BLOCK: u8 = 1;
/// `TCP_NODELAY`.
pub const NODELAY: u8 = 2;
/// `BUFFER_REQUESTS`.
pub const BUFFER: u8 = 4;

impl Options {
    /// All combinations.
    pub fn all() -> impl Iterator<Item = Options> {
        (0..8).map(Options)
    }

    /// Whether an option is on.
    pub fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    /// The options that are on, as tables show them.
    pub fn name(self) -> String {
        let on: Vec<&str> = (0..3).filter(|at| self.has(1 << at)).map(|at| OPTIONS[at]).collect();
        if on.is_empty() { "none".to_owned() } else { on.join(" + ") }
    }

    /// The options in the original article's form: (OFF,ON,OFF).
    pub fn as_written(self) -> String {
        let words = [NO_BLOCK, NODELAY, BUFFER].map(|bit| if self.has(bit) { "ON" } else { "OFF" });
        format!("({})", words.join(","))
    }
}

/// The client of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Client {
    /// libmemcached with these options.
    Library(Options),
    /// A loop by hand, one request at a time.
    ByHand,
    /// A loop by hand that sends [`BATCH`] requests together and reads as many replies.
    Batch,
    /// Larder's own client, in one of its ways to write; it reads one by one.
    Own(Way),
}

impl Client {
    /// All clients.
    pub fn all() -> impl Iterator<Item = Client> {
        let others = [Client::ByHand, Client::Batch].into_iter().chain(Way::ALL.map(Client::Own));
        Options::all().map(Client::Library).chain(others)
    }

    /// Its name in tables.
    pub fn name(self) -> String {
        match self {
            Client::Library(options) => options.name(),
            Client::ByHand => "by hand".to_owned(),
            Client::Batch => format!("by hand, {BATCH} together"),
            Client::Own(way) => way.name().to_owned(),
        }
    }

    /// libmemcached's options; none of another client.
    pub fn options(self) -> Option<Options> {
        match self {
            Client::Library(options) => Some(options),
            Client::ByHand | Client::Batch | Client::Own(_) => None,
        }
    }
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Stores a value.
    Set,
    /// Reads a value.
    Get,
    /// Deletes a key that exists.
    Delete,
    /// Reads [`MGET_KEYS`] keys.
    Mget,
}

impl Op {
    /// All kinds.
    pub const ALL: [Op; 4] = [Op::Set, Op::Get, Op::Delete, Op::Mget];

    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Op::Set => "set",
            Op::Get => "get",
            Op::Delete => "delete",
            Op::Mget => "mget",
        }
    }

    /// The driver's number for it.
    pub fn number(self) -> u8 {
        match self {
            Op::Set => 0,
            Op::Get => 1,
            Op::Delete => 2,
            Op::Mget => 3,
        }
    }

    /// Whether it changes stored data.
    pub fn writes(self) -> bool {
        matches!(self, Op::Set | Op::Delete)
    }
}

/// How long a handle lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Handle {
    /// It is used for all calls.
    Kept,
    /// It is used for one call: the original article's way.
    Churn,
}

impl Handle {
    /// Both.
    pub const ALL: [Handle; 2] = [Handle::Kept, Handle::Churn];

    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Handle::Kept => "kept",
            Handle::Churn => "churn",
        }
    }
}

/// Whether writes have replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
    /// They have.
    Awaited,
    /// They have none, by `noreply`.
    Noreply,
}

impl Reply {
    /// Both.
    pub const ALL: [Reply; 2] = [Reply::Awaited, Reply::Noreply];

    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Reply::Awaited => "awaited",
            Reply::Noreply => "noreply",
        }
    }
}

/// The way between driver and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Link {
    /// A direct connection.
    Loopback,
    /// A relay that adds this many milliseconds to a round trip.
    Relay(u32),
}

impl Link {
    /// Its name in options and tables.
    pub fn name(self) -> String {
        match self {
            Link::Loopback => "loopback".to_owned(),
            Link::Relay(ms) => format!("relay-{ms}ms"),
        }
    }

    /// Reads a name, for clap.
    ///
    /// # Errors
    /// The names that there are.
    pub fn parse(text: &str) -> Result<Link, String> {
        let ms = text.strip_prefix("relay-").and_then(|rest| rest.strip_suffix("ms"));
        match (text, ms.and_then(|ms| ms.parse::<u32>().ok())) {
            ("loopback", _) => Ok(Link::Loopback),
            (_, Some(ms @ 1..=1000)) => Ok(Link::Relay(ms)),
            _ => Err("expected loopback, or a relay as relay-1ms, of 1 to 1000 ms".to_owned()),
        }
    }
}

/// One point of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Setting {
    /// The client of the calls.
    pub client: Client,
    /// The kind of the calls.
    pub op: Op,
    /// Bytes of values.
    pub value_bytes: usize,
    /// The life of handles.
    pub handle: Handle,
    /// Whether writes have replies.
    pub reply: Reply,
    /// The way to the server.
    pub link: Link,
}

/// Why a point of the grid is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// Reads have replies.
    ReadsAreAnswered,
    /// Deletes carry no value.
    DeletesAreAlike,
    /// The relay's own sockets have `TCP_NODELAY`, and acknowledge for the server.
    NodelayEndsAtTheRelay,
    /// The loop by hand has no options.
    NoOptions,
    /// This many large values together are no batch.
    TooMuchForABatch,
    /// Larder's own client keeps its connections.
    OwnIsKept,
    /// Each way of Larder's own client is for writes with one kind of reply.
    WaysAreOfWrites,
}

impl LeftOut {
    /// The reason in the words of a note.
    pub fn words(self) -> &'static str {
        match self {
            LeftOut::ReadsAreAnswered => "NOREPLY is of writes: reads are measured awaited alone",
            LeftOut::DeletesAreAlike => {
                "a delete carries no value: deletes are measured at the smallest size alone"
            }
            LeftOut::NodelayEndsAtTheRelay => {
                "a relay ends TCP on both sides, and has TCP_NODELAY itself: over it the option is left off"
            }
            LeftOut::NoOptions => "the loop by hand has no options: it is measured once, awaited",
            LeftOut::TooMuchForABatch => {
                "a batch is of writes over a kept connection, as far as it is no more than 1 MiB"
            }
            LeftOut::OwnIsKept => {
                "larder-client keeps its connections: it is measured over a kept handle alone"
            }
            LeftOut::WaysAreOfWrites => {
                "larder-client reads one by one, and writes quietly where there are no replies"
            }
        }
    }
}

/// Whether a batch of values of this size is more than may be sent together.
fn is_too_much(value_bytes: usize) -> bool {
    value_bytes * BATCH as usize > BATCH_BYTES_MAX
}

impl Setting {
    /// Why the point is not measured, if it is not; `smallest` is the smallest size of the run.
    pub fn left_out(&self, smallest: usize) -> Option<LeftOut> {
        let Setting { client, op, value_bytes, handle, reply, link } = *self;
        if reply == Reply::Noreply && !op.writes() {
            return Some(LeftOut::ReadsAreAnswered);
        }
        if op == Op::Delete && value_bytes > smallest {
            return Some(LeftOut::DeletesAreAlike);
        }
        match client {
            Client::Library(options) if options.has(NODELAY) && link != Link::Loopback => {
                Some(LeftOut::NodelayEndsAtTheRelay)
            }
            Client::Library(_) => None,
            Client::ByHand | Client::Batch if reply == Reply::Noreply => Some(LeftOut::NoOptions),
            Client::Batch
                if !op.writes() || handle == Handle::Churn || (op == Op::Set && is_too_much(value_bytes)) =>
            {
                Some(LeftOut::TooMuchForABatch)
            }
            Client::Own(_) if handle == Handle::Churn => Some(LeftOut::OwnIsKept),
            Client::Own(way) if !way.takes(op.writes(), reply == Reply::Noreply) => {
                Some(LeftOut::WaysAreOfWrites)
            }
            Client::Own(Way::Batch) if op == Op::Set && is_too_much(value_bytes) => {
                Some(LeftOut::TooMuchForABatch)
            }
            Client::ByHand | Client::Batch | Client::Own(_) => None,
        }
    }

    /// The driver's job, except for the server, the keys and the time.
    pub fn job(&self) -> Job {
        let options = self.client.options();
        let on = |bit| options.is_some_and(|options| options.has(bit));
        Job {
            by_hand: options.is_none(),
            churn: self.handle == Handle::Churn,
            no_block: on(NO_BLOCK),
            nodelay: on(NODELAY),
            buffer: on(BUFFER),
            noreply: self.reply == Reply::Noreply,
            op: self.op.number(),
            value_bytes: self.value_bytes,
            batch: if matches!(self.client, Client::Batch | Client::Own(Way::Batch)) { BATCH } else { 1 },
            way: if let Client::Own(way) = self.client { way } else { Way::default() },
            ..Job::default()
        }
    }

    /// Whether calls return "queued". Those of a stream do. Those of the library do for a delete that it buffers even if no reply
    /// is wanted, and not for such a set.
    pub fn is_queued(&self) -> bool {
        match self.client {
            Client::Library(options) => {
                let is_told = self.op == Op::Delete || self.op == Op::Set && self.reply == Reply::Awaited;
                options.has(BUFFER) && is_told
            }
            Client::Own(Way::Stream | Way::Quiet) => self.op.writes(),
            Client::ByHand | Client::Batch | Client::Own(Way::OneByOne | Way::Batch) => false,
        }
    }

    /// Whether the end of the last call is invisible: a handle that is closed behind a request without a reply waits for nothing,
    /// and the next call has another connection.
    pub fn has_no_barrier(&self) -> bool {
        self.handle == Handle::Churn && self.reply == Reply::Noreply
    }

    /// The point in a word, for progress and errors.
    pub fn words(&self) -> String {
        let Setting { client, op, value_bytes, handle, reply, link } = self;
        let (op, handle, reply) = (op.name(), handle.name(), reply.name());
        format!("{op} {value_bytes} B, {}, {handle}, {reply}, {}", client.name(), link.name())
    }

    /// The same point, except for the client.
    pub fn point(&self) -> GridPoint {
        let Setting { op, value_bytes, handle, reply, link, .. } = *self;
        GridPoint { op, value_bytes, handle, reply, link }
    }
}

/// A point of the grid without its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GridPoint {
    /// The kind of the calls.
    pub op: Op,
    /// Bytes of values.
    pub value_bytes: usize,
    /// The life of handles.
    pub handle: Handle,
    /// Whether writes have replies.
    pub reply: Reply,
    /// The way to the server.
    pub link: Link,
}

/// The settings that are varied.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Kinds of calls.
    pub ops: Vec<Op>,
    /// Bytes of values, ascending.
    pub sizes: Vec<usize>,
    /// Lives of handles.
    pub handles: Vec<Handle>,
    /// With and without replies.
    pub replies: Vec<Reply>,
    /// Ways to the server.
    pub links: Vec<Link>,
}

impl Grid {
    /// All points that are measured, and why others are not.
    pub fn settings(&self) -> (Vec<Setting>, Vec<LeftOut>) {
        let clients: Vec<Client> = Client::all().collect();
        let smallest = self.sizes.first().copied().unwrap_or(0);
        let (mut measured, mut left_out) = (Vec::new(), Vec::new());
        for &link in &self.links {
            for &handle in &self.handles {
                for &op in &self.ops {
                    for &value_bytes in &self.sizes {
                        for &reply in &self.replies {
                            for &client in &clients {
                                let setting = Setting { client, op, value_bytes, handle, reply, link };
                                match setting.left_out(smallest) {
                                    None => measured.push(setting),
                                    Some(why) => left_out.push(why),
                                }
                            }
                        }
                    }
                }
            }
        }
        left_out.sort_unstable();
        left_out.dedup();
        (measured, left_out)
    }
}

/// How long a relay holds a byte, one way.
pub fn one_way(ms: u32) -> Duration {
    Duration::from_millis(ms.into()) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid {
            ops: Op::ALL.to_vec(),
            sizes: vec![8, 300_000],
            handles: Handle::ALL.to_vec(),
            replies: Reply::ALL.to_vec(),
            links: vec![Link::Loopback, Link::Relay(1)],
        }
    }

    #[test]
    fn the_grid_has_every_point_once_but_those_that_say_nothing() {
        let (settings, left_out) = grid().settings();
        let mut distinct = settings.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), settings.len());
        assert_eq!(left_out.len(), 7, "{left_out:?}");
        let count = |wanted: &dyn Fn(&Setting) -> bool| settings.iter().filter(|s| wanted(s)).count();
        // For the library, over loopback: 8 options × 2 handles × (4 sets + 2 deletes + 2 gets + 2 mgets).
        assert_eq!(count(&|s| s.client.options().is_some() && s.link == Link::Loopback), 8 * 2 * 10);
        assert_eq!(count(&|s| s.client.options().is_some() && s.link != Link::Loopback), 4 * 2 * 10);
        assert_eq!(count(&|s| s.client == Client::ByHand && s.link == Link::Loopback), 2 * (2 + 1 + 2 + 2));
        // 64 values of 300,000 B are more than a batch.
        assert_eq!(count(&|s| s.client == Client::Batch && s.link == Link::Loopback), 2);
        // One by one 2 sets, a delete, 2 gets and 2 mgets; together a set and a delete; streams 2 sets and a delete.
        let own = |way| count(&|s| s.client == Client::Own(way) && s.link == Link::Relay(1));
        assert_eq!(Way::ALL.map(own), [7, 2, 3, 3]);
        assert_eq!(count(&|s| matches!(s.client, Client::Own(_)) && s.handle == Handle::Churn), 0);
        let quiet = |s: &Setting| s.client == Client::Own(Way::Quiet);
        assert!(settings.iter().filter(|s| quiet(s)).all(|s| s.reply == Reply::Noreply && s.is_queued()));
        assert_eq!(count(&|s| s.reply == Reply::Noreply && !s.op.writes()), 0);
        assert_eq!(count(&|s| s.op == Op::Delete && s.value_bytes != 8), 0);
    }

    #[test]
    fn options_and_links_have_their_names() {
        let names: Vec<String> = Options::all().map(Options::name).collect();
        assert_eq!((names[0].as_str(), names[7].as_str()), ("none", "NO_BLOCK + NODELAY + BUFFER"));
        assert_eq!(Options(NODELAY).as_written(), "(OFF,ON,OFF)");
        assert_eq!(
            (Link::parse("relay-5ms"), Link::parse("loopback")),
            (Ok(Link::Relay(5)), Ok(Link::Loopback))
        );
        for bad in ["relay", "relay-0ms", "relay-1001ms", "relay-1", "netem"] {
            assert!(Link::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_job_says_what_its_setting_says() {
        let setting = Setting {
            client: Client::Library(Options(NO_BLOCK | BUFFER)),
            op: Op::Set,
            value_bytes: 100,
            handle: Handle::Kept,
            reply: Reply::Awaited,
            link: Link::Loopback,
        };
        let job = setting.job();
        assert!(job.no_block && !job.nodelay && job.buffer && !job.by_hand && !job.churn && !job.noreply);
        assert!(setting.is_queued() && !Setting { op: Op::Get, ..setting }.is_queued());
        let unanswered = Setting { reply: Reply::Noreply, ..setting };
        assert!(!unanswered.is_queued() && Setting { op: Op::Delete, ..unanswered }.is_queued());
        assert!(
            !unanswered.has_no_barrier() && Setting { handle: Handle::Churn, ..unanswered }.has_no_barrier()
        );
        let batch = Setting { client: Client::Batch, ..setting }.job();
        assert!(batch.by_hand && batch.batch == BATCH && !batch.buffer);
        let own = |way| Setting { client: Client::Own(way), ..setting };
        assert_eq!(Way::ALL.map(|way| own(way).job().way), Way::ALL);
        assert_eq!(Way::ALL.map(|way| own(way).job().batch), [1, BATCH, 1, 1]);
        assert_eq!(Way::ALL.map(|way| own(way).is_queued()), [false, false, true, true]);
    }
}
