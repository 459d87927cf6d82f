//! The C client: `include/larder.h` over the Rust client.
//!
//! ```text
//! C ──► abi ──► calls, batch, stream, pipe ──► larder_client
//!       pointers   what a call means             what is sent
//! ```
//!
//! - `shapes`: the structs and numbers of the header.
//! - `abi`: the exported functions. They turn pointers into what the others take, and stop panics: the one folder with unsafe
//!   code.
//! - `asks`: the requests in structs of options. `calls`, `batch`, `stream`, `pipe`: what the functions do.
//! - `lives`: which client a handle refers to, in a forked process and while it is freed.
//! - `secure`: files of certificates.
//! - `failure`: failed calls.
//!
//! Build it with the profile `library`, which unwinds: a panic becomes `LARDER_BUG`, where the release profile would end the
//! program that uses the library.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod abi;
mod asks;
mod batch;
mod calls;
mod config;
mod failure;
mod lives;
mod pipe;
mod secure;
mod shapes;
mod stream;
#[cfg(test)]
mod tests;
