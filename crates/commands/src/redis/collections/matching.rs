//! A long member that is matched with a pattern of SSCAN or ZSCAN in steps, because that takes longer than others should wait.
//!
//! ```text
//! scan ─▶ a long member: copied ─▶ matched, a part in each step ─▶ scan anew, knowing whether it matches
//!              ▲                                                          └── another long one is there
//!              └──────────────────────────────────────────────────────────┘
//! ```
//!
//! Whether a text matches depends on nothing else, so nothing has to stay as it is meanwhile: the reply is of the moment of the
//! last scan. In a transaction, which is one step, such a member is an error.

use larder_protocol::resp::Args;
use larder_store::{Collection, Element, Key, Type};

use super::Call;
use super::scan::{Scanned, Wanted, scan_knowing};
use crate::core::glob::LookedAt;
use crate::core::work::Lane;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::steps::again::{Again, Leave, STEPS_BYTES_MIN};
use crate::redis::steps::job::{Job, Step};

/// The error if a member is too long to be matched in one step, and there are no others.
const TOO_LONG_TO_MATCH: Fail =
    Fail::of("ERR pattern takes too long for a member that is longer than 16384 bytes");

/// A long member, and whether the pattern matches it.
#[derive(Debug)]
pub(super) struct Known {
    text: Vec<u8>,
    pub matches: bool,
}

impl Known {
    /// Whether a name of the collection is this one.
    pub fn is(&self, there: &Collection<'_>, name: &Element<'_>) -> bool {
        let Element::Apart(apart) = name else { return false };
        if apart.len() != self.text.len() {
            return false;
        }
        let mut rest = self.text.as_slice();
        there.parts(apart).all(|part| {
            let (head, behind) = rest.split_at(part.len());
            rest = behind;
            head == part
        })
    }
}

/// A scan under way, and the member that is being matched.
#[derive(Debug)]
struct Matching {
    kind: Type,
    /// The command; `None`: it has begun again.
    again: Option<(Again, Lane)>,
    text: Vec<u8>,
    held: Option<Heap>,
    looked: LookedAt,
    /// Whether the member matches, once that is known.
    matches: Option<bool>,
}

/// Matches a member in later turns, and then scans. `args`: those behind the key; `text`: the member, and its charge.
///
/// # Errors
/// There are no later turns.
pub(super) fn match_in_steps(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    args: Args<'_>,
    kind: Type,
    (text, held): (Vec<u8>, Option<Heap>),
) -> Done {
    let name = if kind == Type::SortedSet { "zscan" } else { "sscan" };
    match call.leave(STEPS_BYTES_MIN, name, Some(key.bytes()), args)? {
        Leave::No => Err(TOO_LONG_TO_MATCH),
        Leave::Later => Ok(()),
        Leave::Yes(again, lane) => {
            let (again, looked) = (Some((again, lane)), LookedAt::default());
            call.go_on_with(Matching { kind, again, text, held, looked, matches: None });
            Ok(())
        }
    }
}

impl Matching {
    /// Matches a part of the member.
    fn match_some(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        let Some((again, _)) = &self.again else { return Ok(()) };
        // The options are behind the key and the cursor.
        let mut options = again.args();
        options.nth(1);
        let wanted = Wanted::parse(call, self.kind, options, None)?;
        let Some(pattern) = &wanted.pattern else {
            self.matches = Some(true);
            return Ok(());
        };
        let (ns_max, mut ns) = (call.step_ns(), pattern.weight().read_ns);
        self.matches = pattern.match_some(&self.text, &mut self.looked, (&mut ns, ns_max));
        call.spend(ns);
        Ok(())
    }
}

/// Scans as the command's words say.
fn scan_again(
    call: &mut Call<'_, '_, '_>,
    again: &Again,
    kind: Type,
    known: &Known,
) -> Result<Scanned, Fail> {
    let mut words = again.args();
    let Some(name) = words.next() else { return Ok(Scanned::Done) };
    let key = call.key(name);
    let hint = call.cx.guard.prefetch_bucket(&key);
    scan_knowing(call, &key, &hint, words, kind, Some(known))
}

impl Job for Matching {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Some(matches) = self.matches else {
            self.match_some(call)?;
            return Ok(Step::More);
        };
        let Some((again, lane)) = self.again.take() else { return Ok(Step::Done) };
        let known = Known { text: std::mem::take(&mut self.text), matches };
        match scan_again(call, &again, self.kind, &known)? {
            Scanned::Done => Ok(Step::Done),
            Scanned::TooLong(text, held) => {
                // The copy is no longer charged when it is made again.
                drop((lane, known, text, held));
                self.held = None;
                again.run(call).map(|()| Step::Done)
            }
        }
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn held_bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, Heap::bytes)
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref().map(|(again, _)| again)
    }
}
