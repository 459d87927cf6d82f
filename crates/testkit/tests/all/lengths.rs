//! Every command on keys and values of the lengths at which the store changes how it keeps them.
//!
//! ```text
//! key    250     the longest of text           254          the longest whose length fits the header
//!        8,192   the longest inside the item   8,193        on the heap, the value in pieces
//! value  0       no piece                      1 … 16,376   one piece
//!        16,384  a chunk                       16,385       more than one piece
//! ```
//!
//! `resp.rs` and `text.rs` have the forms of each protocol's commands and hold them to the command tables:
//! a command without a form fails. Both run on one thread, without sockets.

mod collections;
mod dumps;
mod resp;
mod text;
mod trees;

/// Keys: the longest of memcached's text and one byte more, the longest whose length fits an item's header and one more, the
/// longest that lies inside its item and one more, and the longest of all.
const KEY_BYTES: [usize; 7] = [250, 251, 254, 255, 8_192, 8_193, 65_536];

/// Values: none, a digit, a number as long as they are, the fullest piece and one more, and around the largest
/// chunk.
const VALUE_BYTES: [usize; 8] = [0, 1, 19, 16_376, 16_377, 16_383, 16_384, 16_385];

/// A key of this many bytes; `name` tells several such keys apart.
fn key(bytes: usize, name: u8) -> Vec<u8> {
    let mut key = vec![b'k'; bytes];
    key[bytes - 1] = name;
    key
}

/// A value of this many bytes: digits, so that short values are numbers.
fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'1' + (at % 9) as u8).collect()
}

/// The result of a run; a panic is an error.
fn answered(run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let run = std::panic::AssertUnwindSafe(run);
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err("the server ends".into()))
}

/// A text for a message: long texts are shortened to their ends.
fn shown(bytes: &[u8]) -> String {
    const ENDS: usize = 60;
    let text = larder_testkit::pattern::escaped;
    if bytes.len() <= 3 * ENDS {
        return text(bytes);
    }
    format!("{}…{} bytes…{}", text(&bytes[..ENDS]), bytes.len(), text(&bytes[bytes.len() - ENDS..]))
}
