//! The Rust code in docs/clients.md and README.md is the code of the client's examples, and the examples
//! work.

use larder_testkit::process::Server;
use tokio::runtime::Builder;

#[path = "../../examples/awaited.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod awaited;
#[path = "../../examples/greeting.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod greeting;
#[path = "../../examples/readme.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod readme;

const README: &str = include_str!("../../../../README.md");
const PAGE: &str = include_str!("../../../../docs/clients.md");
const EXAMPLE: &str = include_str!("../../examples/readme.rs");

#[test]
#[ignore = "time: the examples have the usual timeouts of half a second"]
fn the_examples_work() {
    let server = Server::start(&["--threads", "1"]).expect("a server");
    let address = server.address().to_string();
    greeting::greet(&address).expect("it works");
    readme::waits(&address).expect("it works");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(readme::awaits(&address)).expect("it works");
    runtime.block_on(awaited::greet(&address)).expect("it works");
}

#[test]
fn the_page_shows_the_examples() {
    for example in [include_str!("../../examples/greeting.rs"), include_str!("../../examples/awaited.rs")] {
        assert!(PAGE.contains(example), "docs/clients.md shows another program");
    }
}

#[test]
fn the_readme_shows_lines_of_an_example() {
    let lines = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let example = lines(EXAMPLE).replace("server(server)", "server(\"127.0.0.1:11211\")");
    let mut blocks = 0;
    for block in README.split("```rust\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        assert!(example.contains(lines(block).trim()), "README.md shows other lines:\n{block}");
        blocks += 1;
    }
    assert_eq!(blocks, 2, "lines that wait, and lines that are awaited");
}
