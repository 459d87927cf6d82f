//! The option table: one row an option, from which parsing, `--help` and the documentation come.
//!
//! A row says how an option is written, what it takes, what it does and why one would use it, and
//! holds the function that applies it to a [`Config`]. memcached's letters and long names mean
//! what they mean there. An option that memcached has and Larder cannot honour is refused by name
//! with the reason; one that has nothing to act on here is accepted and says so.

mod rows;

pub use rows::OPTIONS;

use crate::config::Config;
use crate::extended;

/// What an option does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// What it says.
    Works,
    /// Nothing; the text is the reason.
    Accepted(&'static str),
    /// The server does not start with it; the text is the reason.
    Refused(&'static str),
}

/// One option.
#[derive(Clone, Copy)]
pub struct Row {
    /// Its letter, if it has one.
    pub letter: Option<char>,
    /// Its long name.
    pub name: &'static str,
    /// What it takes, with the unit; none: it takes nothing.
    pub value: Option<&'static str>,
    /// What holds without it.
    pub default: &'static str,
    /// What it can be.
    pub range: &'static str,
    /// What it does, and why one would use it.
    pub help: &'static str,
    /// What it does here.
    pub effect: Effect,
    /// Applies one occurrence with its value (empty if it takes none). The error is a reason
    /// without the option's name.
    pub apply: fn(&mut Config, &str) -> Result<(), String>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The option table as a page of Markdown.
pub fn markdown() -> String {
    use std::fmt::Write;
    let mut page = String::from("| option | default | values | what it does |\n|---|---|---|---|\n");
    for row in OPTIONS {
        let letter = row.letter.map(|letter| format!("`-{letter}`, ")).unwrap_or_default();
        let value = row.value.map(|value| format!("={value}")).unwrap_or_default();
        let help = described(row.help, row.effect);
        let _ =
            writeln!(page, "| {letter}`--{}{value}` | {} | {} | {help} |", row.name, row.default, row.range);
    }
    page.push_str("\n| `-o` option | default | values | what it does |\n|---|---|---|---|\n");
    for row in extended::EXTENDED {
        let value = row.value.map(|value| format!("={value}")).unwrap_or_default();
        let help = described(row.help, row.effect);
        let _ = writeln!(page, "| `{}{value}` | {} | {} | {help} |", row.name, row.default, row.range);
    }
    page
}

/// Options that were given and have no effect here, as they are written, each once, and why.
pub(crate) fn given_for_nothing(config: &Config) -> Vec<(String, &'static str)> {
    let plain = OPTIONS.iter().map(|row| ("--", row.name, row.effect));
    let extended = extended::EXTENDED.iter().map(|row| ("-o ", row.name, row.effect));
    let all = plain.chain(extended).filter_map(|(before, name, effect)| match effect {
        Effect::Accepted(why) => {
            config.given.iter().any(|(given, _)| *given == name).then(|| (format!("{before}{name}"), why))
        }
        Effect::Works | Effect::Refused(_) => None,
    });
    all.collect()
}

/// Help text with what the option does here.
pub(crate) fn described(help: &str, effect: Effect) -> String {
    match effect {
        Effect::Works => help.to_owned(),
        Effect::Accepted(why) => format!("{help}. Accepted without effect: {why}"),
        Effect::Refused(why) => format!("{help}. Refused: {why}"),
    }
}
