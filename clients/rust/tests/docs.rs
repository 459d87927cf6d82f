//! What docs/clients.md shows of the Rust client is the example, and the example works.

use larder_testkit::process::Server;

#[path = "../examples/greeting.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod greeting;

#[test]
fn the_example_works() {
    let server = Server::start(&["--threads", "1"]).expect("a server");
    greeting::greet(&server.address().to_string()).expect("it works");
}

#[test]
fn the_page_shows_the_example() {
    let page = include_str!("../../../docs/clients.md");
    assert!(page.contains(include_str!("../examples/greeting.rs")), "docs/clients.md shows another program");
}
