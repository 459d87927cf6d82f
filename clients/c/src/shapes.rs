//! The numbers and structs of `larder.h`, with the same fields in the same order. A test compares them with a C compiler.

use std::ffi::{c_char, c_void};
use std::ptr;

/// `larder_status`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    pub const OK: Status = Status(0);
    pub const MISS: Status = Status(1);
    pub const CONFLICT: Status = Status(2);
    pub const NOT_STORED: Status = Status(3);
    pub const TRUNCATED: Status = Status(4);
    pub const BAD_KEY: Status = Status(16);
    pub const TOO_LARGE: Status = Status(17);
    pub const BAD_TTL: Status = Status(18);
    pub const NOT_NUMBER: Status = Status(19);
    pub const CLOSED: Status = Status(20);
    pub const BAD_ARGUMENT: Status = Status(21);
    pub const AUTH: Status = Status(22);
    pub const UNSUPPORTED: Status = Status(23);
    pub const SERVER_MEMORY: Status = Status(32);
    pub const SERVER: Status = Status(33);
    pub const PROTOCOL: Status = Status(34);
    pub const TIMEOUT: Status = Status(48);
    pub const DOWN: Status = Status(49);
    pub const LOST: Status = Status(50);
    pub const WOULD_BLOCK: Status = Status(51);
    pub const BUG: Status = Status(64);

    /// `larder_status_text`.
    pub const fn text(self) -> &'static std::ffi::CStr {
        match self {
            Status::OK => c"ok",
            Status::MISS => c"no such item",
            Status::CONFLICT => c"changed meanwhile",
            Status::NOT_STORED => c"not stored",
            Status::TRUNCATED => c"longer than the buffer",
            Status::BAD_KEY => c"no key",
            Status::TOO_LARGE => c"too large for the server",
            Status::BAD_TTL => c"a time that cannot be",
            Status::NOT_NUMBER => c"not a number",
            Status::CLOSED => c"closed",
            Status::BAD_ARGUMENT => c"an argument that cannot be",
            Status::AUTH => c"not let in",
            Status::UNSUPPORTED => c"not known to the server",
            Status::SERVER_MEMORY => c"server out of memory",
            Status::SERVER => c"refused by the server",
            Status::PROTOCOL => c"reply not understood",
            Status::TIMEOUT => c"no answer in time",
            Status::DOWN => c"server down",
            Status::LOST => c"connection lost",
            Status::WOULD_BLOCK => c"no room now",
            Status::BUG => c"failure of the library",
            _ => c"unknown status",
        }
    }
}

/// `LARDER_FOREVER`.
pub const FOREVER: i64 = i64::MAX;

/// Options of a client.
pub const NO_RETRY_READS: u32 = 1;
pub const VERIFY: u32 = 2;
pub const BINARY_KEYS: u32 = 4;
pub const TLS: u32 = 8;

/// Options of a store, a deletion, a count.
pub const STALE_IF_OLDER: u32 = 1;
pub const TELL_CAS: u32 = 2;
pub const KEEP_EMPTY: u32 = 1;
pub const CREATE: u32 = 1;

/// Marks of an item.
pub const HIT_BEFORE: u32 = 1;
pub const STALE: u32 = 2;
pub const WON: u32 = 4;
pub const PENDING: u32 = 8;

/// What a pipe waits for.
pub const PIPE_READ: u32 = 1;
pub const PIPE_WRITE: u32 = 2;

/// `larder_verb`.
pub const VERB_GET: u32 = 1;
pub const VERB_SET: u32 = 2;
pub const VERB_DELETE: u32 = 3;
pub const VERB_TOUCH: u32 = 4;
pub const VERB_INCR: u32 = 5;
pub const VERB_DECR: u32 = 6;

/// `larder_bytes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    pub data: *const c_void,
    pub len: usize,
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes { data: ptr::null(), len: 0 }
    }
}

/// `larder_error`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Error {
    pub size: u32,
    pub status: Status,
    pub outcome: u32,
    pub os_error: i32,
    pub server: [u8; 64],
    pub message: [u8; 128],
}

/// `larder_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub size: u32,
    pub options: u32,
    pub servers: *const *const c_char,
    pub servers_count: usize,
    pub names: *const *const c_char,
    pub weights: *const u32,
    pub preset: *const c_char,
    pub user: *const c_char,
    pub password: *const c_char,
    pub key_prefix: Bytes,
    pub protocol: u32,
    pub timeout_ms: u32,
    pub dial_timeout_ms: u32,
    pub stall_timeout_ms: u32,
    pub in_flight: u32,
    pub large_bytes: u32,
    pub ca_file: *const c_char,
    pub cert_file: *const c_char,
    pub key_file: *const c_char,
    pub server_name: *const c_char,
    pub lanes: u32,
    pub reserved: u32,
}

/// `larder_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub size: u32,
    pub servers: u32,
    pub requests: u64,
    pub writes: u64,
    pub reads: u64,
    pub overdue: u64,
    pub dials: u64,
    pub unreported: u64,
}

/// `larder_read`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    pub size: u32,
    pub want: u32,
    pub touch_ms: i64,
}

/// `larder_meta`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta {
    pub size: u32,
    pub flags: u32,
    pub cas: u64,
    pub ttl_ms: i64,
    pub bytes: u64,
    pub last_access_ms: i64,
    pub marks: u32,
    pub reserved: u32,
}

/// `larder_store`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Store {
    pub size: u32,
    pub mode: u32,
    pub flags: u32,
    pub options: u32,
    pub ttl_ms: i64,
    pub cas: u64,
}

/// `larder_remove`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Remove {
    pub size: u32,
    pub options: u32,
    pub cas: u64,
    pub keep_stale_ms: i64,
}

/// `larder_count`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub size: u32,
    pub options: u32,
    pub initial: u64,
    pub ttl_ms: i64,
    pub touch_ms: i64,
    pub cas: u64,
}

/// `larder_lease`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Lease {
    pub size: u32,
    pub state: u32,
    pub cas: u64,
    pub ttl_ms: i64,
    pub vivify_ms: i64,
    pub refresh_ms: i64,
}

/// `larder_request`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub size: u32,
    pub verb: u32,
    pub key: Bytes,
    pub value: Bytes,
    pub delta: u64,
    pub ttl_ms: i64,
    pub read: *const Read,
    pub store: *const Store,
    pub remove: *const Remove,
    pub count: *const Count,
}

/// `larder_report`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub size: u32,
    pub told: u32,
    pub sent: u64,
    pub stored: u64,
    pub refused: u64,
    pub unknown: u64,
}

/// `larder_reply`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    pub size: u32,
    pub status: Status,
    pub outcome: u32,
    pub reserved: u32,
    pub value: Bytes,
    pub counted: u64,
    pub meta: *const Meta,
    pub error: *const Error,
}
