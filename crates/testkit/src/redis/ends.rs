//! Forms of commands, and the right replies to each: with numbers at the limits of its integer argument, and
//! with texts that are no numbers. Larder's sessions are tested with them, and `cargo xtask conformance
//! redis-ends` sends them to the newest Redis and Valkey. `spec/resp_numbers.txt` has 41 other forms.
//! Arguments that no client sends by accident are sent to every command by `hostile`.

use crate::talk::encode;

const LOWEST: &str = "-9223372036854775808";
const HIGHEST: &str = "9223372036854775807";
/// Texts that are no integers of 64 bits in the protocol's form.
const NO_NUMBERS: [&str; 7] = ["9223372036854775808", "-9223372036854775809", "", "+1", " 1", "1.0", "01"];

/// Commands that create the keys before each form. One space separates words; no word contains one.
const STOCK: [&str; 12] = [
    "FLUSHALL",
    "SET s hello",
    "RPUSH l a b c",
    "SADD t x",
    "ZADD z 1 a 2 b",
    "ZADD y 1 a",
    "HSET h f 1",
    "XADD x 1-1 a b",
    "XGROUP CREATE x g 0",
    "GEOADD p 0 0 m",
    "SCRIPT LOAD return(1)",
    "FUNCTION LOAD REPLACE #!lua\tname=l\nredis.register_function\
     {function_name='one',callback=function()return(1)end,flags={'no-writes'}}",
];

/// A form of a command.
struct Form {
    /// Its words, in which `#` stands for the number.
    words: &'static str,
    /// The reply to a text that is no number. Replies are written without their last line end.
    none: &'static str,
    /// The replies to the lowest number, the highest, -1 and 0.
    ends: [&'static str; 4],
}

const fn form(words: &'static str, none: &'static str, ends: [&'static str; 4]) -> Form {
    Form { words, none, ends }
}

/// A form with the same reply to all numbers.
const fn alike(words: &'static str, none: &'static str, reply: &'static str) -> Form {
    Form { words, none, ends: [reply; 4] }
}

/// A form with the same error for a text that is no number, and for a number out of range.
const fn one_error(words: &'static str, error: &'static str, [highest, zero]: [&'static str; 2]) -> Form {
    Form { words, none: error, ends: [error, highest, error, zero] }
}

const OK: &str = "+OK";
const NONE: &str = "*0";
const NO_INTEGER: &str = "-ERR value is not an integer or out of range";
const NOT_POSITIVE: &str = "-ERR value is out of range, must be positive";
const NOT_SYMMETRIC: &str =
    "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
const NOT_32_BITS: &str = "-ERR value is out of range, value must between -2147483648 and 2147483647";
const SYNTAX: &str = "-ERR syntax error";
const NO_DATABASE: &str = "-ERR DB index is out of range";
const NO_FIRST: &str = "-ERR invalid first DB index";
const NO_SECOND: &str = "-ERR invalid second DB index";
const NO_OFFSET: &str = "-ERR bit offset is not an integer or out of range";
const NO_BIT: &str = "-ERR bit is not an integer or out of range";
const ONE_OR_ZERO: &str = "-ERR The bit argument must be 1 or 0.";
const NO_FIELD: &str =
    "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
const NO_PAYLOAD: &str = "-ERR DUMP payload version or checksum are wrong";
const NO_KEYS: &str = "-ERR numkeys should be greater than 0";
const NO_PAIRS: &str = "-ERR invalid numkeys value";
const NO_FUNCTION_KEYS: &str = "-ERR Bad number of keys provided";
const NEGATIVE_KEYS: &str = "-ERR Number of keys can't be negative";
const TOO_MANY_KEYS: &str = "-ERR Number of keys can't be greater than number of args";
const NO_COUNT: &str = "-ERR count should be greater than 0";
const NO_LIMIT: &str = "-ERR LIMIT can't be negative";
const NO_PLACES: &str = "-ERR COUNT must be > 0";
const NO_ENTRIES: &str = "-ERR count should be greater than or equal to -1";
const NO_ENTRIES_READ: &str = "-ERR value for ENTRIESREAD must be positive or -1";
const NO_VERSION: &str = "-NOPROTO unsupported protocol version";
const NO_MAXLEN: &str = "-ERR The MAXLEN argument must be >= 0.";
const NO_TRIM_LIMIT: &str = "-ERR The LIMIT argument must be >= 0.";
const NO_FIELDS: &str = "-ERR Number of fields must be a positive integer";
const NO_FIELDS_THEN: &str = "-ERR Parameter `numFields` should be greater than 0";
const NOT_AS_MANY: &str = "-ERR The `numfields` parameter must match the number of arguments";
const NEGATIVE_TIME: &str = "-ERR invalid expire time, must be >= 0";
const A: &str = "*1\r\n$1\r\na";
const B: &str = "*1\r\n$1\r\nb";
const AB: &str = "*2\r\n$1\r\na\r\n$1\r\nb";
const BA: &str = "*2\r\n$1\r\nb\r\n$1\r\na";
const ABC: &str = "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc";
const X: &str = "*1\r\n$1\r\nx";
const BYTE: &str = "*1\r\n:104";
const LESS: &str = "*1\r\n:103";
const MORE: &str = "*1\r\n:105";
const ENTRY: &str = "*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb";
const STREAM: &str = "*1\r\n*2\r\n$1\r\nx\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb";
const CLAIMED: &str = "*3\r\n$3\r\n0-0\r\n*0\r\n*0";

/// Strings, keys, databases, the server.
const STRINGS: &[Form] = &[
    form("GETRANGE s 0 #", NO_INTEGER, ["$1\r\nh", "$5\r\nhello", "$5\r\nhello", "$1\r\nh"]),
    form("SUBSTR s # 3", NO_INTEGER, ["$4\r\nhell", "$0\r\n", "$0\r\n", "$4\r\nhell"]),
    form("SUBSTR s 0 #", NO_INTEGER, ["$1\r\nh", "$5\r\nhello", "$5\r\nhello", "$1\r\nh"]),
    form("SETBIT s # 1", NO_OFFSET, [NO_OFFSET, NO_OFFSET, NO_OFFSET, ":0"]),
    form("SETBIT s 7 #", NO_BIT, [NO_BIT, NO_BIT, NO_BIT, ":0"]),
    form("BITCOUNT s # 3", NO_INTEGER, [":15", ":0", ":0", ":15"]),
    form("BITCOUNT s # 3 BIT", NO_INTEGER, [":2", ":0", ":0", ":2"]),
    form("BITCOUNT s 0 # BIT", NO_INTEGER, [":0", ":21", ":21", ":0"]),
    form("BITPOS s #", NO_INTEGER, [ONE_OR_ZERO, ONE_OR_ZERO, ONE_OR_ZERO, ":0"]),
    form("BITPOS s 1 #", NO_INTEGER, [":1", ":-1", ":33", ":1"]),
    alike("BITPOS s 1 0 #", NO_INTEGER, ":1"),
    form("BITPOS s 1 0 # BIT", NO_INTEGER, [":-1", ":1", ":1", ":-1"]),
    form("BITFIELD s GET u8 #", NO_OFFSET, [NO_OFFSET, NO_OFFSET, NO_OFFSET, BYTE]),
    form("BITFIELD_RO s GET u8 #", NO_OFFSET, [NO_OFFSET, NO_OFFSET, NO_OFFSET, BYTE]),
    alike("BITFIELD s GET u# 0", NO_FIELD, NO_FIELD),
    alike("BITFIELD s GET i# 0", NO_FIELD, NO_FIELD),
    form("BITFIELD s SET u8 # 1", NO_OFFSET, [NO_OFFSET, NO_OFFSET, NO_OFFSET, BYTE]),
    form("BITFIELD s INCRBY u8 # 1", NO_OFFSET, [NO_OFFSET, NO_OFFSET, NO_OFFSET, MORE]),
    alike("BITFIELD s SET u8 0 #", NO_INTEGER, BYTE),
    form("BITFIELD s INCRBY u8 0 #", NO_INTEGER, [BYTE, LESS, LESS, BYTE]),
    form("BITFIELD s INCRBY i8 0 #", NO_INTEGER, [BYTE, LESS, LESS, BYTE]),
    alike("LCS s nokey IDX MINMATCHLEN #", NO_INTEGER, "*4\r\n$7\r\nmatches\r\n*0\r\n$3\r\nlen\r\n:0"),
    alike("GETEX s EX #", NO_INTEGER, "-ERR invalid expire time in 'getex' command"),
    alike("GETEX s EXAT #", NO_INTEGER, "-ERR invalid expire time in 'getex' command"),
    form(
        "GETEX s PXAT #",
        NO_INTEGER,
        [
            "-ERR invalid expire time in 'getex' command",
            "$5\r\nhello",
            "-ERR invalid expire time in 'getex' command",
            "-ERR invalid expire time in 'getex' command",
        ],
    ),
    alike("SET k v EX #", NO_INTEGER, "-ERR invalid expire time in 'set' command"),
    alike("SET k v EXAT #", NO_INTEGER, "-ERR invalid expire time in 'set' command"),
    form(
        "SET k v PXAT #",
        NO_INTEGER,
        [
            "-ERR invalid expire time in 'set' command",
            OK,
            "-ERR invalid expire time in 'set' command",
            "-ERR invalid expire time in 'set' command",
        ],
    ),
    alike("PSETEX k # v", NO_INTEGER, "-ERR invalid expire time in 'psetex' command"),
    form("PEXPIRE s #", NO_INTEGER, [":1", "-ERR invalid expire time in 'pexpire' command", ":1", ":1"]),
    form("PEXPIRE nokey #", NO_INTEGER, [":0", "-ERR invalid expire time in 'pexpire' command", ":0", ":0"]),
    form(
        "EXPIRE nokey #",
        NO_INTEGER,
        [
            "-ERR invalid expire time in 'expire' command",
            "-ERR invalid expire time in 'expire' command",
            ":0",
            ":0",
        ],
    ),
    form(
        "EXPIREAT nokey #",
        NO_INTEGER,
        [
            "-ERR invalid expire time in 'expireat' command",
            "-ERR invalid expire time in 'expireat' command",
            ":0",
            ":0",
        ],
    ),
    form(
        "EXPIREAT s #",
        NO_INTEGER,
        [
            "-ERR invalid expire time in 'expireat' command",
            "-ERR invalid expire time in 'expireat' command",
            ":1",
            ":1",
        ],
    ),
    alike("PEXPIREAT s #", NO_INTEGER, ":1"),
    form(
        "MOVE s #",
        NO_INTEGER,
        [NOT_32_BITS, NOT_32_BITS, NO_DATABASE, "-ERR source and destination objects are the same"],
    ),
    form("SWAPDB # 1", NO_FIRST, [NO_FIRST, NO_FIRST, NO_DATABASE, OK]),
    form("SWAPDB 0 #", NO_SECOND, [NO_SECOND, NO_SECOND, NO_DATABASE, OK]),
    form(
        "RESTORE k # x",
        NO_INTEGER,
        [
            "-ERR Invalid TTL value, must be >= 0",
            NO_PAYLOAD,
            "-ERR Invalid TTL value, must be >= 0",
            NO_PAYLOAD,
        ],
    ),
    form(
        "RESTORE k 0 x IDLETIME #",
        NO_INTEGER,
        [
            "-ERR Invalid IDLETIME value, must be >= 0",
            NO_PAYLOAD,
            "-ERR Invalid IDLETIME value, must be >= 0",
            NO_PAYLOAD,
        ],
    ),
    form(
        "RESTORE k 0 x FREQ #",
        NO_INTEGER,
        [
            "-ERR Invalid FREQ value, must be >= 0 and <= 255",
            "-ERR Invalid FREQ value, must be >= 0 and <= 255",
            "-ERR Invalid FREQ value, must be >= 0 and <= 255",
            NO_PAYLOAD,
        ],
    ),
    form("SORT l LIMIT # 1 ALPHA", NO_INTEGER, [A, NONE, A, A]),
    form("SORT l LIMIT 0 # ALPHA", NO_INTEGER, [ABC, ABC, ABC, NONE]),
    form("SORT_RO l LIMIT # 1 ALPHA", NO_INTEGER, [A, NONE, A, A]),
    form("SORT_RO l LIMIT 0 # ALPHA", NO_INTEGER, [ABC, ABC, ABC, NONE]),
    form("MEMORY USAGE nokey SAMPLES #", NO_INTEGER, [SYNTAX, "$-1", SYNTAX, "$-1"]),
    form("SLOWLOG GET #", NO_ENTRIES, [NO_ENTRIES, NONE, NONE, NONE]),
    alike("ACL LOG #", NO_INTEGER, NONE),
    alike("HELLO #", "-ERR Protocol version is not an integer or out of range", NO_VERSION),
    alike("MSETEX # a 1", NO_PAIRS, NO_PAIRS),
    script("EVAL_RO return(1) #", NO_INTEGER),
    script("EVALSHA 930269f31393d0be681588b6ab08dccee7d6bb67 #", NO_INTEGER),
    script("EVALSHA_RO 930269f31393d0be681588b6ab08dccee7d6bb67 #", NO_INTEGER),
    script("FCALL one #", NO_FUNCTION_KEYS),
    script("FCALL_RO one #", NO_FUNCTION_KEYS),
];

/// A form that runs a script with `#` keys, none of which is sent; the script returns 1.
const fn script(words: &'static str, none: &'static str) -> Form {
    Form { words, none, ends: [NEGATIVE_KEYS, TOO_MANY_KEYS, NEGATIVE_KEYS, ":1"] }
}

/// Lists, sets, sorted sets, hashes, places.
const COLLECTIONS: &[Form] = &[
    alike("LTRIM l # 1", NO_INTEGER, OK),
    alike("LTRIM l 0 #", NO_INTEGER, OK),
    form("LRANGE l # 1", NO_INTEGER, [AB, NONE, NONE, AB]),
    form("LSET l # v", NO_INTEGER, ["-ERR index out of range", "-ERR index out of range", OK, OK]),
    form("LREM l # a", NO_INTEGER, [NOT_SYMMETRIC, ":1", ":1", ":1"]),
    one_error("RPOP nokey #", NOT_POSITIVE, ["*-1", "*-1"]),
    one_error("LPOS l a COUNT #", "-ERR COUNT can't be negative", ["*1\r\n:0", "*1\r\n:0"]),
    form("BLMPOP 0 # l LEFT", NO_KEYS, [NO_KEYS, SYNTAX, NO_KEYS, NO_KEYS]),
    form(
        "BLMPOP 0 1 l LEFT COUNT #",
        NO_COUNT,
        [NO_COUNT, "*2\r\n$1\r\nl\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc", NO_COUNT, NO_COUNT],
    ),
    form(
        "LMPOP 1 l LEFT COUNT #",
        NO_COUNT,
        [NO_COUNT, "*2\r\n$1\r\nl\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc", NO_COUNT, NO_COUNT],
    ),
    form("SRANDMEMBER t #", NO_INTEGER, [NOT_SYMMETRIC, X, X, NONE]),
    form("ZRANDMEMBER y #", NO_INTEGER, [NOT_SYMMETRIC, A, A, NONE]),
    form(
        "ZRANDMEMBER y # WITHSCORES",
        NO_INTEGER,
        [NOT_SYMMETRIC, "-ERR value is out of range", "*2\r\n$1\r\na\r\n$1\r\n1", NONE],
    ),
    form("ZMPOP # z MIN", NO_KEYS, [NO_KEYS, SYNTAX, NO_KEYS, NO_KEYS]),
    form("BZMPOP 0 # z MIN", NO_KEYS, [NO_KEYS, SYNTAX, NO_KEYS, NO_KEYS]),
    form(
        "ZMPOP 1 z MIN COUNT #",
        NO_COUNT,
        [
            NO_COUNT,
            "*2\r\n$1\r\nz\r\n*2\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$1\r\nb\r\n$1\r\n2",
            NO_COUNT,
            NO_COUNT,
        ],
    ),
    form(
        "BZMPOP 0 1 z MIN COUNT #",
        NO_COUNT,
        [
            NO_COUNT,
            "*2\r\n$1\r\nz\r\n*2\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$1\r\nb\r\n$1\r\n2",
            NO_COUNT,
            NO_COUNT,
        ],
    ),
    one_error("ZPOPMAX nokey #", NOT_POSITIVE, [NONE, NONE]),
    form("ZRANGE z # 1", NO_INTEGER, [AB, NONE, B, AB]),
    form("ZREVRANGE z # 1", NO_INTEGER, [BA, NONE, A, BA]),
    form("ZREVRANGE z 0 #", NO_INTEGER, [NONE, BA, BA, B]),
    form("ZRANGE z # 1 REV", NO_INTEGER, [BA, NONE, A, BA]),
    form("ZRANGE z 0 # REV", NO_INTEGER, [NONE, BA, BA, B]),
    form("ZRANGESTORE d z # 1", NO_INTEGER, [":2", ":0", ":1", ":2"]),
    form("ZRANGESTORE d z 0 #", NO_INTEGER, [":0", ":2", ":2", ":1"]),
    form("ZRANGESTORE d z 0 9 BYSCORE LIMIT # 1", NO_INTEGER, [":0", ":0", ":0", ":1"]),
    form("ZRANGESTORE d z 0 9 BYSCORE LIMIT 0 #", NO_INTEGER, [":2", ":2", ":2", ":0"]),
    form("ZREMRANGEBYRANK z # 1", NO_INTEGER, [":2", ":0", ":1", ":2"]),
    form("ZREMRANGEBYRANK z 0 #", NO_INTEGER, [":0", ":2", ":2", ":1"]),
    form("ZRANGE z 0 9 BYSCORE LIMIT # 1", NO_INTEGER, [NONE, NONE, NONE, A]),
    form("ZRANGE z 0 9 BYSCORE LIMIT 0 #", NO_INTEGER, [AB, AB, AB, NONE]),
    form("ZRANGE y - + BYLEX LIMIT # 1", NO_INTEGER, [NONE, NONE, NONE, A]),
    form("ZRANGE y - + BYLEX LIMIT 0 #", NO_INTEGER, [A, A, A, NONE]),
    form("ZREVRANGEBYSCORE z 9 0 LIMIT # 1", NO_INTEGER, [NONE, NONE, NONE, B]),
    form("ZREVRANGEBYSCORE z 9 0 LIMIT 0 #", NO_INTEGER, [BA, BA, BA, NONE]),
    form("ZRANGEBYLEX y - + LIMIT # 1", NO_INTEGER, [NONE, NONE, NONE, A]),
    form("ZRANGEBYLEX y - + LIMIT 0 #", NO_INTEGER, [A, A, A, NONE]),
    form("ZREVRANGEBYLEX y + - LIMIT # 1", NO_INTEGER, [NONE, NONE, NONE, A]),
    form("ZREVRANGEBYLEX y + - LIMIT 0 #", NO_INTEGER, [A, A, A, NONE]),
    one_error("ZINTERCARD 1 z LIMIT #", NO_LIMIT, [":2", ":2"]),
    keys("ZINTERCARD # z", "-ERR at least 1 input key is needed for 'zintercard' command"),
    keys("ZINTER # z", "-ERR at least 1 input key is needed for 'zinter' command"),
    keys("ZDIFF # z", "-ERR at least 1 input key is needed for 'zdiff' command"),
    keys("ZUNIONSTORE d # z", "-ERR at least 1 input key is needed for 'zunionstore' command"),
    keys("ZINTERSTORE d # z", "-ERR at least 1 input key is needed for 'zinterstore' command"),
    keys("ZDIFFSTORE d # z", "-ERR at least 1 input key is needed for 'zdiffstore' command"),
    form(
        "HRANDFIELD h # WITHVALUES",
        NO_INTEGER,
        [NOT_SYMMETRIC, "-ERR value is out of range", "*2\r\n$1\r\nf\r\n$1\r\n1", NONE],
    ),
    scanned("HSCAN h 0 COUNT #", "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nf\r\n$1\r\n1"),
    scanned("SSCAN t 0 COUNT #", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nx"),
    scanned("ZSCAN y 0 COUNT #", "*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\n1"),
    places("GEOSEARCH p FROMLONLAT 0 0 BYRADIUS 1 km COUNT #"),
    places("GEORADIUS p 0 0 1 km COUNT #"),
    places("GEOSEARCH p FROMLONLAT 0 0 BYRADIUS 1 km COUNT # ANY"),
    places("GEOSEARCH p FROMMEMBER m BYBOX 1 1 km COUNT #"),
    places("GEORADIUS_RO p 0 0 1 km COUNT #"),
    places("GEORADIUSBYMEMBER p m 1 km COUNT #"),
    places("GEORADIUSBYMEMBER_RO p m 1 km COUNT #"),
    form(
        "GEOSEARCHSTORE d p FROMLONLAT 0 0 BYRADIUS 1 km COUNT #",
        NO_INTEGER,
        [NO_PLACES, ":1", NO_PLACES, NO_PLACES],
    ),
];

/// A form that takes `#` keys, one of which is sent; `none`: its error for fewer than one key.
const fn keys(words: &'static str, none: &'static str) -> Form {
    Form { words, none: NO_INTEGER, ends: [none, SYNTAX, none, none] }
}

const fn scanned(words: &'static str, all: &'static str) -> Form {
    Form { words, none: NO_INTEGER, ends: [SYNTAX, all, SYNTAX, SYNTAX] }
}

const fn places(words: &'static str) -> Form {
    Form { words, none: NO_INTEGER, ends: [NO_PLACES, "*1\r\n$1\r\nm", NO_PLACES, NO_PLACES] }
}

/// Fields that expire.
const FIELDS: &[Form] = &[
    timed("HPTTL h FIELDS # f", NO_FIELDS),
    timed("HEXPIRETIME h FIELDS # f", NO_FIELDS),
    timed("HPEXPIRETIME h FIELDS # f", NO_FIELDS),
    timed("HPERSIST h FIELDS # f", NO_FIELDS),
    timed("HGETDEL h FIELDS # f", NO_FIELDS),
    timed("HGETEX h FIELDS # f", NO_FIELDS),
    timed("HPEXPIRE h 1000 FIELDS # f", NO_FIELDS_THEN),
    timed("HEXPIREAT h 1 FIELDS # f", NO_FIELDS_THEN),
    timed("HPEXPIREAT h 1 FIELDS # f", NO_FIELDS_THEN),
    expiring("HEXPIRE h # FIELDS 1 f", "-ERR invalid expire time in 'hexpire' command"),
    expiring("HPEXPIRE h # FIELDS 1 f", "-ERR invalid expire time in 'hpexpire' command"),
    expiring("HEXPIREAT h # FIELDS 1 f", "-ERR invalid expire time in 'hexpireat' command"),
    expiring("HPEXPIREAT h # FIELDS 1 f", "-ERR invalid expire time in 'hpexpireat' command"),
    alike("HSETEX h FIELDS # f 1", "-ERR invalid number of fields", "-ERR invalid number of fields"),
];

/// A form that takes `#` fields, one of which is sent.
const fn timed(words: &'static str, none: &'static str) -> Form {
    Form { words, none, ends: [none, NOT_AS_MANY, none, none] }
}

/// A form that sets when a field expires: the field is deleted if the time is 0.
const fn expiring(words: &'static str, late: &'static str) -> Form {
    Form { words, none: NO_INTEGER, ends: [NEGATIVE_TIME, late, NEGATIVE_TIME, "*1\r\n:2"] }
}

const STREAMS: &[Form] = &[
    alike("XREAD COUNT # STREAMS x 0", NO_INTEGER, STREAM),
    alike("XREADGROUP GROUP g c COUNT # STREAMS x >", NO_INTEGER, STREAM),
    form(
        "XREADGROUP GROUP g c BLOCK # STREAMS x >",
        "-ERR timeout is not an integer or out of range",
        ["-ERR timeout is negative", "-ERR timeout is out of range", "-ERR timeout is negative", STREAM],
    ),
    form(
        "XREAD BLOCK # STREAMS x 0",
        "-ERR timeout is not an integer or out of range",
        ["-ERR timeout is negative", "-ERR timeout is out of range", "-ERR timeout is negative", STREAM],
    ),
    form("XREVRANGE x + - COUNT #", NO_INTEGER, ["*-1", ENTRY, "*-1", "*-1"]),
    form("XADD x MAXLEN # 2-1 a b", NO_INTEGER, [NO_MAXLEN, "$3\r\n2-1", NO_MAXLEN, "$3\r\n2-1"]),
    form("XADD x MAXLEN = # 2-1 a b", NO_INTEGER, [NO_MAXLEN, "$3\r\n2-1", NO_MAXLEN, "$3\r\n2-1"]),
    form("XADD x MAXLEN ~ # 2-1 a b", NO_INTEGER, [NO_MAXLEN, "$3\r\n2-1", NO_MAXLEN, "$3\r\n2-1"]),
    form(
        "XADD x MAXLEN ~ 1 LIMIT # 2-1 a b",
        NO_INTEGER,
        [NO_TRIM_LIMIT, "$3\r\n2-1", NO_TRIM_LIMIT, "$3\r\n2-1"],
    ),
    form("XTRIM x MAXLEN ~ 5 LIMIT #", NO_INTEGER, [NO_TRIM_LIMIT, ":0", NO_TRIM_LIMIT, ":0"]),
    form("XGROUP CREATE x g2 0 ENTRIESREAD #", NO_INTEGER, [NO_ENTRIES_READ, OK, OK, OK]),
    form("XGROUP SETID x g 0 ENTRIESREAD #", NO_INTEGER, [NO_ENTRIES_READ, OK, OK, OK]),
    alike("XPENDING x g IDLE # - + 10", NO_INTEGER, NONE),
    alike("XCLAIM x g c # 1-1", "-ERR Invalid min-idle-time argument for XCLAIM", NONE),
    alike("XCLAIM x g c 0 1-1 IDLE #", "-ERR Invalid IDLE option argument for XCLAIM", NONE),
    alike("XCLAIM x g c 0 1-1 TIME #", "-ERR Invalid TIME option argument for XCLAIM", NONE),
    alike("XCLAIM x g c 0 1-1 RETRYCOUNT #", "-ERR Invalid RETRYCOUNT option argument for XCLAIM", NONE),
    alike("XAUTOCLAIM x g c # 0", "-ERR Invalid min-idle-time argument for XAUTOCLAIM", CLAIMED),
    alike("XAUTOCLAIM x g c 0 0 COUNT #", NO_PLACES, NO_PLACES),
];

/// Commands that block, and their replies if they need not.
const WAITS: [(&str, &str); 8] = [
    ("BLPOP l #", "*2\r\n$1\r\nl\r\n$1\r\na"),
    ("BRPOP l #", "*2\r\n$1\r\nl\r\n$1\r\nc"),
    ("BLMOVE l d LEFT LEFT #", "$1\r\na"),
    ("BRPOPLPUSH l d #", "$1\r\nc"),
    ("BZPOPMIN z #", "*3\r\n$1\r\nz\r\n$1\r\na\r\n$1\r\n1"),
    ("BZPOPMAX z #", "*3\r\n$1\r\nz\r\n$1\r\nb\r\n$1\r\n2"),
    ("BLMPOP # 1 l LEFT", "*2\r\n$1\r\nl\r\n*1\r\n$1\r\na"),
    ("BZMPOP # 1 z MIN", "*2\r\n$1\r\nz\r\n*1\r\n*2\r\n$1\r\na\r\n$1\r\n1"),
];

/// A request, and the right reply.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The words, in which `#` stands for the number.
    pub words: &'static str,
    /// The number, or a text that is no number.
    pub number: &'static str,
    /// The reply without its last line end.
    pub reply: &'static str,
}

impl Asked {
    /// The requests that make the keys before a form, and the number of their replies.
    pub fn stock() -> (Vec<u8>, usize) {
        let request = |line: &&str| encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        (STOCK.iter().flat_map(request).collect(), STOCK.len())
    }

    /// The request itself.
    pub fn request(&self) -> Vec<u8> {
        let words: Vec<String> = self.words.split(' ').map(|word| word.replace('#', self.number)).collect();
        encode(&words.iter().map(String::as_bytes).collect::<Vec<_>>())
    }

    /// Whether it concerns fields that expire, for which Valkey has its own error texts.
    pub fn is_of_timed_fields(&self) -> bool {
        self.words.split(' ').any(|word| word == "FIELDS")
    }

    /// Whether Redis 8.0 lacks its command, and Valkey has its own error texts.
    pub fn is_of_newer(&self) -> bool {
        self.words.starts_with("MSETEX ")
    }

    /// Whether Redis and Valkey cut its number to 32 bits: the lowest and the highest of 64 bits become 0 and
    /// -1.
    pub fn is_cut(&self) -> bool {
        self.words == "LSET l # v" && [LOWEST, HIGHEST].contains(&self.number)
    }
}

/// All forms that do not block, each with each number.
pub fn numbers() -> impl Iterator<Item = Asked> {
    let forms = [STRINGS, COLLECTIONS, FIELDS, STREAMS].into_iter().flatten();
    forms.flat_map(|&Form { words, none, ends }| {
        let numbers = [LOWEST, HIGHEST, "-1", "0"].into_iter().zip(ends);
        let all = NO_NUMBERS.into_iter().map(move |number| (number, none)).chain(numbers);
        all.map(move |(number, reply)| Asked { words, number, reply })
    })
}

/// All forms that block, each with each timeout.
pub fn times() -> impl Iterator<Item = Asked> {
    const NO_TIMEOUT: &str = "-ERR timeout is not a float or out of range";
    const NEGATIVE: &str = "-ERR timeout is negative";
    const TOO_LONG: &str = "-ERR timeout is out of range";
    WAITS.into_iter().flat_map(|(words, served)| {
        let ends = [(LOWEST, NEGATIVE), (HIGHEST, TOO_LONG), ("-1", NEGATIVE), ("0", served)];
        let all = ends.into_iter().chain([("", NO_TIMEOUT), ("x", NO_TIMEOUT)]);
        all.map(move |(number, reply)| Asked { words, number, reply })
    })
}
