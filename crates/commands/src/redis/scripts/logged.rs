//! Log lines of scripts and libraries. The lines of a run are kept as long as it may be begun anew, so that each is logged once;
//! those of a library until it is loaded.
//!
//! ```text
//! redis.log ─► kept ─► the log         the run has ended, or has written and will not be begun anew
//!               └────► forgotten       the run is begun anew
//! ```
//!
//! At most [`LINES_MAX`] lines are kept; the next line writes all of them. If the run is begun anew after that, as many of its
//! first lines are skipped: a script that does the same again logs the same.

use larder_script::Level;

use crate::redis::call::Call;

/// Lines of a run that are kept, at most.
const LINES_MAX: usize = 32;
/// Bytes of a line; longer lines are cut.
const LINE_BYTES_MAX: usize = 1 << 10;

/// The lines of a run, or of a library that is being loaded.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    kept: Vec<(Level, Box<[u8]>)>,
    /// How many lines there were since the run was begun last.
    lines: usize,
    /// How many of the first lines are in the log.
    written: usize,
}

impl Logged {
    /// Adds a line. `is_final`: the run will not be begun anew.
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

    /// Forgets kept lines, since the run is begun anew.
    pub fn begin_anew(&mut self) {
        self.kept.clear();
        self.lines = 0;
    }

    /// Writes the kept lines.
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
