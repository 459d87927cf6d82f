//! Commands that write many elements of one collection: as one moment for others, of which those that name another key are served
//! meanwhile.
//!
//! ```text
//! few, or some of short ones    one step
//! up to 65,536                  looks ─► the key is taken ─► asks ─► writes, some in each step ─► replied
//!                                            └───────── the key is held ────────┘
//! more                          looks ─► asks ─► writes, some in each step: each step is one moment
//! ```
//!
//! HSETEX alone asks: whether all of its fields are there, or none is. Its key is held by then, so that what it finds is so when
//! it sets the first of them.
//!
//! What would refuse any of the words is found before the first is written: some of them at a time are looked at. Memory that is
//! on its way is waited for before the key is held, as long as any write waits, and so is that of each step. When a command has
//! waited for 2 s in all while its key is held, it frees the key and goes on as with more than 65,536: others may see a part.
//!
//! A key that goes amid it (it is evicted, or expires) has none of the elements: they are written from the first on. When a later
//! step is refused for want of memory, a key that was not there before is removed, and one that was has those elements that were
//! written. How its key comes to be held is in `steps/stages.rs`.
//!
//! In EXEC, which holds its keys itself, all of it is one moment of that, and in scripts one step.

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

/// Elements of a command that is one moment, at most: others wait for its key for 0.2 s of work, or, where elements are long, for
/// as long as its bytes take.
pub(super) const ELEMENTS_HELD_MAX: usize = 64 << 10;
/// Bytes of the words of short elements that are written in one step, at most: some 0.3 ms beside what these take.
pub(super) const SHORT_BYTES_MAX: usize = 512 << 10;
/// How often a command begins with its first element again, since its key has gone. Then it goes on with the next.
const RESTARTS_MAX: u8 = 3;

impl Call<'_, '_, '_> {
    /// Writes the elements that `words` name, and replies how many count, or `OK`. `name`: the command's.
    ///
    /// # Errors
    /// Why not all of them were written: none, or, of more than are one step, those of some steps were.
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

    /// The same in several steps, in each of which no more than `most` are written. `asked`: of HSETEX, which replies whether
    /// that held of all fields before the first of them was set.
    ///
    /// # Errors
    /// As there.
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
        // Before anything is done to the first of them.
        let looks = self.look_ahead(write, words)?;
        let asks = asked.is_some_and(|asked| asked != Fields::Any);
        let is_whole = words.len() / write.words() <= ELEMENTS_HELD_MAX && !self.client.executes;
        let all_bytes = words.encoded().len();
        // Where each step is one moment the first comes at once, and its words are not kept.
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
            // The first step of others is published with the beginning of their command.
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

    /// All of these elements are written in one step, though they are more than are written in one of several: they are short,
    /// and nothing long goes with them.
    pub(super) fn are_one_step(&mut self, write: Write, key: &Key<'_>, words: Args<'_>) -> bool {
        let are_few = words.len() / write.words() <= write.short_max();
        // EXEC serves others between its steps, too, and its keys are held in any case.
        if !are_few || words.encoded().len() > SHORT_BYTES_MAX || self.client.executes {
            return false;
        }
        // The longest word of the request may be its key, and of words that were kept it is not known.
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
    /// Looks at all words, of which nothing is written yet.
    looking: Option<Looking>,
    /// Of HSETEX: what has to hold of all fields before the first is set.
    asked: Option<Fields>,
    /// The fields of which that is still to be found, from a place on.
    asking: Option<Place>,
    count: usize,
    /// Words that are written in steps.
    kept: Kept,
    /// Where these words begin.
    from: Place,
    /// All of it is one moment.
    whole: Option<Whole>,
}

/// What a step came to, behind the look at all words.
enum Wrote {
    /// Some elements are written, or some fields were found to be as it is asked.
    Some,
    /// Nothing, for so many milliseconds: memory is on its way.
    Nothing(Millis),
    /// Not all fields are as it is asked: none is set.
    Unmet,
}

/// What is known of a command that is one moment.
#[derive(Debug, Default)]
struct Whole {
    patience: Patience,
    /// Some of them are written.
    begun: bool,
    /// The key was there before, …
    was_there: bool,
    /// … and is since the last step, as far as this command knows.
    is_there: bool,
    /// What the key was like before, if events are wanted.
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

    /// Writes some elements, where nothing is to be asked any more; or, where memory is on its way for which others of the worker
    /// should not wait, none, and says in how many milliseconds to try again, if its key stays held.
    ///
    /// # Errors
    /// Why they were not written.
    fn write(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Wrote, Fail> {
        if let Write::Set(lasting) = self.write {
            // The time until which fields were to last may have come meanwhile.
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
            // There was nothing before, and there is nothing again.
            let _ = call.cx.guard.delete(&key, Expect::Present);
        }
        Err(fail)
    }

    /// Looks whether some more fields are as it is asked.
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

    /// The command has waited for memory for as long as others may wait for its key: it is held no more. What is left is written
    /// as of very many elements: each step is one moment, and waits for memory as any write does.
    fn let_go(&mut self, call: &mut Call<'_, '_, '_>) {
        if self.whole.as_ref().is_some_and(|whole| whole.begun) {
            self.tell(call, true);
        }
        self.whole = None;
    }

    /// Looks at the key before some elements are written to it that are a part of one moment.
    fn look(&mut self, call: &mut Call<'_, '_, '_>) {
        let Some(whole) = &mut self.whole else { return };
        let key = self.name.key(call);
        let is_there = call.is_there(&key);
        if !whole.begun {
            if self.asked == Some(Fields::Present) && !is_there && self.asking.is_none() {
                // The fields have gone with their key since they were found.
                self.asking = Some(self.from);
            }
            (whole.was_there, whole.is_there) = (is_there, is_there);
            whole.before = call.look_before(key.bytes());
        } else if whole.is_there && !is_there {
            self.lose(call);
        }
    }

    /// Some elements of one moment were written.
    fn note_written(&mut self, call: &mut Call<'_, '_, '_>) {
        let Some(whole) = &mut self.whole else { return };
        whole.patience.found();
        let (puts, found) = (self.write.puts(), call.cx.guard.found_collection());
        // Between the look at the key and the write, and in its midst, another worker may evict it, or find that it has expired.
        let is_lost = whole.is_there && puts && !found;
        if is_lost && self.lose(call) {
            // It has the elements of this step alone.
            let key = self.name.key(call);
            let _ = call.cx.guard.delete(&key, Expect::Present);
            return;
        }
        let key = self.name.key(call);
        // A look would not show whether a key has gone behind what is put into it.
        let is_there = if puts { found || self.write.makes() } else { call.is_there(&key) };
        if let Some(whole) = &mut self.whole {
            (whole.begun, whole.is_there) = (true, is_there);
        }
    }

    /// The key has gone by itself, and with it what was written: that was before this moment. Whether the first element is the
    /// next once more.
    fn lose(&mut self, call: &mut Call<'_, '_, '_>) -> bool {
        let Some(whole) = &mut self.whole else { return false };
        (whole.was_there, whole.is_there) = (false, false);
        let tells = whole.before.is_some();
        whole.before = tells.then(Before::absent);
        // Of a key that has gone none of the fields is there which had to be.
        let is_in_vain = whole.begun || self.asked == Some(Fields::Present);
        if is_in_vain && self.write.puts() && whole.restarts < RESTARTS_MAX {
            whole.restarts += 1;
            self.count = 0;
            self.kept.go_back(self.from);
            self.asking = self.asked.filter(|asked| *asked != Fields::Any).map(|_| self.from);
            return true;
        }
        if tells && !self.write.puts() && self.count > 0 {
            // What was taken out was taken out before it went.
            let key = self.name.key(call);
            call.tell_key_changed(self.row, key.bytes());
        }
        false
    }

    /// Writes as many elements as what is left of the slice is for; if that is refused all of them are left.
    fn write_some(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        let Writing { row, name, write, asked, count, kept, whole, .. } = self;
        let (write, key) = (*write, name.key(call));
        // No more are looked at than there is time for.
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
            // One moment is published when it is over.
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

    /// Publishes what one moment has done to its key: all of it, or a part.
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
        // Where the key has another type of value the command does not wait for memory.
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
