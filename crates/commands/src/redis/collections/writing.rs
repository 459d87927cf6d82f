//! Commands that write many elements of one collection, as one moment for other clients. Requests for other keys are served
//! meanwhile.
//!
//! ```text
//! few, or some of short ones    one step
//! up to 65,536                  looks ─► the key is taken ─► asks ─► writes, some in each step ─► replied
//!                                            └───────── the key is held ────────┘
//! more                          looks ─► asks ─► writes, some in each step: each step is one moment
//! ```
//!
//! HSETEX alone asks whether all of its fields are there, or none is. Its key is held by then, so that the answer still holds
//! when it sets the first of them.
//!
//! All words are looked at, some in each step, before the first is written: what would refuse one of them is found then. Memory
//! that is on its way is waited for before the key is held, as long as any write waits, and so is that of each step. A command
//! that has waited for 2 s in all while its key is held frees the key and goes on as with more than 65,536: others may see a
//! part.
//!
//! If the key goes meanwhile (it is evicted, or expires), the elements are written again from the first on. When a later step is
//! refused for want of memory, a key that was not there before is removed, and one that was keeps the elements that were written.
//! `steps/stages.rs` has its key held.
//!
//! In EXEC, which holds its keys itself, the command is a part of that moment; in scripts it is one step.

use larder_protocol::resp::Args;
use larder_store::{Expect, Fields, Key, Millis, Type};

use super::words::{LOOKS_AT_ONCE, Looking, Write, first};
use super::{Call, FEW_ELEMENTS, LOOK_NS, Pairs, peek_as};
use crate::core::events::Before;
use crate::redis::call::ELEMENT_BYTES;
use crate::redis::fail::{Done, Fail};
use crate::redis::row::Command;
use crate::redis::source::Name;
use crate::redis::steps::held::Taking;
use crate::redis::steps::job::Step;
use crate::redis::steps::kept::{Kept, Place};
use crate::redis::steps::patience::Patience;
use crate::redis::steps::stages::Staged;

/// Elements of a command that is one moment, at most: others wait for its key for 0.2 s of work, or, if elements are long, for as
/// long as their bytes take.
pub(super) const ELEMENTS_HELD_MAX: usize = 64 << 10;
/// Bytes of the words of short elements that are written in one step, at most: some 0.3 ms beside the elements' own work.
pub(super) const SHORT_BYTES_MAX: usize = 512 << 10;
/// How often a command begins again with its first element because its key has gone. After that it goes on with the next.
const RESTARTS_MAX: u8 = 3;

impl Call<'_, '_, '_> {
    /// Writes the elements that `words` name, and replies how many count, or `OK`. `name`: the command's.
    ///
    /// # Errors
    /// Why not all elements were written: none is, or, in several steps, those of some steps are.
    pub fn write_words(
        &mut self,
        name: &'static str,
        key: &Key<'_>,
        words: Args<'_>,
        write: Write,
        says_ok: bool,
    ) -> Done {
        let elements = words.len() / write.words();
        let most = self.at_once(write, key, words);
        if elements <= most || self.cx.guard.in_transaction() || self.are_one_step(write, key, words) {
            write.parse(words)?;
            let count = write.run(self, key, words)?;
            self.spend_on(elements, write.moment().1);
            self.spend_on_bytes(words.encoded().len() + write.compared_bytes(words));
            return if says_ok { self.ok() } else { self.length(count) };
        }
        self.write_in_steps(name, key, words, (write, most), says_ok, None)
    }

    /// As [`Call::write_words`], in several steps of at most `most` elements. `asked`: of HSETEX, which replies whether that held
    /// of all fields before the first of them was set.
    ///
    /// # Errors
    /// Those of [`Call::write_words`].
    pub(super) fn write_in_steps(
        &mut self,
        name: &'static str,
        key: &Key<'_>,
        mut words: Args<'_>,
        (write, most): (Write, usize),
        says_ok: bool,
        asked: Option<Fields>,
    ) -> Done {
        let Some((row, _)) = self.shared.rows.find(name.as_bytes()) else { return Ok(()) };
        // Words are looked at before anything is written.
        let looks = self.look_ahead(write, words)?;
        let asks = asked.is_some_and(|asked| asked != Fields::Any);
        let is_whole = words.len() / write.words() <= ELEMENTS_HELD_MAX && !self.client.executes;
        let all_bytes = words.encoded().len();
        // Where each step is one moment, the first is done at once, and its words are not kept.
        let some = if looks || asks || is_whole {
            Args::EMPTY
        } else {
            first(&mut words, self.moment_of(write, most) * write.words())
        };
        let some_bytes = all_bytes - words.encoded().len();
        let kept = Kept::new(self, words)?;
        let name = Name::kept(self, key.bytes())?;
        let mut count = 0;
        if !some.is_empty() {
            let key = name.key(self);
            let mut run = |call: &mut Call<'_, '_, '_>| -> Done {
                count = write.run(call, &key, some)?;
                Ok(())
            };
            // The first step of other commands is published with the beginning of the command.
            if asked.is_some() {
                self.tell_fields_around(key.bytes(), write, run)?;
            } else {
                run(self)?;
            }
            self.spend_on(some.len() / write.words(), write.moment().1);
            self.spend_on_bytes(some_bytes + write.compared_bytes(some));
        }
        let (from, whole) = (kept.place(), is_whole.then(Whole::default));
        let (looking, asking) = (looks.then(|| Looking::at(&kept)), asks.then_some(from));
        let writing = Writing { row, name, write, says_ok, looking, asked, asking, count, kept, from, whole };
        self.go_on_in_stages(writing);
        Ok(())
    }

    /// Whether all elements are written in one step, though they are more than one of several steps writes: they are short, and
    /// nothing long is removed with them.
    pub(super) fn are_one_step(&mut self, write: Write, key: &Key<'_>, words: Args<'_>) -> bool {
        let are_few = words.len() / write.words() <= write.short_max();
        // An EXEC in steps serves others between them, and its keys are held in any case.
        if !are_few || words.encoded().len() > SHORT_BYTES_MAX || self.client.executes {
            return false;
        }
        // The longest word of the request may be its key; of kept words it is not known.
        let (longest, mut each) = (words.longest() as usize, words);
        let is_short = |word: &[u8]| word.len() <= ELEMENT_BYTES;
        let are_short = (1..=ELEMENT_BYTES).contains(&longest) || each.all(is_short);
        let drops_long = match write {
            Write::Set(_) | Write::Drop | Write::Lapse => {
                let hash = peek_as(&mut self.cx.guard, key, Type::Hash).unwrap_or(None);
                hash.is_some_and(|hash| hash.longest_apart() > 0)
            }
            Write::Add | Write::Score(..) | Write::Place(..) | Write::Remove(_) | Write::Push { .. } => false,
        };
        are_short && !drops_long
    }
}

/// A command whose elements are written in several steps.
#[derive(Debug)]
struct Writing {
    row: &'static Command,
    name: Name,
    write: Write,
    says_ok: bool,
    /// The look at all words, before anything is written.
    looking: Option<Looking>,
    /// The condition of HSETEX on all of its fields.
    asked: Option<Fields>,
    /// Where the fields begin that are not checked yet.
    asking: Option<Place>,
    count: usize,
    /// The words that are written in steps.
    kept: Kept,
    /// Where these words begin.
    from: Place,
    /// What is known if the whole command is one moment.
    whole: Option<Whole>,
}

/// What a step did, behind the look at all words.
enum Wrote {
    /// Some elements are written, or some fields meet the condition.
    Some,
    /// Nothing is done for so many milliseconds: memory is on its way.
    Nothing(Millis),
    /// Not all fields meet the condition: none is set.
    Unmet,
}

/// The state of a command that is one moment.
#[derive(Debug, Default)]
struct Whole {
    patience: Patience,
    /// Some elements are written.
    begun: bool,
    /// Whether the key was there before.
    was_there: bool,
    /// Whether the key is there since the last step, as far as this command knows.
    is_there: bool,
    /// The key's state before, if events are wanted.
    before: Option<Before>,
    restarts: u8,
}

impl Writing {
    /// Looks at some more words; false if all were looked at before.
    ///
    /// # Errors
    /// One of them would be refused.
    fn look_at_words(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let Some(looking) = &mut self.looking else { return Ok(false) };
        if looking.step(call, self.write, &self.kept)? {
            self.looking = None;
        }
        Ok(true)
    }

    /// Writes some elements, or checks some fields first where that is left to do. Writes none where memory is on its way for
    /// which other connections of the worker should not wait, and returns when to try again, if its key stays held.
    ///
    /// # Errors
    /// Why they were not written.
    fn write(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Wrote, Fail> {
        if let Write::Set(lasting) = self.write {
            // The time at which fields were to expire may have come meanwhile.
            self.write = Write::lasting(lasting, call.cx.now());
        }
        self.look(call);
        if self.asking.is_some() {
            return self.ask(call);
        }
        if self.whole.is_none() {
            return self.write_some(call).map(|()| Wrote::Some);
        }
        let again = call.cx.guard.ask_again(true);
        let done = self.write_some(call);
        call.cx.guard.ask_again(again);
        let Err(fail) = done else {
            self.note_written(call);
            return Ok(Wrote::Some);
        };
        let key = self.name.key(call);
        let Some(whole) = &mut self.whole else { return Err(fail) };
        if fail.is_no_memory() && call.cx.guard.memory_comes() {
            if whole.patience.is_over() {
                self.let_go(call);
                return Ok(Wrote::Some);
            }
            if let Some(ms) = whole.patience.again_ms(call, 0) {
                return Ok(Wrote::Nothing(ms));
            }
        }
        if whole.was_there {
            self.tell(call, false);
        } else if whole.begun {
            // The key was not there before, and is removed again.
            let _ = call.cx.guard.delete(&key, Expect::Present);
        }
        Err(fail)
    }

    /// Checks whether some more fields meet the condition.
    ///
    /// # Errors
    /// The key has another type of value.
    fn ask(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Wrote, Fail> {
        let (Some(asked), Some(at)) = (self.asked, &mut self.asking) else { return Ok(Wrote::Some) };
        let most = ((call.step_ns() / LOOK_NS) as usize).clamp(FEW_ELEMENTS, LOOKS_AT_ONCE);
        let key = self.name.key(call);
        let hash = peek_as(&mut call.cx.guard, &key, Type::Hash)?;
        let is_there = |field: &[u8]| hash.as_ref().is_some_and(|hash| hash.has(field));
        let wanted = asked == Fields::Present;
        let (holds, count) = self.kept.walk(at, |words| {
            let some = first(words, 2 * most);
            (Pairs(some).all(|(field, _)| is_there(field) == wanted), some.len() / 2)
        });
        call.spend(count as u64 * LOOK_NS);
        if at.left == 0 {
            self.asking = None;
        }
        Ok(if holds { Wrote::Some } else { Wrote::Unmet })
    }

    /// Frees the key, since the command has waited for memory for as long as others may wait for its key. The rest is written as
    /// of more than 65,536: each step is one moment, and waits for memory as any write does.
    fn let_go(&mut self, call: &mut Call<'_, '_, '_>) {
        if self.whole.as_ref().is_some_and(|whole| whole.begun) {
            self.tell(call, true);
        }
        self.whole = None;
    }

    /// Looks at the key before some of the elements of one moment are written to it.
    fn look(&mut self, call: &mut Call<'_, '_, '_>) {
        let Some(whole) = &mut self.whole else { return };
        let key = self.name.key(call);
        let is_there = call.is_there(&key);
        if !whole.begun {
            if self.asked == Some(Fields::Present) && !is_there && self.asking.is_none() {
                // The fields were checked, but have gone with their key since.
                self.asking = Some(self.from);
            }
            (whole.was_there, whole.is_there) = (is_there, is_there);
            whole.before = call.look_before(key.bytes());
        } else if whole.is_there && !is_there {
            self.lose(call);
        }
    }

    /// Notes that some of the elements of one moment were written.
    fn note_written(&mut self, call: &mut Call<'_, '_, '_>) {
        let Some(whole) = &mut self.whole else { return };
        whole.patience.found();
        let (puts, found) = (self.write.puts(), call.cx.guard.found_collection());
        // Between the look at the key and the write, and amid the write, another worker may evict the key or find it expired.
        let is_lost = whole.is_there && puts && !found;
        if is_lost && self.lose(call) {
            // The key has the elements of this step alone.
            let key = self.name.key(call);
            let _ = call.cx.guard.delete(&key, Expect::Present);
            return;
        }
        let key = self.name.key(call);
        // A look would not show that the key was gone and the write made it anew.
        let is_there = if puts { found || self.write.makes() } else { call.is_there(&key) };
        if let Some(whole) = &mut self.whole {
            (whole.begun, whole.is_there) = (true, is_there);
        }
    }

    /// Notes that the key has gone, and the written elements with it: that was before this moment. Returns whether the command
    /// begins with its first element again.
    fn lose(&mut self, call: &mut Call<'_, '_, '_>) -> bool {
        let Some(whole) = &mut self.whole else { return false };
        (whole.was_there, whole.is_there) = (false, false);
        let tells = whole.before.is_some();
        whole.before = tells.then(Before::absent);
        // No field of a key that has gone meets the condition that all are there.
        let is_in_vain = whole.begun || self.asked == Some(Fields::Present);
        if is_in_vain && self.write.puts() && whole.restarts < RESTARTS_MAX {
            whole.restarts += 1;
            self.count = 0;
            self.kept.go_back(self.from);
            self.asking = self.asked.filter(|asked| *asked != Fields::Any).map(|_| self.from);
            return true;
        }
        if tells && !self.write.puts() && self.count > 0 {
            // The elements were taken out before the key went.
            let key = self.name.key(call);
            call.tell_key_changed(self.row, key.bytes());
        }
        false
    }

    /// Writes as many elements as the rest of the slice allows; none if that is refused.
    fn write_some(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        let Writing { row, name, write, asked, count, kept, whole, .. } = self;
        let (write, key) = (*write, name.key(call));
        // Only as many words are looked at as there is time for.
        let timely = call.moment_of(write, write.moment().0);
        let some = first(&mut kept.words(), timely * write.words());
        let words = timely.min(call.at_once(write, &key, some)) * write.words();
        let place = kept.place();
        let done = kept.take(|rest| {
            let all_bytes = rest.encoded().len();
            let some = first(rest, words);
            call.spend((some.len() / write.words()) as u64 * write.moment().1);
            call.spend_on_bytes(all_bytes - rest.encoded().len() + write.compared_bytes(some));
            let mut run = |call: &mut Call<'_, '_, '_>| -> Done {
                *count = write.counted(*count, write.run(call, &key, some)?);
                Ok(())
            };
            // One moment is published at its end.
            if whole.is_some() {
                run(call)
            } else if asked.is_some() {
                call.tell_fields_around(key.bytes(), write, run)
            } else {
                call.tell_around_key(row, key.bytes(), run)
            }
        });
        done.inspect_err(|_| kept.go_back(place))
    }

    /// Publishes what one moment did to its key. `is_done`: all of it.
    fn tell(&self, call: &mut Call<'_, '_, '_>, is_done: bool) {
        let Some(Whole { before: Some(before), .. }) = &self.whole else { return };
        let key = self.name.bytes();
        if self.asked.is_none() {
            call.tell_key_since(self.row, key, before, is_done);
            return;
        }
        call.tell_since(self.row, key, before, is_done, |call, was, is| {
            if is_done || was != is {
                call.tell_fields_set(key, self.write, was, is);
            }
        });
    }
}

impl Staged for Writing {
    const UNDONE: &'static str = "elements was written";
    const ASKS_AGAIN: bool = true;
    const SPENDS_ON_WORDS: bool = true;

    fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    fn has_begun(&self) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.begun)
    }

    fn wants_memory(&self) -> bool {
        self.write.puts()
    }

    fn prepare(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Option<Taking>, Fail> {
        if self.look_at_words(call)? {
            return Ok(None);
        }
        // If the key has another type of value, the command does not wait for memory.
        let key = self.name.key(call);
        peek_as(&mut call.cx.guard, &key, self.write.kind())?;
        Ok(Some(Taking::of_key(call, &self.name)))
    }

    fn go_on(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.look_at_words(call)? {
            return Ok(Step::More);
        }
        match self.write(call)? {
            Wrote::Nothing(ms) => return Ok(Step::Sleep(ms)),
            Wrote::Some if self.kept.left() > 0 => return Ok(Step::More),
            Wrote::Some => {
                self.tell(call, true);
                if self.asked.is_some() {
                    call.integer(1)?;
                } else if self.says_ok {
                    call.ok()?;
                } else {
                    call.length(self.count)?;
                }
            }
            Wrote::Unmet => {
                self.tell(call, false);
                call.integer(0)?;
            }
        }
        Ok(Step::Done)
    }

    fn only_key(&self) -> Option<&Name> {
        Some(&self.name)
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
