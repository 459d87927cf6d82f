//! Why a command was not carried out, in Redis's words: the first word is part of the protocol,
//! clients switch on it.

use std::borrow::Cow;

use larder_store::Declined;

use crate::core::calls::{RowId, Rows};

/// An error reply, without its minus sign and line end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fail {
    text: Cow<'static, str>,
    /// A client that counts errors by their first words has it already.
    is_counted: bool,
}

/// What a command comes to: its reply is written, or this is.
pub(crate) type Done = Result<(), Fail>;

impl Fail {
    pub const SYNTAX: Fail = Fail::of("ERR syntax error");
    pub const NOT_AN_INTEGER: Fail = Fail::of("ERR value is not an integer or out of range");
    pub const NOT_A_FLOAT: Fail = Fail::of("ERR value is not a valid float");
    pub const OVERFLOW: Fail = Fail::of("ERR increment or decrement would overflow");
    pub const NO_SUCH_KEY: Fail = Fail::of("ERR no such key");
    pub const OUT_OF_MEMORY: Fail = Fail::of("OOM command not allowed when used memory > 'maxmemory'.");
    pub const WRONG_TYPE: Fail =
        Fail::of("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub const COLLECTION_TOO_LARGE: Fail = Fail::of(
        "ERR collection exceeds maximum allowed size (16384 bytes of an element with its key, of a list, a set, a value or an entry of a stream 4 MiB, of a sorted set 1 MiB; an element of a list or a value that comes last 64 MiB)",
    );
    /// An element that was received into its parts is sent and moved as it lies. What copies or compares it is bounded.
    pub const TOO_LONG_TO_COPY: Fail = Fail::of(
        "ERR element exceeds 4194304 bytes: it is sent or moved as a whole by LINDEX, LRANGE, LPOP, LMOVE, HGET, HGETALL and their like outside of MULTI and scripts, and not copied or compared",
    );
    pub const BUSY: Fail =
        Fail::of("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");
    pub const HELD: Fail = Fail::of("OOM connections hold as much memory as they may");
    pub const TOO_LONG: Fail = Fail::of("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    pub const KEY_TOO_LONG: Fail = Fail::of("ERR key exceeds maximum allowed size (65536 bytes)");
    pub const PATTERN_TOO_LONG: Fail =
        Fail::of("ERR pattern exceeds maximum allowed size (65536 bytes, 4096 where not all are letters)");
    pub const BAD_DATABASE: Fail = Fail::of("ERR DB index is out of range");
    /// What EXEC does beside what was weighed is bounded where nothing is lost by it: what only looks.
    pub const LOOKED_ENOUGH: Fail =
        Fail::of("ERR this EXEC has looked through or replied as much as is done while others wait");
    /// For NOVALUES where no values are.
    pub const ONLY_HSCAN: Fail = Fail::of("ERR NOVALUES option can only be used in HSCAN");
    /// For NOSCORES where no scores are.
    pub const ONLY_ZSCAN: Fail = Fail::of("ERR NOSCORES option can only be used in ZSCAN");
    pub const NOT_POSITIVE: Fail = Fail::of("ERR value is out of range, must be positive");

    /// A fixed text.
    pub const fn of(text: &'static str) -> Fail {
        Fail { text: Cow::Borrowed(text), is_counted: false }
    }

    /// A text made for the occasion. Line ends at its end are left out, others become spaces.
    pub fn with(mut text: String) -> Fail {
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
        Fail { text: Cow::Owned(text), is_counted: false }
    }

    /// The same, of which the text was counted where it came from.
    pub fn counted(self) -> Fail {
        Fail { is_counted: true, ..self }
    }

    /// Its text was counted.
    pub fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// The name is no command's.
    #[cold]
    pub fn unknown_command<'a>(name: &[u8], args: impl Iterator<Item = &'a [u8]>) -> Fail {
        let mut text = format!("ERR unknown command '{}', with args beginning with: ", shown(name, 128));
        let mut left = 128usize;
        for arg in args {
            if left == 0 {
                break;
            }
            let arg = shown(arg, left);
            left = left.saturating_sub(arg.chars().count() + 3);
            text.push_str(&format!("'{arg}' "));
        }
        Fail::with(text)
    }

    /// The container has no such command.
    #[cold]
    pub fn unknown_subcommand(container: &str, name: &[u8]) -> Fail {
        let container = container.to_ascii_uppercase();
        Fail::with(format!("ERR unknown subcommand '{}'. Try {container} HELP.", shown(name, 128)))
    }

    /// A container's command with a number of arguments that it finds out itself to be wrong.
    #[cold]
    pub fn subcommand_arity(container: &str, name: &str) -> Fail {
        Fail::with(format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
        ))
    }

    /// The rules of its client's user have changed before a command in steps has done anything. `undone`: what it would have.
    #[cold]
    pub fn overtaken(undone: &str) -> Fail {
        let text = format!("NOPERM The user's ACL rules changed before any of the {undone}: none of them is");
        Fail::with(text)
    }

    /// Too few arguments or too many.
    #[cold]
    pub fn arity(name: &str) -> Fail {
        Fail::with(format!("ERR wrong number of arguments for '{name}' command"))
    }

    /// An expiry that cannot be.
    #[cold]
    pub fn expire_time(name: &str) -> Fail {
        Fail::with(format!("ERR invalid expire time in '{name}' command"))
    }

    /// It is for want of memory: in Redis such commands are refused before they run, here some find out when they
    /// do. Counted alike.
    #[cold]
    pub fn is_refusal(&self) -> bool {
        *self == Fail::OUT_OF_MEMORY || *self == Fail::HELD
    }

    /// The store had none.
    #[cold]
    pub fn is_no_memory(&self) -> bool {
        *self == Fail::OUT_OF_MEMORY
    }

    /// Counts it with the command that is counted as one that ran.
    #[cold]
    pub fn count(&self, rows: &Rows, row: RowId) {
        if self.is_refusal() {
            rows.refused_late(row);
        } else {
            rows.failed(row);
        }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<Declined> for Fail {
    #[cold]
    fn from(declined: Declined) -> Fail {
        match declined {
            Declined::Type => Fail::WRONG_TYPE,
            Declined::TooLarge => Fail::COLLECTION_TOO_LARGE,
            Declined::NoMemory => Fail::OUT_OF_MEMORY,
            Declined::Twice => Fail::of("ERR Bad data format"),
            Declined::NotANumber => Fail::of("ERR resulting score is not a number (NaN)"),
        }
    }
}

/// Bytes from the network as text for an error line: as in C, up to the first zero.
pub(crate) fn shown(bytes: &[u8], bytes_max: usize) -> String {
    bytes.iter().take(bytes_max).take_while(|&&byte| byte != 0).map(|&byte| char::from(byte)).collect()
}
