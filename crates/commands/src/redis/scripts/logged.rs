//! What scripts and libraries log. The lines of a run are kept as long as it may be begun anew, so that each is in the log once;
//! those of a library until it is loaded.
//!
//! ```text
//! redis.log ─► kept ─► the log         the run has ended, or has written, and is not begun anew any more
//!               └────► forgotten       the run is begun anew
//! ```
//!
//! [`LINES_MAX`] lines are kept at most. With the next one all of them are written. If the run is begun anew behind that,
//! as many of its first lines are passed over: a script that does the same again logs the same.

use larder_script::Level;

use crate::redis::call::Call;

/// Lines of a run that are kept.
const LINES_MAX: usize = 32;
/// Bytes of a line; what is behind them is cut off.
const LINE_BYTES_MAX: usize = 1 << 10;

/// The lines of a run, or of a library that is loaded.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    kept: Vec<(Level, Box<[u8]>)>,
    /// How many lines there were since the run was begun last.
    lines: usize,
    /// How many of these, the first ones, are in the log.
    written: usize,
}

impl Logged {
    /// Takes a line. `is_final`: the run is not begun anew any more.
    pub fn add(&mut self, call: &Call<'_, '_, '_>, level: Level, text: &[u8], is_final: bool) {
        self.lines += 1;
        if self.lines <= self.written {
            return;
        }
        if is_final || self.kept.len() == LINES_MAX {
            self.write(call);
            log(call, level, text);
            self.written = self.lines;
        } else {
            self.kept.push((level, cut(text).into()));
        }
    }

    /// The run is begun anew.
    pub fn begin_anew(&mut self) {
        self.kept.clear();
        self.lines = 0;
    }

    /// Writes what is kept.
    pub fn write(&mut self, call: &Call<'_, '_, '_>) {
        self.kept.drain(..).for_each(|(level, text)| log(call, level, &text));
    }
}

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(LINE_BYTES_MAX)]
}

/// Writes a line to the log.
fn log(call: &Call<'_, '_, '_>, level: Level, text: &[u8]) {
    let text = String::from_utf8_lossy(cut(text));
    let level = match level {
        Level::Debug => 0,
        Level::Verbose => 1,
        Level::Notice => 2,
        Level::Warning => 3,
    };
    call.cx.host.note(level, &text);
}
