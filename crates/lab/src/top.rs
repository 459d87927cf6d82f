//! `larder top`: one screen about a running cache, whether Larder, memcached or Redis.
//!
//! - `look`: the figures that a server reports, asked on one connection by `stats` or INFO
//! - `screen`: two looks as lines of text; no I/O
//! - `terminal`: keys one by one, and the screen drawn again in its place
//!
//! It uses the port of the server's clients, so that it works over the network, too.

pub(crate) mod look;
pub(crate) mod screen;
mod terminal;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use look::{Look, Server};
use screen::{Sheet, Size, Sort};
use terminal::{Key, Terminal};

use crate::error::Error;
use crate::exit;

/// One screen about a running cache: Larder, memcached, Redis, or what speaks as they do.
///
/// Keys: o overview, s slab classes (in memcached's protocol), r RESP commands (in Redis's), c connections; of a Larder: k
/// hot keys, p prefixes, d findings; q ends.
#[derive(Debug, Parser)]
#[command(name = "larder top", after_help = exit::TABLE)]
pub(crate) struct Options {
    /// The server: HOST:PORT, or a URL memcached://… or redis://…, with user:password@ in front of the host if it asks for them
    #[arg(long, value_name = "WHERE", default_value = "127.0.0.1:11211")]
    target: String,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::numbers::seconds)]
    every: f64,
    /// The first sheet
    #[arg(long, value_enum, default_value = "overview")]
    show: Sheet,
    /// What classes and commands are sorted by
    #[arg(long, value_enum, default_value = "share")]
    sort: Sort,
    /// Takes two looks, prints one screen, and ends
    #[arg(long)]
    once: bool,
    /// Prints the figures as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `larder top` with its arguments.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let program = std::iter::once(OsString::from("larder top"));
    let options = match Options::try_parse_from(program.chain(arguments)) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain("top", &options.target, &error),
    }
}

/// Prints why `command` could not ask `target`, without a password.
pub(crate) fn complain(command: &str, target: &str, error: &Error) -> ExitCode {
    let reason = crate::endpoint::without_logins(&error.to_string(), [target.to_owned()]);
    eprintln!("larder {command}: {}: {reason}", crate::endpoint::hidden(target));
    ExitCode::from(error.exit_code())
}

fn run(options: &Options) -> Result<(), Error> {
    let every = Duration::from_secs_f64(options.every);
    let mut server = Server::connect(&options.target)?;
    let mut before = server.look(options.show)?;
    if options.once || options.json {
        std::thread::sleep(every);
        let now = server.look(options.show)?;
        let text = if options.json {
            screen::json(&before, &now)
        } else {
            lines(&screen::lines(&before, &now, options.show, options.sort, Size::UNBOUNDED))
        };
        return say(&text);
    }
    let Some(mut terminal) = Terminal::open() else {
        // Stdout is a file or a pipe: one screen follows the other.
        loop {
            std::thread::sleep(every);
            let now = server.look(options.show)?;
            say(&lines(&screen::lines(&before, &now, options.show, options.sort, Size::UNBOUNDED)))?;
            before = now;
        }
    };
    let (mut sheet, mut now): (Sheet, Option<Look>) = (options.show, None);
    let mut left = every;
    loop {
        let (key, waited) = terminal.wait(left);
        left = left.saturating_sub(waited);
        match key {
            Some(Key::End) => return Ok(()),
            Some(Key::Letter(letter)) => {
                if let Some(wanted) = Sheet::of(letter) {
                    // The server is asked anew: another sheet needs more figures.
                    (sheet, left) = (wanted, Duration::ZERO);
                }
            }
            None => {}
        }
        if left.is_zero() {
            if let Some(now) = now.take() {
                before = now;
            }
            let look = server.look(sheet)?;
            terminal.draw(&screen::lines(&before, &look, sheet, options.sort, terminal.size()));
            now = Some(look);
            left = every;
        }
    }
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Writes to stdout.
fn say(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    said.map_err(|error| Error::File(PathBuf::from("stdout"), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }
}
