//! Opcodes of the binary protocol: one row each.

use crate::classic::StoreVerb;

/// What an opcode does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The value of a key.
    Get,
    /// set, add, replace.
    Store(StoreVerb),
    /// append, prepend.
    Concat(StoreVerb),
    /// Removes an item.
    Delete,
    /// Adds to a number.
    Increment,
    /// Takes from a number, down to 0.
    Decrement,
    /// Ends the connection.
    Quit,
    /// Removes everything.
    Flush,
    /// A reply that does nothing else.
    Noop,
    /// The version.
    Version,
    /// Figures.
    Stat,
    /// Sets the log level.
    Verbosity,
    /// Sets an exptime.
    Touch,
    /// Sets an exptime, and returns the value.
    GetAndTouch,
    /// Names of SASL mechanisms.
    SaslList,
    /// Begins an authentication.
    SaslAuth,
    /// Continues an authentication.
    SaslStep,
}

/// Whether a part of a frame is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Never,
    Maybe,
    Always,
}

impl Part {
    fn allows(self, is_there: bool) -> bool {
        match self {
            Part::Never => !is_there,
            Part::Maybe => true,
            Part::Always => is_there,
        }
    }
}

/// An opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// Its number.
    pub code: u8,
    /// Its name in memcached's documentation, in small letters.
    pub name: &'static str,
    /// What it does.
    pub verb: Verb,
    /// The expected outcome has no reply: a miss of a read, success of everything else.
    pub quiet: bool,
    /// A reply has the key.
    pub with_key: bool,
    /// Bytes of its extras.
    pub extras_bytes: u8,
    /// Whether the extras may be left out.
    optional_extras: bool,
    key: Part,
    value: Part,
}

impl Opcode {
    /// True if a frame of this opcode may have these parts.
    #[inline]
    pub(super) fn takes(&self, key_bytes: usize, extras_bytes: usize, value_bytes: u32) -> bool {
        let extras =
            extras_bytes == usize::from(self.extras_bytes) || self.optional_extras && extras_bytes == 0;
        extras && self.key.allows(key_bytes > 0) && self.value.allows(value_bytes > 0)
    }

    const fn quiet(self, code: u8, name: &'static str) -> Opcode {
        Opcode { code, name, quiet: true, ..self }
    }

    const fn with_key(self, code: u8, name: &'static str) -> Opcode {
        Opcode { code, name, with_key: true, ..self }
    }
}

const fn row(code: u8, name: &'static str, verb: Verb, extras_bytes: u8, key: Part, value: Part) -> Opcode {
    Opcode {
        code,
        name,
        verb,
        quiet: false,
        with_key: false,
        extras_bytes,
        optional_extras: false,
        key,
        value,
    }
}

/// Frames without a body.
const fn bare(code: u8, name: &'static str, verb: Verb) -> Opcode {
    row(code, name, verb, 0, Part::Never, Part::Never)
}

/// Frames of a key, and maybe extras.
const fn keyed(code: u8, name: &'static str, verb: Verb, extras_bytes: u8) -> Opcode {
    row(code, name, verb, extras_bytes, Part::Always, Part::Never)
}

/// Frames of a key and a value, and maybe extras.
const fn valued(code: u8, name: &'static str, verb: Verb, extras_bytes: u8) -> Opcode {
    row(code, name, verb, extras_bytes, Part::Always, Part::Maybe)
}

const GET: Opcode = keyed(0x00, "get", Verb::Get, 0);
const SET: Opcode = valued(0x01, "set", Verb::Store(StoreVerb::Set), 8);
const ADD: Opcode = valued(0x02, "add", Verb::Store(StoreVerb::Add), 8);
const REPLACE: Opcode = valued(0x03, "replace", Verb::Store(StoreVerb::Replace), 8);
const DELETE: Opcode = keyed(0x04, "delete", Verb::Delete, 0);
const INCREMENT: Opcode = keyed(0x05, "increment", Verb::Increment, 20);
const DECREMENT: Opcode = keyed(0x06, "decrement", Verb::Decrement, 20);
const QUIT: Opcode = bare(0x07, "quit", Verb::Quit);
const FLUSH: Opcode =
    Opcode { optional_extras: true, ..row(0x08, "flush", Verb::Flush, 4, Part::Never, Part::Never) };
const APPEND: Opcode = valued(0x0e, "append", Verb::Concat(StoreVerb::Append), 0);
const PREPEND: Opcode = valued(0x0f, "prepend", Verb::Concat(StoreVerb::Prepend), 0);
const GAT: Opcode = keyed(0x1d, "gat", Verb::GetAndTouch, 4);

/// All opcodes in the order of their codes.
pub static OPCODES: &[Opcode] = ROWS;

const ROWS: &[Opcode] = &[
    GET,
    SET,
    ADD,
    REPLACE,
    DELETE,
    INCREMENT,
    DECREMENT,
    QUIT,
    FLUSH,
    GET.quiet(0x09, "getq"),
    bare(0x0a, "noop", Verb::Noop),
    bare(0x0b, "version", Verb::Version),
    GET.with_key(0x0c, "getk"),
    GET.with_key(0x0d, "getk").quiet(0x0d, "getkq"),
    APPEND,
    PREPEND,
    row(0x10, "stat", Verb::Stat, 0, Part::Maybe, Part::Never),
    SET.quiet(0x11, "setq"),
    ADD.quiet(0x12, "addq"),
    REPLACE.quiet(0x13, "replaceq"),
    DELETE.quiet(0x14, "deleteq"),
    INCREMENT.quiet(0x15, "incrementq"),
    DECREMENT.quiet(0x16, "decrementq"),
    QUIT.quiet(0x17, "quitq"),
    FLUSH.quiet(0x18, "flushq"),
    APPEND.quiet(0x19, "appendq"),
    PREPEND.quiet(0x1a, "prependq"),
    row(0x1b, "verbosity", Verb::Verbosity, 4, Part::Never, Part::Never),
    keyed(0x1c, "touch", Verb::Touch, 4),
    GAT,
    GAT.quiet(0x1e, "gatq"),
    bare(0x20, "sasl list mechs", Verb::SaslList),
    valued(0x21, "sasl auth", Verb::SaslAuth, 0),
    valued(0x22, "sasl step", Verb::SaslStep, 0),
    GAT.with_key(0x23, "gatk"),
    GAT.with_key(0x24, "gatk").quiet(0x24, "gatkq"),
];

/// No row.
const NONE: u8 = u8::MAX;

/// The index into the rows by code.
const INDEX: [u8; 256] = {
    let mut index = [NONE; 256];
    let mut at = 0;
    while at < ROWS.len() {
        index[ROWS[at].code as usize] = at as u8;
        at += 1;
    }
    index
};

/// The row of this code.
#[inline]
pub fn opcode(code: u8) -> Option<&'static Opcode> {
    ROWS.get(usize::from(INDEX[usize::from(code)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_their_numbers_and_each_is_found() {
        assert!(OPCODES.windows(2).all(|pair| pair[0].code < pair[1].code));
        for code in 0..=u8::MAX {
            let row = OPCODES.iter().find(|row| row.code == code);
            assert_eq!(opcode(code), row, "{code:#x}");
        }
    }

    #[test]
    fn a_quiet_opcode_differs_from_its_loud_one_in_nothing_else() {
        for row in OPCODES.iter().filter(|row| row.quiet) {
            let loud = row.name.strip_suffix('q').expect("a q at its end");
            let loud = OPCODES.iter().find(|row| row.name == loud).expect("a loud one");
            assert_eq!(loud.quiet(row.code, row.name), *row);
        }
    }
}
