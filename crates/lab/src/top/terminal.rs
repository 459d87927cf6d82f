//! A terminal: keys one by one, and a screen that is drawn again in its place. It is restored at the end.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::screen::Size;

/// Another screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A key or another event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The end: `q`, Ctrl-C, or the end of the input.
    End,
    /// Any other key.
    Letter(char),
}

/// The terminal, with its former settings.
#[derive(Debug)]
pub struct Terminal {
    before: Termios,
}

impl Terminal {
    /// Opens the terminal; `None` if input or output is no terminal.
    pub fn open() -> Option<Terminal> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let before = tcgetattr(io::stdin()).ok()?;
        let mut bare = before.clone();
        // Keys as they are pressed, Ctrl-C among them, so that the terminal is restored at the end.
        bare.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Now, &bare).ok()?;
        let terminal = Terminal { before };
        terminal.put(ENTER);
        Some(terminal)
    }

    /// Waits for a key, for `most` at most; returns the time that it waited, too.
    pub fn wait(&mut self, most: Duration) -> (Option<Key>, Duration) {
        let began = Instant::now();
        let stdin = io::stdin();
        let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        let ready = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout));
        let key = match ready {
            Ok(1..) => Some(read()),
            // A signal came, as when the window was resized: the screen is drawn at its next time.
            Ok(0) | Err(_) => None,
        };
        (key, began.elapsed())
    }

    /// The number of columns and lines.
    pub fn size(&self) -> Size {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { columns: size.ws_col.into(), lines: size.ws_row.into() }
            }
            Ok(_) | Err(_) => Size { columns: 80, lines: 24 },
        }
    }

    /// Draws these lines over the previous ones.
    pub fn draw(&mut self, lines: &[String]) {
        let body: Vec<String> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
        self.put(&format!("\x1b[H{}\x1b[J", body.join("\r\n")));
    }

    fn put(&self, text: &str) {
        let mut out = io::stdout().lock();
        // A closed terminal shows nothing.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.put(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn read() -> Key {
    let mut byte = [0];
    match rustix::io::read(io::stdin(), &mut byte) {
        Ok(1) => match byte[0] {
            b'q' | 3 | 4 => Key::End,
            byte => Key::Letter(char::from(byte)),
        },
        Ok(_) | Err(_) => Key::End,
    }
}
