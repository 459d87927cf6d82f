//! The exported functions: pointers in, pointers out, and no panic beyond.
//!
//! ```text
//! client, verbs, batch, stream, pipe: the functions
//!   ├──► pointers: reading and writing through them
//!   └──► call: how each of them ends
//! ```
//!
//! `larder.h` says what callers promise. The proofs below cite these promises by number:
//!
//! 1. A handle is NULL, or was made by the function for it and not freed since. The call that frees it is its last use.
//! 2. Bytes: `len` of them can be read at `data`, and nothing writes them during the call; or `len` is 0.
//! 3. An input struct: it is NULL, or aligned, and as many bytes as its `size` says can be read, which nothing writes during the
//!    call. Arrays in it have as many members as it says, and texts end with 0.
//! 4. Room for output: it is NULL, or aligned, and can be written: a type's own bytes, or as many as its `size` says, or as many
//!    as a length beside it says. Nothing else reads or writes it during the call.
//! 5. A function of the caller may be called as its type says, and returns.
//!
//! Except what handles own, nothing made from a caller's pointer outlives the call.

mod batch;
mod call;
mod client;
mod pipe;
mod pointers;
mod stream;
mod verbs;

/// The result of a call, or why it was not made.
type Fallible<T> = Result<T, crate::failure::Failure>;
