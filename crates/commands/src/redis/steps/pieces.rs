//! Replies that are made piece by piece: those of commands that answer each of their arguments, whose reply may be far longer
//! than the request.
//!
//! ```text
//! first piece ─▶ all answered? ─▶ done
//!                   └── no: the other arguments are kept, the piece is sent ─▶ next piece
//! ```
//!
//! The next piece is made when the socket has taken enough of the earlier ones, so that a connection never holds more of a reply
//! than it may. A piece is one moment. The first may have [`MOMENT_BYTES`] of copies, and with values that are sent from their
//! place as much as may wait for a connection: a reply up to that is one moment as a whole. EXEC is one moment and is sent whole:
//! there, a reply that would need another piece is refused.

use larder_protocol::resp::Args;

use super::job::{Job, Step};
use super::kept::Kept;
use crate::core::output::Mark;
use crate::core::work::copying_ns;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};

/// Bytes that are copied into a reply that is one moment, unless connections hold nearly all they may.
pub(crate) const MOMENT_BYTES: u64 = 1 << 20;

/// Answers some of the arguments, at least one, and takes them out: as many as [`Call::goes_on`] allows.
pub(crate) type AnswerSome = fn(&mut Call<'_, '_, '_>, &mut Args<'_>);

/// A command that has answered some of its arguments, and goes on.
#[derive(Debug)]
pub(crate) struct Pieces {
    answer: AnswerSome,
    kept: Kept,
}

impl Pieces {
    /// Makes a job that answers these arguments, behind the head of the reply.
    pub fn of(answer: AnswerSome, kept: Kept) -> Pieces {
        Pieces { answer, kept }
    }
}

/// The piece of a reply that is being written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    /// The first. So many bytes were in the output before it, `own_bytes` of them in the output's own memory.
    First { bytes: u64, own_bytes: u64 },
    /// A later one, which ends when the output is full.
    Later,
    /// The whole reply, in EXEC.
    Whole,
}

impl Call<'_, '_, '_> {
    /// Answers all arguments, behind the head of the reply, which is written.
    ///
    /// # Errors
    /// There is no memory to keep the request until it is answered, or, in EXEC, for the whole reply. Nothing is left behind
    /// `mark`.
    pub fn in_pieces(&mut self, mark: Mark, mut args: Args<'_>, answer: AnswerSome) -> Done {
        if args.is_empty() {
            return Ok(());
        }
        answer(self, &mut args);
        if args.is_empty() {
            return Ok(());
        }
        let kept = if self.cx.guard.in_transaction() { Err(Fail::HELD) } else { Kept::new(self, args) };
        let kept = kept.inspect_err(|_| self.out.rewind(mark))?;
        self.go_on_with(Pieces { answer, kept });
        Ok(())
    }

    /// The piece of a reply that begins here.
    pub fn piece(&self) -> Piece {
        match self.later {
            _ if self.cx.guard.in_transaction() => Piece::Whole,
            false => Piece::First { bytes: self.out.len(), own_bytes: self.out.own_bytes() },
            true => Piece::Later,
        }
    }

    /// Whether another value belongs to the piece, and there is room for it.
    #[inline]
    pub fn goes_on(&mut self, piece: Piece) -> bool {
        match piece {
            Piece::First { bytes, own_bytes } => {
                let max = self.reply_bytes_max();
                self.out.own_bytes() - own_bytes < MOMENT_BYTES.min(max)
                    && self.out.len() - bytes < max
                    && self.may_reply_more()
            }
            Piece::Later => !self.out.is_full(),
            Piece::Whole => self.may_reply_more(),
        }
    }
}

impl Job for Pieces {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let before = call.out.len();
        call.later = true;
        self.kept.take(|words| (self.answer)(call, words));
        call.spend(copying_ns(call.out.len() - before));
        Ok(if self.kept.left() == 0 { Step::Done } else { Step::Full })
    }

    fn held_bytes(&self) -> u64 {
        self.kept.held_bytes()
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
