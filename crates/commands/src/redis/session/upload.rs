//! Large values on their way in: received straight into the item that they will be.
//!
//! ```text
//! *3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n | value … | \r\n
//!                                            ▲ Upload begins here; the store takes memory as bytes come
//! ```
//!
//! For SET without options and for SETEX and PSETEX, whose value comes last: all that decides where it
//! is stored is known before it. The same for LPUSH, RPUSH, LPUSHX and RPUSHX, whose last element is received into the
//! parts that it lies in, and put into its list when it is whole: the command runs then as any does, with the element beside its
//! words (`Client::received`). So do LSET, SADD, HSET and HMSET, and HSETNX and HSETEX of one field, whose value comes last. The
//! words before it are few and short. Other long requests are gathered, see [`super::gather`].

use std::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use larder_protocol::resp::{Args, Encoder, Partial};
use larder_store::{Attributes, Expect, Millis, Spaces, Upload};
use smallvec::SmallVec;

use super::gather::Discard;
use super::turn::Turn;
use crate::core::acl::log::Whence;
use crate::core::calls::RowId;
use crate::core::context::Context;
use crate::core::hold::LOOK_MS;
use crate::core::input::{Looks, UPLOAD_SPACE_MIN};
use crate::core::progress::Next;
use crate::core::traffic::{self, Seen, Verb};
use crate::core::work::copying_ns;
use crate::redis::call::KEY_BYTES_MAX;
use crate::redis::collections::{fields, peek_as};
use crate::redis::commandlog::Kind;
use crate::redis::facts::ClientFacts;
use crate::redis::fail::{Done, Fail};
use crate::redis::row::Uploads;
use crate::redis::session::{Conversation, State};
use crate::redis::steps::job::LEAF;
use crate::redis::table;

/// The longest key whose store is recorded at once, where the key is followed.
const FOLLOWED_KEY_BYTES_MAX: usize = 250;

/// A value on its way in, for a key that is overwritten whatever it has, or an element of a list, a member of a set or the value
/// of a field.
#[derive(Debug)]
pub(crate) struct Incoming {
    upload: Upload,
    row: RowId,
    uploads: Uploads,
    /// The words before the value, but for the key: the name, and a time, a place, options or the field if there are any.
    name: ArrayVec<u8, NAME_BYTES_MAX>,
    middle: Middle,
    looks: Looks,
}

/// Words as they were received, which have room in their connection if they are short.
#[derive(Debug)]
struct Middle {
    encoded: SmallVec<[u8; MIDDLE_ROOM]>,
    count: usize,
}

impl Middle {
    fn args(&self) -> Args<'_> {
        Args::rest(&self.encoded, self.count)
    }
}

/// Most bytes of the names of commands whose value is received into its item.
const NAME_BYTES_MAX: usize = 8;
/// Most bytes of each of the words between the key and the value, of which there are 16 at most: values beside longer ones are
/// gathered.
const MIDDLE_BYTES_MAX: usize = 64;
/// Bytes of them that have room in their connection.
const MIDDLE_ROOM: usize = 64;
/// Bytes of all that comes before a value.
const HEAD_BYTES_MAX: u64 = KEY_BYTES_MAX as u64 + 2048;

impl Incoming {
    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.upload.held_bytes()
    }
}

impl Conversation {
    /// Begins to receive the value of the request whose start is at `turn.at`; false if it is not one
    /// whose value can be received into its item.
    #[cold]
    pub(crate) fn begin_upload(&mut self, turn: &mut Turn<'_, '_, '_, '_>, partial: Partial) -> bool {
        let input = &turn.input[turn.at..];
        let (Some(count), Some((value_bytes, start))) = (partial.count(), partial.under_way(input)) else {
            return false;
        };
        if partial.read() + 1 != count {
            return false;
        }
        let mut args = partial.args(input);
        let name = args.next().unwrap_or_default();
        let Some((row, id)) = table::find(name) else { return false };
        let Some(key) = args.next().filter(|key| key.len() <= KEY_BYTES_MAX) else { return false };
        let Some(uploads) = row.uploads.filter(|uploads| uploads.fits(count as usize)) else { return false };
        if !self.is_looked_at_when_whole(turn) && !self.is_only_received(turn, uploads, value_bytes) {
            return false;
        }
        let mut behind = args;
        if !behind.all(|word| word.len() <= MIDDLE_BYTES_MAX) {
            return false;
        }
        let bytes = args.encoded().len() - behind.encoded().len();
        let middle = Middle { encoded: SmallVec::from_slice(&args.encoded()[..bytes]), count: args.len() };
        if uploads == Uploads::FieldBehind && !fields::is_of_one(args, turn.cx.now()) {
            return false;
        }
        let key = turn.cx.guard.key_in(self.client.db, key);
        let upload = match uploads {
            Uploads::Value { clock } => {
                let mut attributes = Attributes::default();
                if let Some(clock) = clock {
                    // What is wrong with it is said when the request is there.
                    let word = args.at(0).unwrap_or_default();
                    let Ok(at) = clock.deadline(row.name, word, turn.cx.now()) else { return false };
                    attributes.expires_at = at;
                }
                turn.cx.guard.upload(&key, value_bytes, &attributes).ok()
            }
            Uploads::Element
            | Uploads::Place
            | Uploads::Member
            | Uploads::Field
            | Uploads::Fields
            | Uploads::FieldBehind => {
                // In a pause, or while keys are held, the command looks at its key when it is whole: another may be amid it.
                let kind = uploads.kind().filter(|_| !turn.cx.shared.pause.looks(turn.cx.now()));
                // What a key has is told to no user that may perhaps not know it: the command says that, or refuses.
                let kind = kind.filter(|_| self.client.standing.is_free());
                if kind.is_some_and(|kind| peek_as(&mut turn.cx.guard, &key, kind).is_err()) {
                    // It is refused without memory for the element, which comes all the same.
                    turn.at += start;
                    self.state = State::Discard(Discard::of_wrong_type(value_bytes, id));
                    return true;
                }
                let member_bytes_max = turn.cx.guard.store().element_bytes_max() as u64;
                if uploads == Uploads::Member && value_bytes > member_bytes_max {
                    // It would be hashed and compared in one step: it is refused when all of the request is there.
                    return false;
                }
                turn.cx.guard.upload_element(&key, value_bytes).ok().flatten()
            }
        };
        let Some(upload) = upload else { return false };
        // Longer ones there are none.
        let name = ArrayVec::try_from(name).unwrap_or_default();
        turn.at += start;
        let looks = Looks::default();
        self.state = State::Upload(Incoming { upload, row: id, uploads, name, middle, looks });
        true
    }

    /// One that is too long to be copied is received in any case, but in a transaction and where replies are off: gathered it
    /// would be refused. Its command is run as any is, and looks at what its user may do, and at all that is shown of it.
    fn is_only_received(&self, turn: &Turn<'_, '_, '_, '_>, uploads: Uploads, value_bytes: u64) -> bool {
        uploads.kind().is_some()
            && value_bytes > turn.cx.guard.store().element_bytes_max() as u64
            && self.client.standing.is_admitted()
            && self.client.is_plain_but_for_rules()
    }

    /// Goes on with a value; stores it when it is whole.
    pub(crate) fn upload(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Upload(incoming) = &mut self.state else { return None };
        let Incoming { upload, looks, .. } = incoming;
        while upload.missing() > 0 {
            let rest = &turn.input[turn.at..];
            if rest.is_empty() && !looks.any() {
                return Some(Next::Receive);
            }
            if let Some(next) = looks.for_mapping(turn.cx, upload) {
                return Some(next);
            }
            let missing = upload.missing();
            let filled = match &rest[..missing.min(rest.len() as u64) as usize] {
                [] => turn.cx.guard.upload_reserve(upload, 1),
                rest => turn.cx.guard.upload_fill(upload, rest),
            };
            turn.at += (missing - upload.missing()) as usize;
            if filled.is_ok() {
                *looks = Looks::default();
                continue;
            }
            let next = looks.for_upload(turn.cx, upload);
            if next.is_none() {
                self.fail_upload();
            }
            return next;
        }
        // Its line end, whatever that is.
        if turn.input.len() - turn.at < 2 {
            return Some(Next::Receive);
        }
        if turn.cx.shared.pause.looks(turn.cx.now())
            && let Some(ms) = self.upload_waits_ms(turn)
        {
            return self.sleep(ms);
        }
        if let Some(next) = self.upload_waits_for_memory(turn) {
            return Some(next);
        }
        self.client.facts.waits.store(false, Relaxed);
        turn.at += 2;
        turn.left = turn.left.saturating_sub(1);
        let State::Upload(incoming) = std::mem::replace(&mut self.state, State::Ready) else { return None };
        if incoming.uploads.kind().is_some() {
            return self.run_received(turn, incoming);
        }
        turn.settle_any();
        turn.tally.commands += 1;
        let tap = turn.cx.room.tap();
        if tap.pass(1) && tap.next(1).is_some() {
            let (upload, db) = (&incoming.upload, self.client.db);
            let (key, bytes) = (turn.cx.guard.key_in(db, upload.key()), upload.value_bytes());
            let seen = Seen { verb: Verb::Write, db, cost_ns: copying_ns(bytes) };
            traffic::sample_of(tap, &key, seen, Some(bytes), bytes + upload.key().len() as u64);
        }
        let from = turn.shared.commandlog.from(Kind::LargeRequest);
        let is_large = from >= 0 && incoming.upload.value_bytes() + HEAD_BYTES_MAX >= from as u64;
        let key = is_large.then(|| incoming.upload.key().to_vec());
        let value_bytes = incoming.upload.value_bytes();
        // What is longer is known with the next read.
        let followed: Option<ArrayVec<u8, FOLLOWED_KEY_BYTES_MAX>> = {
            let key = turn.cx.guard.key_in(self.client.db, incoming.upload.key());
            let follows = turn.cx.room.tap().follows(&key);
            follows.then(|| ArrayVec::try_from(key.bytes()).ok()).flatten()
        };
        let permitted = self.permit_upload(turn, &incoming);
        let admitted = permitted.is_ok();
        let done = match permitted {
            Ok(()) => turn.cx.guard.publish(incoming.upload, Expect::Any).map_err(|_| Fail::OUT_OF_MEMORY),
            Err(fail) => {
                drop(incoming.upload);
                Err(fail)
            }
        };
        if let Some(key) = followed.filter(|_| admitted) {
            let key = turn.cx.guard.key_in(self.client.db, &key);
            traffic::follow(turn.cx.room.tap(), &mut turn.cx.guard, &key, Verb::Write);
        }
        let fail = done.err();
        turn.count_single(incoming.row, admitted, fail.as_ref(), None);
        match &fail {
            None => {
                turn.tally.sets += 1;
                turn.out.put(b"+OK\r\n");
            }
            Some(fail) => turn.call(&mut self.client).fail(fail),
        }
        if let (Some(key), Some(row)) = (key, table::row(incoming.row)) {
            let before = [&incoming.name[..], &key[..]];
            let words: Vec<&[u8]> = before.into_iter().chain(incoming.middle.args()).collect();
            turn.call(&mut self.client).note_upload(row, &words, value_bytes);
        }
        None
    }

    /// Runs the command of an element that is whole, as any that comes by itself.
    #[cold]
    fn run_received(
        &mut self,
        turn: &mut Turn<'_, '_, '_, '_>,
        Incoming { upload, row, name, middle, .. }: Incoming,
    ) -> Option<Next> {
        let (key, value_bytes) = (upload.key().to_vec(), upload.value_bytes());
        let permitted = self.look_again(turn);
        let next = match permitted {
            Ok(()) => {
                let mut words = Encoder::default();
                words.push(&name);
                words.push(&key);
                words.extend(middle.args());
                // What monitors and logs are shown.
                words.push(format!("... ({value_bytes} bytes)").as_bytes());
                self.client.received = Some(Box::new(upload));
                let next = self.single(turn, words.args());
                // It is there still where the command was refused before it began.
                self.client.received = None;
                next
            }
            Err(fail) => {
                drop(upload);
                turn.settle_any();
                turn.tally.commands += 1;
                turn.count_single(row, false, Some(&fail), None);
                turn.call(&mut self.client).fail(&fail);
                None
            }
        };
        let from = turn.shared.commandlog.from(Kind::LargeRequest);
        if from >= 0
            && value_bytes + HEAD_BYTES_MAX >= from as u64
            && let Some(row) = table::row(row)
        {
            let words: Vec<&[u8]> = [&name[..], &key[..]].into_iter().chain(middle.args()).collect();
            turn.call(&mut self.client).note_upload(row, &words, value_bytes);
        }
        next
    }

    /// For how long a whole value waits, which was begun before: clients are paused, or its key is held.
    #[cold]
    fn upload_waits_ms(&self, turn: &Turn<'_, '_, '_, '_>) -> Option<Millis> {
        let State::Upload(incoming) = &self.state else { return None };
        let paused_ms = self.paused_ms(turn);
        if paused_ms > 0 {
            return Some(paused_ms);
        }
        let holds = &turn.cx.shared.pause.holds;
        let key = turn.cx.guard.key_in(self.client.db, incoming.upload.key());
        if !holds.keys()?.has(key.hash()) {
            return None;
        }
        holds.note_waiter();
        Some(LOOK_MS)
    }

    /// An element is whole, and memory for the nodes that name it is on its way: it looks again in some milliseconds, as a request
    /// does that was gathered. It is put in place once.
    #[cold]
    fn upload_waits_for_memory(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Upload(incoming) = &mut self.state else { return None };
        incoming.uploads.kind()?;
        let asks_again = turn.cx.guard.ask_again(false);
        turn.cx.guard.ask_again(asks_again);
        if !asks_again || turn.cx.guard.finds_memory(LEAF.0, LEAF.1) {
            return None;
        }
        incoming.looks.for_memory()
    }

    /// The client's user is there still: it was when what has come in began, which may take any time.
    ///
    /// # Errors
    /// It is gone.
    fn look_again(&mut self, turn: &Turn<'_, '_, '_, '_>) -> Done {
        if self.client.standing.look_again(&turn.cx.shared.access) {
            return Ok(());
        }
        self.client.facts.turn_out(&turn.cx.shared.access.log);
        Err(Fail::of("NOAUTH Authentication required."))
    }

    /// The client's user may still store what has come in: it might when that began, and may take any time for it.
    ///
    /// # Errors
    /// It may not.
    fn permit_upload(&mut self, turn: &mut Turn<'_, '_, '_, '_>, incoming: &Incoming) -> Done {
        self.look_again(turn)?;
        let (false, Some(row)) = (self.client.standing.is_free(), table::row(incoming.row)) else {
            return Ok(());
        };
        let mut words = Encoder::default();
        words.push(incoming.upload.key());
        words.extend(incoming.middle.args());
        // The value says nothing of what is asked.
        words.push(b"");
        turn.call(&mut self.client).permit(row, incoming.row, words.args(), Whence::TopLevel)
    }

    /// Memory ran out in the middle of a value: the rest is thrown away. The key keeps what it has.
    fn fail_upload(&mut self) {
        if let State::Upload(incoming) = &self.state {
            self.state = State::Discard(Discard::of_value(incoming.upload.missing(), incoming.row));
        }
    }

    /// Where to receive the next bytes of a value, if one is on its way in and more than a little of it is missing.
    pub(super) fn value_spaces(&mut self, cx: &mut Context<'_, '_>) -> Option<Spaces<'_>> {
        if self.value_missing() < UPLOAD_SPACE_MIN {
            return None;
        }
        let State::Upload(incoming) = &mut self.state else { return None };
        let Incoming { upload, looks, .. } = incoming;
        looks.make_space(cx, upload).then(|| upload.spaces())
    }

    /// Bytes that the value on its way in misses.
    pub(super) fn value_missing(&self) -> u64 {
        match &self.state {
            State::Upload(incoming) => incoming.upload.missing(),
            _ => 0,
        }
    }

    /// Notes that `bytes` bytes of [`Conversation::value_spaces`] were filled.
    pub(super) fn value_filled(&mut self, bytes: usize) {
        if let State::Upload(incoming) = &mut self.state {
            incoming.upload.advance(bytes);
            ClientFacts::raise(&self.client.facts.received_bytes, bytes as u64);
        }
    }
}
