//! Replies that are made piece by piece: those of commands that answer each of their arguments, and whose
//! reply may be far longer than the request.
//!
//! ```text
//! first piece ─▶ all answered? ─▶ done
//!                   └── no: what is not answered yet is kept, the piece is sent ─▶ next piece
//! ```
//!
//! The next piece is made when the socket has taken enough of those before, so that of a reply there is never
//! more than its connection may hold. A piece is one moment; the first may be as long as [`MOMENT_BYTES`], and
//! with values that are sent from their place as long as all that may wait for a connection: a reply up to that
//! is one moment as a whole. EXEC, all of which is one moment, is sent whole: there,
//! what would need another piece is refused.

use larder_protocol::resp::Args;

use super::job::{Job, Step};
use super::kept::Kept;
use crate::core::output::Mark;
use crate::core::work::copying_ns;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};

/// What is copied into a reply that is one moment, unless connections hold nearly all they may.
pub(crate) const MOMENT_BYTES: u64 = 1 << 20;

/// Answers some of the arguments, one at least, and takes them out: as many as [`Call::goes_on`] says.
pub(crate) type AnswerSome = fn(&mut Call<'_, '_, '_>, &mut Args<'_>);

/// A command that has answered some of its arguments.
#[derive(Debug)]
pub(crate) struct Pieces {
    answer: AnswerSome,
    kept: Kept,
}

impl Pieces {
    /// Answers all these arguments, behind the head of the reply.
    pub fn of(answer: AnswerSome, kept: Kept) -> Pieces {
        Pieces { answer, kept }
    }
}

/// The piece of a reply that is being written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    /// The first, which begins where so many bytes wait, of which so many are of memory of their own.
    First { bytes: u64, own_bytes: u64 },
    /// Others, as long as the output is not full.
    Later,
    /// All of it, in EXEC.
    Whole,
}

impl Call<'_, '_, '_> {
    /// Answers all arguments, behind the head of the reply, which is written.
    ///
    /// # Errors
    /// There is no memory to keep the request until it is answered, or, in EXEC, for the whole reply: nothing
    /// of it is left behind `mark`.
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

    /// A piece of a reply that begins here.
    pub fn piece(&self) -> Piece {
        match self.later {
            _ if self.cx.guard.in_transaction() => Piece::Whole,
            false => Piece::First { bytes: self.out.len(), own_bytes: self.out.own_bytes() },
            true => Piece::Later,
        }
    }

    /// Another value belongs to the piece, and there is room for it.
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
