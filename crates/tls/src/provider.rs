//! The library that does the arithmetic of TLS: ring. It is chosen here, and nothing else names it.
//!
//! aws-lc-rs was tried. It costs a release build 79 s of CPU time more (113 s against 34 s for rustls with its library
//! alone) and the program 2.2 MB, and signs with RSA keys faster.

pub(crate) use rustls::crypto::ring::{Ticketer, cipher_suite, default_provider};
