//! Tasks that share a client, a call that is given up, and a thousand writes that are not waited for one by one.

use larder_client::tokio::Client;
use larder_client::{Error, Ttl, Window};
use std::time::Duration;
use tokio::time::timeout;

pub(crate) async fn greet(server: &str) -> Result<(), Error> {
    let cache = Client::builder().server(server).build_tokio()?;
    let greeters: Vec<_> = (0..100)
        .map(|n| {
            let cache = cache.clone();
            tokio::spawn(async move { cache.set(format!("greeter:{n}").as_bytes(), b"hello").send().await })
        })
        .collect();
    for greeter in greeters {
        greeter.await.expect("it does not panic")?;
    }
    // Dropped before it is answered, and nothing else on the connection is the worse for it.
    let _ = timeout(Duration::ZERO, cache.get(b"greeter:1")).await;
    let value = cache.get(b"greeter:2").await?.expect("it was just stored");
    assert_eq!(value.bytes, b"hello");

    // Sent without waiting, acknowledged later: sent = stored + refused + unknown.
    let mut stream = cache.stream(Window::default());
    for n in 0..1000 {
        stream.set(format!("key:{n}").as_bytes(), b"value", Ttl::Forever).await?;
    }
    assert!(stream.barrier().await.is_clean());
    Ok(())
}

fn main() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(greet("127.0.0.1:11211"))
}
