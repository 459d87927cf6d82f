//! The server's side of TLS over simulated streams, against rustls's own client; and the client's side
//! against the server's.

mod client;
mod memory;
mod options;
mod pair;
mod records;
mod sealed;
