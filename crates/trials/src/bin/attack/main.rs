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
//! | [`identity`] | the certificate of a server that speaks TLS, and clients that trust it |
//! | [`stage`] | a server, and what is seen of it meanwhile |
//! | [`wire`] | what attackers send and hear |

#![forbid(unsafe_code)]

mod identity;
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

/// A cell of a table in Markdown. Its text may be anything that a server has replied.
fn cell(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;");
    text.replace(['\r', '\n'], " ")
}

fn attack() -> Result<bool, String> {
    let (options, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with('-'));
    let markdown = match &options[..] {
        [] => false,
        [option] if option == "--markdown" => true,
        _ => return Err("attack [--markdown] [NAME…]".to_owned()),
    };
    if let Some(unknown) = names.iter().find(|name| !ROWS.iter().any(|row| row.name.starts_with(&name[..]))) {
        let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        return Err(format!("{unknown}: no such attack; there are {}", known.join(" ")));
    }
    let wanted = |row: &&Row| names.is_empty() || names.iter().any(|name| row.name.starts_with(&name[..]));
    let two_cores = pin(0) && pin(1);
    let print = |cells: [&str; 7]| {
        let [name, rss, bound, longest, excess, verdict, said] = cells;
        if markdown {
            println!("| {} |", cells.map(cell).join(" | "));
        } else {
            println!("{name:<22} {rss:>6} {bound:>9} {longest:>11} {excess:>11} {verdict:>8}  {said}");
        }
    };
    print(["attack", "MB", "bound MB", "canary ms", "excess ms", "verdict", "what came of it"]);
    if markdown {
        print(["---"; 7]);
    }
    let mut failed = 0;
    for row in ROWS.iter().filter(wanted) {
        let report = stage::run(row, two_cores)?;
        failed += usize::from(!report.holds());
        let Report { rss, bound, longest_us, excess_us, .. } = &report;
        let (megabytes, ms) =
            (|bytes: u64| (bytes >> 20).to_string(), |us: u64| format!("{:.1}", us as f64 / 1e3));
        print([
            row.name,
            &megabytes(*rss),
            &megabytes(*bound),
            &ms(*longest_us),
            &ms(*excess_us),
            if report.holds() { "holds" } else { "FAILS" },
            &report.said(),
        ]);
    }
    println!("{failed} failed; a canary may wait {} ms more than the machine takes", EXCESS_US_MAX / 1000);
    Ok(failed == 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_text_ends_its_cell() {
        assert_eq!(super::cell("a\\|b|c <d>\r\n"), "a\\\\\\|b\\|c &lt;d>  ");
    }
}
