//! Commands that write many elements of one collection: some of them at a time, between which others are served.
//!
//! ```text
//! SADD s m1 … m512 m513 …     one moment │ one moment │ …   ─▶ how many count, of all
//! ```
//!
//! A command of no more elements is one moment, and in EXEC all are. What a moment has done stays done when a later one
//! is refused. What would refuse any of the words is found before the first is written: some of them at a time are looked at.

use larder_protocol::resp::Args;
use larder_store::Key;

use super::Call;
use super::words::{Looking, Write, first};
use crate::redis::fail::{Done, Fail};
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;
use crate::redis::strings::source::Name;
use crate::redis::table::{self, Command};

impl Call<'_, '_, '_> {
    /// Writes the elements that `words` name, and replies how many count, or `OK`. `name`: the command's.
    ///
    /// # Errors
    /// Why not all of them were written: none, or, of more than are one moment, those of some moments were.
    pub fn write_words(
        &mut self,
        name: &'static str,
        key: &Key<'_>,
        mut words: Args<'_>,
        write: Write,
        says_ok: bool,
    ) -> Done {
        let elements = words.len() / write.words();
        let each_ns = write.moment().1;
        let most = self.at_once(write, key, words);
        if elements <= most || self.cx.guard.in_transaction() {
            write.parse(words)?;
            let count = write.run(self, key, words)?;
            self.spend_on(elements, each_ns);
            self.spend_on_bytes(words.encoded().len() + write.compared_bytes(words));
            return if says_ok { self.ok() } else { self.length(count) };
        }
        let Some((row, _)) = table::find(name.as_bytes()) else { return Ok(()) };
        // Before anything is done to the first of them.
        if self.look_ahead(write, words)? {
            let kept = Kept::new(self, words)?;
            let name = Name::kept(self, key.bytes())?;
            let looking = Some(Looking::at(&kept));
            self.go_on_with(Writing { row, name, write, says_ok, count: 0, looking, kept });
            return Ok(());
        }
        let all_bytes = words.encoded().len();
        let some = first(&mut words, self.moment_of(write, most) * write.words());
        let some_bytes = all_bytes - words.encoded().len() + write.compared_bytes(some);
        let kept = Kept::new(self, words)?;
        let name = Name::kept(self, key.bytes())?;
        let key = name.key(self);
        let count = write.run(self, &key, some)?;
        self.spend_on(some.len() / write.words(), each_ns);
        self.spend_on_bytes(some_bytes);
        self.go_on_with(Writing { row, name, write, says_ok, count, looking: None, kept });
        Ok(())
    }
}

/// A command that has looked at some of its elements, or written some.
#[derive(Debug)]
struct Writing {
    row: &'static Command,
    name: Name,
    write: Write,
    says_ok: bool,
    count: usize,
    /// Nothing is written yet.
    looking: Option<Looking>,
    kept: Kept,
}

impl Job for Writing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Writing { row, name, write, count, looking, kept, .. } = self;
        if let Some(ahead) = looking {
            if ahead.step(call, *write, kept)? {
                *looking = None;
            }
            return Ok(Step::More);
        }
        let key = name.key(call);
        // No more are looked at than there is time for.
        let timely = call.moment_of(*write, write.moment().0);
        let some = first(&mut kept.words(), timely * write.words());
        let words = timely.min(call.at_once(*write, &key, some)) * write.words();
        let place = kept.place();
        let done = kept.take(|rest| {
            let all_bytes = rest.encoded().len();
            let some = first(rest, words);
            call.spend((some.len() / write.words()) as u64 * write.moment().1);
            call.spend_on_bytes(all_bytes - rest.encoded().len() + write.compared_bytes(some));
            call.tell_around_key(row, key.bytes(), |call| {
                *count = write.counted(*count, write.run(call, &key, some)?);
                Ok(())
            })
        });
        // Nothing was written then, and it is written when there is memory.
        done.inspect_err(|_| self.kept.go_back(place))?;
        if self.kept.left() > 0 {
            return Ok(Step::More);
        }
        if self.says_ok {
            call.ok()?
        } else {
            call.length(self.count)?
        }
        Ok(Step::Done)
    }

    /// A step is one moment.
    fn asks_again(&self) -> bool {
        true
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
