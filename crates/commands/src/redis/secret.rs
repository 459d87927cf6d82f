//! Passwords among a command's words: no client is shown them, neither by SLOWLOG nor by MONITOR.

use larder_protocol::resp::Args;

use crate::redis::parameters::SECRETS;
use crate::redis::row::{Command, Secret};
use crate::redis::rows::Rows;
use crate::redis::word::is;

/// What is shown in the place of a password.
pub(crate) const REDACTED: &str = "(redacted)";

/// The words of a command as others may see them; `row`: the command's, if there is one of its name.
pub(crate) fn shown<'a>(
    rows: &'static Rows,
    row: Option<&'static Command>,
    words: Args<'a>,
) -> impl Iterator<Item = &'a [u8]> {
    let of_row = row.map_or(Secret::None, |row| row.secret);
    // How many of the next words are secret, and how many are shown whatever they are.
    let (mut secret, mut passed) = (0, 0);
    words.enumerate().map(move |(n, word)| {
        if secret > 0 {
            secret -= 1;
            return REDACTED.as_bytes();
        }
        if passed > 0 {
            passed -= 1;
            return word;
        }
        match of_row {
            Secret::None => {}
            // Words that are too many are secret, too.
            Secret::Behind(at) => secret = if n == at { usize::MAX } else { 0 },
            // A version may stand in front or, by mistake, not.
            Secret::Credentials if n > 0 && is(word, "AUTH") => secret = 2,
            Secret::Credentials => passed = usize::from(n > 0 && is(word, "SETNAME")),
            Secret::Parameters => {
                let names_one = n > 1 && n.is_multiple_of(2) && SECRETS.iter().any(|name| is(word, name));
                secret = usize::from(names_one);
            }
            Secret::OfAnother => {
                let has_secrets = n == 2 && rows.find(word).is_some_and(|(row, _)| may_have_secrets(row));
                secret = if has_secrets { usize::MAX } else { 0 };
            }
        }
        word
    })
}

/// Whether a command, or one of its subcommands, has words that are secret.
fn may_have_secrets(row: &Command) -> bool {
    row.secret != Secret::None || row.subcommands().iter().any(may_have_secrets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::row::Run;
    use crate::redis::table::ROWS;
    use larder_protocol::resp::split;

    fn line(words: &[u8]) -> String {
        let words = split(words).unwrap();
        let mut rest = words.args();
        let mut row = rest.next().and_then(|name| ROWS.find(name)).map(|(row, _)| row);
        if let Some(Run::Container(rows)) = row.map(|row| &row.run) {
            row = row.and_then(|row| row.subcommand(rest.next()?)).map(|at| &rows[at]);
        }
        let words: Vec<_> = shown(&ROWS, row, words.args()).collect();
        String::from_utf8(words.join(&b' ')).unwrap()
    }

    #[test]
    fn passwords_are_not_shown() {
        for (told, is_shown) in [
            ("AUTH secret", "AUTH (redacted)"),
            ("auth name secret", "auth (redacted) (redacted)"),
            ("auth name secret more", "auth (redacted) (redacted) (redacted)"),
            ("HELLO 3 auth name secret setname x", "HELLO 3 auth (redacted) (redacted) setname x"),
            ("hello auth name secret", "hello auth (redacted) (redacted)"),
            ("HELLO 2 SETNAME AUTH AUTH name secret", "HELLO 2 SETNAME AUTH AUTH (redacted) (redacted)"),
            ("config set masterauth secret dir x", "config set masterauth (redacted) dir x"),
            ("command getkeys auth secret", "command getkeys auth (redacted)"),
            (
                "command getkeys config set requirepass s",
                "command getkeys config (redacted) (redacted) (redacted)",
            ),
            (
                "COMMAND GETKEYSANDFLAGS acl setuser one >s",
                "COMMAND GETKEYSANDFLAGS acl (redacted) (redacted) (redacted)",
            ),
            ("config set RequirePass secret maxmemory 5", "config set RequirePass (redacted) maxmemory 5"),
            ("CONFIG SET dir requirepass requirepass s", "CONFIG SET dir requirepass requirepass (redacted)"),
            ("config get requirepass", "config get requirepass"),
            ("acl setuser one on >secret", "acl setuser one (redacted) (redacted)"),
            ("set auth secret", "set auth secret"),
            ("nothing auth secret", "nothing auth secret"),
        ] {
            assert_eq!(line(told.as_bytes()), is_shown);
        }
    }
}
