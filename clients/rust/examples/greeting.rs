//! A value that is stored and read, and a thousand that are not waited for one by one.

use larder_client::{Client, Error, Ttl, Window};
use std::time::Duration;

pub(crate) fn greet(server: &str) -> Result<(), Error> {
    let cache = Client::builder().server(server).build()?;
    cache.set(b"greeting", b"hello").ttl(Ttl::In(Duration::from_secs(60))).send()?;
    let value = cache.get(b"greeting")?.expect("it was just stored");
    assert_eq!(value.bytes, b"hello");

    // Sent without waiting, acknowledged later: sent = stored + refused + unknown.
    let mut stream = cache.stream(Window::default());
    for n in 0..1000 {
        stream.set(format!("key:{n}").as_bytes(), b"value", Ttl::Forever)?;
    }
    assert!(stream.barrier().is_clean());
    Ok(())
}

fn main() -> Result<(), Error> {
    greet("127.0.0.1:11211")
}
