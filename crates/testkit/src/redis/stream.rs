//! Random RESP commands: what clients send, and now and then wrong arguments.
//!
//! Each command is a template of [`FORMS`], filled in from few keys and odd values, so that commands meet and
//! limits are hit. The choices come from a seed or from bytes: a fuzzer that changes one byte changes one
//! choice.
//!
//! ```text
//! %k %v %i …   a key, a value, an integer … (see [`Choices::word`])
//! [a %i|b]     one of these, or nothing
//! {a %i|b}     none to three of these
//! (a|b)        one of these
//! ```

use super::{forms, lua};

/// Where choices come from.
#[derive(Clone, Debug)]
pub enum Choices<'b> {
    /// The state of a generator, which each choice changes.
    Seed(u64),
    /// One byte for each choice; when all are used up, the stream ends.
    Bytes(&'b [u8]),
}

/// Bytes of the longest values that collections are sent. An element of such a value and the longest name is
/// still allowed.
const ELEMENT_BYTES: usize = 16_000;

/// Templates, as [`Choices::command`] reads them.
pub const FORMS: &[&str] = &[
    // Strings.
    "GET %k",
    "GET %k",
    "SET %k %v",
    "SET %k %v",
    "SET %k %n",
    "SET %k %v {NX|XX|GET|KEEPTTL|EX %s|PX %m|EXAT %T|PXAT %U|%w}",
    "SET %k %v [NX|XX] [GET] [EX %s|PX %m|EXAT %T|PXAT %U|KEEPTTL]",
    "MGET %k %k {%k}",
    "GETSET %k %v",
    "GETDEL %k",
    "GETEX %k [EX %s|PX %m|EXAT %T|PXAT %U|PERSIST]",
    "GETEX %k {EX %s|PX %m|EXAT %T|PXAT %U|PERSIST|%w}",
    "SETNX %k %v",
    "SETEX %k %s %v",
    "PSETEX %k %m %v",
    "STRLEN %k",
    "APPEND %k %v",
    "GETRANGE %k %r %r",
    "SUBSTR %k %r %r",
    "SETRANGE %k %o %v",
    "INCR %k",
    "DECR %k",
    "INCRBY %k %i",
    "DECRBY %k %i",
    "INCRBYFLOAT %k %f",
    "MSET %k %v {%k %v}",
    "MSETNX %k %v {%k %v}",
    "LCS %k %k {LEN|IDX|MINMATCHLEN %i|WITHMATCHLEN|%w}",
    // Keys.
    "DEL %k {%k}",
    "UNLINK %k {%k}",
    "EXISTS %k {%k}",
    "TOUCH %k {%k}",
    "TYPE %k",
    "EXPIRE %k %s {NX|XX|GT|LT|%w}",
    "PEXPIRE %k %m {NX|XX|GT|LT}",
    "EXPIREAT %k %t {NX|XX|GT|LT}",
    "PEXPIREAT %k %u {NX|XX|GT|LT}",
    "EXPIRE %k %s",
    "TTL %k",
    "PTTL %k",
    "EXPIRETIME %k",
    "PEXPIRETIME %k",
    "PERSIST %k",
    "RENAME %k %k",
    "RENAMENX %k %k",
    "COPY %k %k {DB %d|REPLACE}",
    "MOVE %k %d",
    "DUMP %k",
    "RESTORE %k %z %y {REPLACE|ABSTTL|IDLETIME %z|FREQ %i|%w}",
    "RESTORE %k %z %y REPLACE",
    "WAIT 0 %z",
    "KEYS %p",
    "SCAN 0 COUNT 100000",
    "SCAN 0 {MATCH %p|COUNT %i|TYPE string|TYPE hash|%w}",
    "RANDOMKEY",
    "OBJECT ENCODING %k",
    "OBJECT REFCOUNT %k",
    // Bitmaps.
    "SETBIT %k %o %b",
    "GETBIT %k %o",
    "BITCOUNT %k",
    "BITCOUNT %k %r %r [BYTE|BIT|%w]",
    "BITPOS %k %b",
    "BITPOS %k %b %r [%r]",
    "BITPOS %k %b %r %r [BYTE|BIT|%w]",
    "BITOP (AND|OR|XOR) %k %k {%k}",
    "BITOP (NOT|AND|%w) %k %k",
    "BITFIELD %k {GET %e %o|SET %e %o %j|INCRBY %e %o %j|OVERFLOW WRAP|OVERFLOW SAT|OVERFLOW FAIL|%w}",
    "BITFIELD %k (GET %e #%b|SET %e #%b %j|INCRBY %e %o %j)",
    "BITFIELD %k OVERFLOW (SAT|FAIL|WRAP) INCRBY %e %o %j SET %e %o %j",
    "BITFIELD_RO %k {GET %e %o|SET %e %o %j}",
    // Transactions.
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH %k {%k}",
    "UNWATCH",
    // Databases, connections and the server.
    "SELECT %d",
    "SELECT 0",
    "SWAPDB %d %d",
    "DBSIZE",
    "FLUSHDB [ASYNC|SYNC|%w]",
    "FLUSHALL [ASYNC|SYNC]",
    "PING [%v]",
    "ECHO %v",
    "CLIENT (SETNAME %w|GETNAME|NO-EVICT ON|NO-EVICT OFF|ID)",
    "CLIENT (REPLY ON|REPLY %w|KILL %w|NOSUCH|UNBLOCK %i|NO-EVICT %w)",
    "COMMAND (GETKEYS GET %k|GETKEYS MSET %k %v %k %v|GETKEYS SET %k|GETKEYS %w %k|GETKEYS BITOP AND %k %k)",
    "COMMAND (INFO nosuch|NOSUCH|DOCS nosuch)",
    "CONFIG (GET nosuch|SET nosuch 1|SET maxmemory abc|NOSUCH|SET %w)",
    "DEBUG (PROTOCOL (map|set|double|null|bignum|true|false|attrib|verbatim|string|array))",
    "HELLO (2|3|4|x)",
    "HELLO 3 (AUTH default x|SETNAME %w|%w|AUTH %w)",
    "AUTH %w [%w]",
    "RESET",
    "OBJECT (FREQ nosuchkey|IDLETIME nosuchkey|ENCODING|NOSUCH)",
    "SLOWLOG (LEN|RESET|NOSUCH|GET %w)",
    "LATENCY (LATEST|RESET|HISTORY %w|NOSUCH)",
    "PUBSUB (CHANNELS|NUMSUB a|NUMPAT|NOSUCH|SHARDCHANNELS|SHARDNUMSUB a b)",
    "PUBLISH a %v",
    "FUNCTION FLUSH [ASYNC]",
    "NOSUCH %v %v",
    "EXPIRE %k 10 %k",
];

/// Templates of commands and options that Redis 7 lacks.
pub const NEWER_FORMS: &[&str] = &[
    "SET %k %v (IFEQ|IFNE) %v {GET|KEEPTTL|EX %s}",
    "SET %k %v {IFEQ %v|IFNE %v|NX|XX|GET|KEEPTTL|EX %s}",
    "DELEX %k [IFEQ %v|IFNE %v|%w]",
    "DELIFEQ %k %v",
    "MSETEX 2 %k %v %k %v {NX|XX|EX %s|PXAT %U|KEEPTTL|%w}",
    "MSETEX %i %k %v {%k %v} [NX] [PX %m]",
    "CL.THROTTLE %k 2 5 60 [%i]",
    "CL.THROTTLE %k %i %i %i [%i]",
    "BITOP (DIFF|DIFF1|ANDOR|ONE) %k %k {%k}",
    "BITFIELD %k {GET %e %o|SET %e %o %i|INCRBY %e %o %i|OVERFLOW SAT|OVERFLOW FAIL}",
    "TOUCH %k %k",
    "WAIT %i %z",
    "CLIENT GETNAME",
];

/// Templates of commands on collections, which have keys of their own. Their results do not depend on chance, nor on a server's
/// own order.
pub const ELEMENT_FORMS: &[&str] = &[
    // Hashes.
    "HSET %h %g %V {%g %V}",
    "HSET %h %g %n",
    "HMSET %h %g %V {%g %V}",
    "HSETNX %h %g %V",
    "HGET %h %g",
    "HMGET %h %g {%g}",
    "HGETALL %h",
    "HKEYS %h",
    "HVALS %h",
    "HDEL %h %g {%g}",
    "HEXISTS %h %g",
    "HLEN %h",
    "HSTRLEN %h %g",
    "HINCRBY %h %g %i",
    "HINCRBYFLOAT %h %g (0.5|1|-1.25|x|10)",
    "HRANDFIELD %h [1000]",
    "HRANDFIELD %h 1000 WITHVALUES",
    "HSCAN %h 0 {MATCH %p|COUNT 1000|NOVALUES|%w}",
    // Fields that expire.
    "HEXPIRE %h %s [NX|XX|GT|LT|%w] FIELDS 1 %g",
    "HEXPIRE %h %s FIELDS 2 %g %g",
    "HPEXPIRE %h %m [NX|XX|GT|LT] FIELDS (2|%i) %g %g",
    "HEXPIREAT %h %T [NX|XX] FIELDS 1 %g",
    "HPEXPIREAT %h %U [NX|XX] FIELDS 3 %g %g %g",
    "HTTL %h FIELDS 2 %g %g",
    "HTTL %h (FIELDS|%w) %i %g {%g}",
    "HPTTL %h FIELDS 1 %g",
    "HEXPIRETIME %h FIELDS 2 %g %g",
    "HPEXPIRETIME %h FIELDS 1 %g",
    "HPERSIST %h FIELDS 2 %g %g",
    "HPERSIST %h FIELDS %i %g {%g}",
    "HGETDEL %h FIELDS 2 %g %g",
    "HGETDEL %h FIELDS %i %g {%g}",
    "HGETEX %h [EX %s|PX %m|EXAT %T|PXAT %U|PERSIST|%w] FIELDS 2 %g %g",
    "HGETEX %h {EX %s|PERSIST} FIELDS %i %g {%g}",
    "HSETEX %h [FNX|FXX] [EX %s|PX %m|EXAT %T|PXAT %U|KEEPTTL] FIELDS 1 %g %V",
    "HSETEX %h {FNX|FXX|EX %s|KEEPTTL|%w} FIELDS (1|2|%i) %g %V {%g %V}",
    // Lists.
    "LPUSH %l %g {%g}",
    "RPUSH %l %g {%W}",
    "LPUSHX %l %g",
    "RPUSHX %l %g",
    "LPOP %l [%i]",
    "RPOP %l [%i]",
    "LLEN %l",
    "LRANGE %l %r %r",
    "LINDEX %l %r",
    "LSET %l %r %g",
    "LINSERT %l (BEFORE|AFTER|%w) %g %g",
    "LREM %l %r %g",
    "LTRIM %l %r %r",
    "LPOS %l %g {RANK %r|COUNT %i|MAXLEN %i|%w}",
    "LMOVE %l %l (LEFT|RIGHT|%w) (LEFT|RIGHT)",
    "RPOPLPUSH %l %l",
    "LMPOP 2 %l %l (LEFT|RIGHT) [COUNT %i]",
    "LMPOP %i %l (LEFT|RIGHT) {COUNT %i|%w}",
    // Sets.
    "SADD %q %g {%g}",
    "SADD %q %g {%W}",
    "SREM %q %g {%g}",
    "SMEMBERS %q",
    "SISMEMBER %q %g",
    "SMISMEMBER %q %g {%g}",
    "SCARD %q",
    "SPOP %q (1000|1000|%x) [%x]",
    "SRANDMEMBER %q [1000]",
    "SMOVE %q %q %g",
    "SSCAN %q 0 {MATCH %p|COUNT 1000|%w}",
    "SINTER %q {%q}",
    "SUNION %q {%q}",
    "SDIFF %q {%q}",
    "SINTERSTORE %q %q {%q}",
    "SUNIONSTORE %q %q {%q}",
    "SDIFFSTORE %q %q {%q}",
    "SINTERCARD 2 %q %q [LIMIT %i]",
    "SINTERCARD %i %q {%q|LIMIT %i}",
    // Sorted sets.
    "ZADD %Z %c %g {%c %g}",
    "ZADD %Z %c %g",
    "ZADD %Z {NX|XX|GT|LT|CH|INCR|%w} %c %g [%c %g]",
    "ZINCRBY %Z %c %g",
    "ZREM %Z %g {%g}",
    "ZSCORE %Z %g",
    "ZMSCORE %Z %g {%g}",
    "ZCARD %Z",
    "ZCOUNT %Z %B %B",
    "ZRANK %Z %g",
    "ZREVRANK %Z %g",
    "ZRANGE %Z %r %r {REV|WITHSCORES|%w}",
    "ZRANGE %Z %B %B BYSCORE {REV|WITHSCORES|LIMIT %r %r}",
    "ZREVRANGE %Z %r %r [WITHSCORES]",
    "ZRANGEBYSCORE %Z %B %B {WITHSCORES|LIMIT %r %r}",
    "ZREVRANGEBYSCORE %Z %B %B {WITHSCORES|LIMIT %r %r}",
    "ZRANGESTORE %Z %Z %r %r [REV]",
    "ZRANGESTORE %Z %Z %B %B BYSCORE {REV|LIMIT %r %r}",
    "ZREMRANGEBYRANK %Z %r %r",
    "ZREMRANGEBYSCORE %Z %B %B",
    "ZPOPMIN %Z [%i]",
    "ZPOPMAX %Z [%i]",
    "ZMPOP 2 %Z %Z (MIN|MAX) [COUNT %i]",
    "ZRANDMEMBER %Z [1000]",
    "ZRANDMEMBER %Z 1000 WITHSCORES",
    "ZSCAN %Z 0 {MATCH %p|COUNT 1000}",
    "ZSCAN %Z 0 NOSCORES {MATCH %p|COUNT 1000|%w}",
    "ZUNION 2 %Z %Z {WEIGHTS %c %c|AGGREGATE (SUM|MIN|MAX)|WITHSCORES}",
    "ZINTER 2 %Z %Z {WEIGHTS %c %c|AGGREGATE (SUM|MIN|MAX)|WITHSCORES}",
    "ZDIFF 2 %Z %Z [WITHSCORES]",
    "ZUNIONSTORE %Z 2 %Z %q {WEIGHTS %c %c|AGGREGATE (SUM|MIN|MAX)}",
    "ZINTERSTORE %Z 2 %Z %Z {WEIGHTS %c %c|AGGREGATE (SUM|MIN|MAX)}",
    "ZDIFFSTORE %Z 2 %Z %Z",
    "ZINTERCARD 2 %Z %Z [LIMIT %i]",
    // Sorted sets whose members have one score: what lies between two members is undefined where scores differ.
    "ZADD %E 0 %g {0 %g}",
    "ZADD %E 0 %g {0 %g}",
    "ZREM %E %g {%g}",
    "ZLEXCOUNT %E %L %L",
    "ZRANGEBYLEX %E %L %L [LIMIT %r %r]",
    "ZREVRANGEBYLEX %E %L %L [LIMIT %r %r]",
    "ZRANGE %E %L %L BYLEX {REV|LIMIT %r %r|WITHSCORES|%w}",
    "ZRANGESTORE %E %E %L %L BYLEX {REV|LIMIT %r %r|%w}",
    "ZREMRANGEBYLEX %E %L %L",
    "ZUNIONSTORE %E 2 %E %E",
    // HyperLogLogs, and strings that are none.
    "PFADD %P {%g}",
    "PFADD %P %i {%i|%v|%r}",
    "PFCOUNT %P",
    "PFCOUNT %P %P {%P|%k}",
    "PFMERGE %P {%P}",
    "PFDEBUG (ENCODING|DECODE|GETREG|TODENSE|%w) %P",
    "GET %P",
    "DUMP %P",
    // Places in sorted sets.
    "GEOADD %Z %O %A %g {%O %A %g}",
    "GEOADD %Z {NX|XX|CH|%w} %O %A %g",
    "GEODIST %Z %g %g [(m|KM|ft|mi|%w)]",
    "GEOHASH %Z {%g}",
    "GEOPOS %Z {%g}",
    "GEOSEARCH %Z (FROMMEMBER %g|FROMLONLAT %O %A) (BYRADIUS %D (m|km|mi)|BYBOX %D %D (ft|km)) {ASC|WITHDIST|WITHHASH|%w}",
    "GEOSEARCH %Z FROMLONLAT %O %A BYRADIUS %D km {WITHCOORD|WITHHASH|COUNT %i|COUNT 2 ANY}",
    "GEOSEARCHSTORE %Z %Z (FROMMEMBER %g|FROMLONLAT %O %A) BYRADIUS %D km {DESC|STOREDIST|%w}",
    "GEORADIUS %Z %O %A %D km {ASC|WITHDIST|STORE %Z|STOREDIST %Z|%w}",
    "GEORADIUS_RO %Z %O %A %D (km|ft) {WITHHASH|DESC}",
    "GEORADIUSBYMEMBER %Z %g %D km {STORE %Z|ASC|%w}",
    "GEORADIUSBYMEMBER_RO %Z %g %D (mi|%w) {WITHDIST|ASC}",
    // Sorted by their own values, or by those of other keys.
    "SORT %l {DESC|ALPHA|LIMIT %r %i|BY nosort|%w}",
    "SORT %l ALPHA {DESC|GET #|GET %p|GET h*->%g|LIMIT %r %i}",
    "SORT %l BY (%k*|h*|h*->%g|*) {GET #|GET *|DESC|LIMIT %r %i}",
    "SORT (%q|%Z) ALPHA {DESC|LIMIT %r %i|GET #|GET *}",
    "SORT %Z BY nosort {DESC|LIMIT %r %i}",
    "SORT_RO (%l|%q|%Z|%h|%k) {DESC|ALPHA|LIMIT %r %i|GET *|STORE %l|%w}",
    "SORT (%l|%q|%Z) {ALPHA|DESC|LIMIT %r %i|GET #} STORE %l",
    "SORT %l GET %k* STORE %l",
    // Streams, but no commands that depend on the clock.
    "XADD %S %N %g %G {%g %G}",
    "XADD %S [NOMKSTREAM] [MAXLEN %i|MINID %N|MAXLEN = %i] %N %g %n",
    "XADD %S %N %g %G %g",
    "XLEN %S",
    "XRANGE %S %M %M [COUNT %i]",
    "XREVRANGE %S %M %M [COUNT %i]",
    "XDEL %S %N {%N}",
    "XTRIM %S (MAXLEN|MINID|%w) [=] %N",
    "XTRIM %S MAXLEN %i",
    "XSETID %S %N",
    "XREAD [COUNT %i] STREAMS %S %S %N %N",
    "XREAD STREAMS %S (%N|$|%w)",
    "XGROUP CREATE %S (g|h) (%N|$|0) [MKSTREAM]",
    "XGROUP SETID %S (g|h) (%N|$)",
    "XGROUP DESTROY %S (g|h)",
    "XREADGROUP GROUP (g|h) (alice|bob|%g) [COUNT %i] [NOACK] STREAMS %S >",
    "XREADGROUP GROUP (g|h) (alice|bob) [COUNT %i] STREAMS %S %N",
    "XACK %S (g|h|%w) %N {%N}",
    "XPENDING %S (g|h|%w)",
    "XCLAIM %S (g|h) (alice|bob) 0 %N {%N} [JUSTID]",
    // Types and sizes of collections, and commands on keys of any type.
    "TYPE (%h|%l|%q|%Z|%S)",
    "RENAME (%S|%l) %S",
    "COPY %S %S [REPLACE]",
    "DEL %S",
    "GET %S",
    "LLEN %S",
    "XLEN (%h|%l|%q|%Z|%k)",
    "EXISTS %h %l %q %Z",
    "DEL (%h|%l|%q|%Z)",
    "EXPIRE (%h|%l|%q|%Z) 1000",
    "TTL (%h|%l|%q|%Z)",
    "RENAME (%h|%l|%q|%Z) (%h|%l|%q|%Z)",
    "COPY (%h|%l|%q|%Z) (%h|%l|%q|%Z) [REPLACE]",
    "DUMP (%h|%l|%q|%Z)",
    "RESTORE (%h|%l|%q|%Z) %z %Y {REPLACE|ABSTTL}",
    "RESTORE (%h|%l|%q|%Z) 0 %Y REPLACE",
    "SCAN 0 COUNT 100000 TYPE (hash|list|set|zset|string)",
    "SET (%h|%l|%q|%Z) %v [GET]",
    "GET (%h|%l|%q|%Z)",
    "MGET %h %l %q %Z",
    "APPEND (%h|%l|%q|%Z) x",
    "INCR (%h|%l|%q|%Z)",
    "HLEN (%l|%q|%Z|%k)",
    "LLEN (%h|%q|%Z|%k)",
    "SCARD (%h|%l|%Z|%k)",
    "ZCARD (%h|%l|%q|%k)",
];

/// Forms, by their first words, that get only the wrong arguments that they name. Replies of the first four
/// to other ones are for people, not for programs. SPOP without a count would leave a random rest. All
/// members of `%E` must have the same score.
const AS_THEY_ARE: &[&str] = &[
    "DEBUG",
    "COMMAND",
    "FUNCTION",
    "CONFIG",
    "SPOP",
    "ZADD %E",
    "ZLEXCOUNT",
    "ZRANGEBYLEX",
    "ZREVRANGEBYLEX",
    "ZRANGE %E",
    "ZRANGESTORE %E",
    "ZREMRANGEBYLEX",
    "ZUNIONSTORE %E",
];

impl Choices<'_> {
    /// A number below `n`, which is at most 256 if choices come from bytes; 0 when they are used up.
    pub fn below(&mut self, n: usize) -> usize {
        match self {
            Choices::Seed(state) => {
                *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                ((*state >> 33) % n as u64) as usize
            }
            Choices::Bytes(bytes) => match bytes.split_first() {
                Some((first, rest)) => {
                    *bytes = rest;
                    usize::from(*first) % n
                }
                None => 0,
            },
        }
    }

    /// Whether nothing is left to choose from.
    pub fn is_empty(&self) -> bool {
        matches!(self, Choices::Bytes([]))
    }

    /// Chooses one of these.
    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A command: its name and arguments.
    pub fn command(&mut self) -> Vec<Vec<u8>> {
        let form = self.of(FORMS);
        self.spoilt(form)
    }

    /// A command, which Redis 7 may lack.
    pub fn command_of_both(&mut self) -> Vec<Vec<u8>> {
        let form = if self.below(8) == 0 { self.of(NEWER_FORMS) } else { self.of(FORMS) };
        self.spoilt(form)
    }

    /// A command, which Redis 7 may lack, or one on collections.
    pub fn command_of_any(&mut self) -> Vec<Vec<u8>> {
        if self.below(2) == 0 {
            return self.command_of_both();
        }
        let form = self.of(ELEMENT_FORMS);
        self.spoilt(form)
    }

    /// A filled template, now and then with an argument that is wrong.
    fn spoilt(&mut self, form: &str) -> Vec<Vec<u8>> {
        let mut words = self.filled(form);
        if AS_THEY_ARE.iter().any(|name| form.starts_with(name)) {
            return words;
        }
        // Now and then an argument is missing, superfluous or replaced.
        match self.below(40) {
            0 => drop(words.pop()),
            1 => words.push(self.word('x')),
            2 if words.len() > 1 => {
                let at = 1 + self.below(words.len() - 1);
                let kind = self.of(&['x', 'k']);
                words[at] = self.word(kind);
            }
            3 => words[0] = words[0].to_ascii_lowercase(),
            _ => {}
        }
        if words.is_empty() { vec![b"PING".to_vec()] } else { words }
    }

    /// A filled template.
    pub fn filled(&mut self, form: &str) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        let mut rest = form;
        while !rest.is_empty() {
            let close = match rest.as_bytes()[0] {
                b'[' => ']',
                b'{' => '}',
                b'(' => ')',
                b' ' => {
                    rest = &rest[1..];
                    continue;
                }
                _ => {
                    let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
                    rest = after;
                    words.push(self.place(word));
                    continue;
                }
            };
            let end = closing(rest, close);
            let forms = alternatives(&rest[1..end]);
            let times = match close {
                ']' => self.below(2),
                '}' => self.below(4),
                _ => 1,
            };
            for _ in 0..times {
                let form = self.of(&forms);
                words.extend(self.filled(form));
            }
            rest = &rest[end + 1..];
        }
        words
    }

    fn place(&mut self, word: &str) -> Vec<u8> {
        match word.split_once('%') {
            Some((before, kind)) => {
                let mut rest = kind.chars();
                let kind = rest.next().expect("a kind follows %");
                [before.as_bytes(), &self.word(kind), rest.as_str().as_bytes()].concat()
            }
            None => word.as_bytes().to_vec(),
        }
    }

    /// A word of a kind.
    ///
    /// # Panics
    /// If there is no such kind.
    pub fn word(&mut self, kind: char) -> Vec<u8> {
        const NEVER: &[&str] = &["9223372036854775807", "-9223372036854775808", "9223372036854775808"];
        const NONE: &[&str] = &["", "x", "1.5", " 1", "1 ", "+1", "01", "0x1"];
        let mut one = |usual: &[&str], odd: &[&[&str]]| -> String {
            let list = if self.below(8) == 0 && !odd.is_empty() { self.of(odd) } else { usual };
            self.of(list).to_owned()
        };
        let text = match kind {
            'k' => match one(
                &["a", "b", "c", "d", "key:1", "key:2"],
                &[&["", "A", "no", "k\r\n", "a b"], &["long"]],
            )
            .as_str()
            {
                // Longer than a key inside an item: the value is in pieces, however short it is.
                "long" => "k".repeat(8193),
                key => key.to_owned(),
            },
            // Keys of collections, few of each type; now and then one of another type.
            'h' => one(&["h1", "h2"], &[&["l1", "a", "none"]]),
            'l' => one(&["l1", "l2"], &[&["h1", "a", "none"]]),
            'q' => one(&["s1", "s2", "s3"], &[&["h1", "z1", "a", "none"]]),
            'Z' => one(&["z1", "z2"], &[&["s1", "h1", "a", "none"]]),
            // Sorted sets with one score; now and then something else.
            'E' => one(&["e1", "e2"], &[&["l1", "e0"]]),
            // Streams, and IDs, and ends of their ranges.
            'S' => one(&["x1", "x2"], &[&["l1", "h1", "a", "none"]]),
            'N' => one(
                &["1-1", "2-1", "2-2", "3-*", "5", "7-3", "9-*", "12-0", "40-*"],
                &[&["0-0", "0", "x", "1-2-3", "-", "5-x", ""]],
            ),
            'M' => one(&["-", "+", "-", "+", "2", "(2-1", "7-3", "9"], &[&["(", "x", "(-", ""]]),
            // A value short enough for an element, and one short enough for an entry of several: longer ones
            // have their own tests.
            'V' => return cut(self.word('v'), ELEMENT_BYTES),
            'G' => return cut(self.word('v'), ELEMENT_BYTES / 8),
            // For SORT with ALPHA, whose comparison ends at a byte 0.
            'W' => {
                let mut value = self.word('V');
                value.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = 0x7f);
                return value;
            }
            // Names of fields and members.
            'g' => one(
                &["a", "b", "c", "d", "e", "field", "1", "2", "-7"],
                &[&["", "007", "-0", "a b", "é\0", "9223372036854775807", "9223372036854775808"], &["long"]],
            )
            .replace("long", &"x".repeat(70)),
            // Longitudes (O), latitudes (A) and distances (D); then scores and their bounds.
            'O' => {
                one(&["13.361389", "15.087269", "0", "-120.5", "179.999"], &[&["180", "-180", "181", "x"]])
            }
            'A' => one(&["38.115556", "37.502669", "0", "-60.25"], &[&["85.05112878", "-85.06", "90", ""]]),
            'D' => one(&["0", "100", "200", "5000", "20000"], &[&["-1", "x", "1e300", "0.001"]]),
            // Keys of HyperLogLogs; now and then one of another type.
            'P' => one(&["p1", "p2", "p3"], &[&["a", "l1", "none"]]),
            'c' => one(
                &["0", "1", "2", "-1", "1.5", "100", "1700000000000"],
                &[&["inf", "-inf", "+5", "1e3", "0.1"], &["x", "nan", ""]],
            ),
            'B' => {
                one(&["0", "1", "(1", "2", "-inf", "+inf", "100", "(2"], &[&["x", "(", "-1", "1.5", "nan"]])
            }
            'L' => one(&["-", "+", "[a", "(b", "[c", "[field"], &[&["x", "", "[", "("]]),
            'v' => match one(&["value", "number", "short", "more", "bits", "long"], &[]).as_str() {
                "value" => one(&["hello", "foobar", "ohmytext", "mynewtext", ""], &[]),
                "number" => return self.word('n'),
                "short" => one(&["a", "x", "0", "\0", "%", "NX", "\n", "  "], &[]),
                "more" => "abcdefgh".repeat(1 + self.below(16)),
                "bits" => {
                    return (0..self.below(24)).map(|_| [0, 255, 1, 128, 15, 240][self.below(6)]).collect();
                }
                // Values of about the size that one piece stores, and beyond.
                _ => "0123456789".repeat([40, 41, 200, 1638, 1640, 4000][self.below(6)]),
            },
            'n' => one(
                &["0", "1", "-1", "10", "12345", "-7", "99", "3.5"],
                &[NEVER, NONE, &["1e3", "-0", "inf"]],
            ),
            'i' => one(&["0", "1", "-1", "2", "7", "100", "-300", "255"], &[NEVER, NONE]),
            // Redis itself cannot count with a lower number.
            'j' => one(&["0", "1", "-1", "2", "7", "100", "-300", "255"], &[&["9223372036854775807"], NONE]),
            'f' => one(&["0.5", "1", "-1.25", "10", "3.75", "2e2"], &[NONE, &["inf", "nan", "-inf"]]),
            'r' => one(&["0", "1", "-1", "2", "5", "-3", "10", "100", "-100"], &[NEVER, NONE]),
            'o' => one(
                &["0", "1", "7", "8", "9", "31", "100", "1000"],
                &[&["-1", "4294967296", "99999999999"], NONE, &["20000", "200000"]],
            ),
            'b' => one(&["0", "1", "0", "1", "0", "1", "0", "1"], &[&["2", "-1", "x"]]),
            'e' => one(
                &["u8", "i8", "u1", "i5", "u16", "i64", "u63", "i32"],
                &[&["u64", "i65", "u0", "i0", "x8", "u", ""]],
            ),
            's' => one(
                &["100", "1000", "5000", "60"],
                &[&["0", "-1", "-100"], NEVER, NONE, &["9223372036854775"]],
            ),
            'm' => one(&["100000", "1000000", "60000"], &[&["0", "-1", "-100"], NEVER, NONE]),
            't' => one(&["4000000000", "3500000000"], &[&["0", "-1", "1", "1000000000"], NEVER, NONE]),
            'u' => {
                one(&["4000000000000", "3500000000123"], &[&["0", "-1", "1", "1000000000000"], NEVER, NONE])
            }
            // Times that do not pass soon: Redis counts an expired key until a command looks for it.
            'T' => one(&["4000000000", "3500000000"], &[&["0", "-1"], NEVER, NONE]),
            'U' => one(&["4000000000000", "3500000000123"], &[&["0", "-1"], NEVER, NONE]),
            'z' => one(&["0", "0", "100000", "60000"], &[&["-1"], NONE]),
            'y' => {
                let value = self.word('v');
                let mut payload = super::payload::dumped(&value);
                if self.below(8) == 0 {
                    let at = self.below(payload.len().min(256));
                    payload[at] ^= 1;
                }
                return payload;
            }
            'Y' => return self.collection_payload(),
            'd' => one(&["0", "1", "0", "2", "15"], &[&["16", "-1", "x", ""], NEVER]),
            'p' => one(
                &["*", "a*", "?", "[ab]", "key:*", "*:[1-2]", "[^a]"],
                &[&["", "\\a", "[", "[a", "a?b", "**", "[b-a]", "\\"]],
            ),
            // No such word may be a time that passes before the other server is asked.
            'x' => one(&["x", "on", "0", "abc", "a b", "", "-1", "1.5"], &[]),
            'w' => one(&["x", "on", "no", "0", "1", "abc", "a b", "", "LIST", "-1"], &[]),
            other => panic!("no kind {other}"),
        };
        text.into_bytes()
    }
}

impl Choices<'_> {
    /// The payload of a collection, in any form that Redis from 7.0 on reads.
    fn collection_payload(&mut self) -> Vec<u8> {
        // Forms with numbers from 20 on are newer: sets in listpacks (7.2), fields that expire (7.4, Valkey
        // 9.0).
        let all: Vec<_> = forms::FORMS.iter().filter(|(_, _, number)| *number < 20).collect();
        let &(kind, form, number) = all[self.below(all.len())];
        let mut names: Vec<Vec<u8>> = Vec::new();
        for _ in 0..=self.below(6) {
            let name = if form == forms::Form::Intset {
                self.below(200).to_string().into_bytes()
            } else {
                self.word('g')
            };
            if kind == forms::Kind::List || !names.contains(&name) {
                names.push(name);
            }
        }
        let words: Vec<Vec<u8>> = match kind {
            forms::Kind::List | forms::Kind::Set => names,
            forms::Kind::Hash => names.into_iter().flat_map(|name| [name, self.word('g')]).collect(),
            forms::Kind::SortedSet => {
                // In order: Redis takes a packed sorted set as it is, without sorting it.
                let mut all: Vec<_> = names.into_iter().map(|name| (self.below(3), name)).collect();
                all.sort();
                all.into_iter().flat_map(|(score, name)| [name, score.to_string().into_bytes()]).collect()
            }
        };
        let mut body = forms::body(kind, form, number, &words, self.below(4) == 0);
        if self.below(8) == 0 {
            // Wrong for every reader.
            body[1] = 0;
        }
        forms::sealed(&body, 10)
    }
}

/// The first bytes of a word.
fn cut(mut word: Vec<u8>, bytes_max: usize) -> Vec<u8> {
    word.truncate(bytes_max);
    word
}

/// The end of the group that `text` begins with.
fn closing(text: &str, close: char) -> usize {
    let open = text.chars().next().expect("a group");
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == open) - i32::from(c == close);
        if depth == 0 {
            return at;
        }
    }
    panic!("a group without end: {text}");
}

/// The parts that `|` separates; groups inside stay whole.
fn alternatives(text: &str) -> Vec<&str> {
    let (mut list, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '|' if depth == 0 => {
                list.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    list.push(&text[from..]);
    list
}

/// A command in words.
pub fn shown(words: &[Vec<u8>]) -> String {
    let word = |word: &Vec<u8>| match word.is_empty() || word.contains(&b' ') {
        true => match lua::shown(word) {
            Some(script) => format!("\"{script}\""),
            None => format!("\"{}\"", crate::pattern::escaped(word)),
        },
        false => crate::pattern::escaped(word),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_can_be_filled_in() {
        for form in FORMS.iter().chain(NEWER_FORMS).chain(ELEMENT_FORMS) {
            for seed in 0..50 {
                let words = Choices::Seed(seed).filled(form);
                assert_eq!(words[0], form.split(' ').next().expect("a name").as_bytes());
                let left = |word: &Vec<u8>| word.len() == 2 && word[0] == b'%';
                assert!(!words.iter().any(left), "{form}: {}", shown(&words));
            }
        }
    }

    #[test]
    fn one_number_is_one_stream() {
        let stream = |seed| {
            let mut choices = Choices::Seed(seed);
            (0..50).map(|_| choices.command()).collect::<Vec<_>>()
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }
}
