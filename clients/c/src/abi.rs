//! The exported functions: pointers in, pointers out, and no panic beyond.
//!
//! ```text
//! client, verbs, batch, stream, pipe: the functions
//!   ├──► pointers: what is read and written by them
//!   └──► call: how each of them ends
//! ```
//!
//! What callers promise is said to them by `larder.h`. The proofs below cite it by these numbers:
//!
//! 1. A handle is NULL, or was made by the function for it and not freed since; who frees it is the last to use it.
//! 2. Bytes: `len` of them can be read at `data`, and nobody writes them during the call; or `len` is 0.
//! 3. What is given in a struct: it is NULL, or aligned, and as many bytes as its `size` says can be read, which nobody writes
//!    during the call. Arrays in it have as many members as it says, and texts end with 0.
//! 4. Room for what is told: it is NULL, or aligned, and can be written: a type's own bytes, or as many as its `size` says, or
//!    as many as are said beside it. Nobody else reads or writes it during the call.
//! 5. A function of the caller's may be called as its type says, and returns.
//!
//! Nothing that is made of a caller's pointer outlives the call, but what handles own.

mod batch;
mod call;
mod client;
mod pipe;
mod pointers;
mod stream;
mod verbs;

/// What a call has to say, or why it was not made.
type Told<T> = Result<T, crate::failure::Failure>;
