//! Attacks on the released server: requests that are legal and small, and try to take more memory, work or time than
//! one client may. `cargo xtask attack [NAME…]` builds the server and stages each, one after the other.
//!
//! ```text
//! core 0   larder serve -m 64 -t 2     larder lab null
//!               ▲        ▲   ▲             ▲
//! core 1     attack     canaries        canary        a look at memory each 20 ms
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | [`rows`] | the attacks |
//! | [`stage`] | a server, and what is seen of it meanwhile |
//! | [`wire`] | what attackers send and hear |

#![forbid(unsafe_code)]

mod rows;
mod stage;
mod wire;

use larder_testkit::stage::pin;
use rows::{ROWS, Row};
use stage::{EXCESS_US_MAX, Report};
use std::process::ExitCode;

fn main() -> ExitCode {
    larder_testkit::exit(attack())
}

fn attack() -> Result<bool, String> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = names.iter().find(|name| !ROWS.iter().any(|row| row.name.starts_with(&name[..]))) {
        let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        return Err(format!("{unknown}: no such attack; there are {}", known.join(" ")));
    }
    let wanted = |row: &&Row| names.is_empty() || names.iter().any(|name| row.name.starts_with(&name[..]));
    let two_cores = pin(0) && pin(1);
    println!(
        "{:<22} {:>6} {:>9} {:>11} {:>11} {:>8} {:>8}  what came of it",
        "attack", "MB", "bound MB", "canary ms", "excess ms", "own ms", "verdict"
    );
    let mut failed = 0;
    for row in ROWS.iter().filter(wanted) {
        let report = stage::run(row, two_cores)?;
        failed += usize::from(!report.holds());
        let Report { rss, bound, longest_us, excess_us, own_us, .. } = &report;
        println!(
            "{:<22} {:>6} {:>9} {:>11.1} {:>11.1} {:>8} {:>8}  {}",
            row.name,
            rss >> 20,
            bound >> 20,
            *longest_us as f64 / 1e3,
            *excess_us as f64 / 1e3,
            own_us.map_or(String::new(), |us| format!("{:.1}", us as f64 / 1e3)),
            if report.holds() { "holds" } else { "FAILS" },
            report.said()
        );
    }
    println!("{failed} failed; a canary may wait {} ms more than the machine takes", EXCESS_US_MAX / 1000);
    Ok(failed == 0)
}
