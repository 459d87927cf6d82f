//! What README.md shows: lines that wait, and lines that are awaited.

use larder_client::Error;

pub(crate) fn waits(server: &str) -> Result<(), Error> {
    let cache = larder_client::Client::builder().server(server).build()?;
    cache.set(b"greeting", b"hello").send()?;
    let value = cache.get(b"greeting")?;
    assert_eq!(value.expect("it was just stored").bytes, b"hello");
    Ok(())
}

pub(crate) async fn awaits(server: &str) -> Result<(), Error> {
    let cache = larder_client::Client::builder().server(server).build_tokio()?;
    cache.set(b"greeting", b"hello").send().await?;
    let value = cache.get(b"greeting").await?;
    assert_eq!(value.expect("it was just stored").bytes, b"hello");
    Ok(())
}

fn main() -> Result<(), Error> {
    waits("127.0.0.1:11211")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(awaits("127.0.0.1:11211"))
}
