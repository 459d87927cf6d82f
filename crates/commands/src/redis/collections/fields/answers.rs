//! Fields that words name, of each of which something is done and replied: HGETDEL, HGETEX, HEXPIRE and its kin, HPERSIST.

use larder_protocol::resp::Args;
use larder_store::{Key, Lasting, Millis, Timed, Type};
use smallvec::SmallVec;

use super::look;
use crate::core::events::{Change, Class, Seen, seen};
use crate::redis::call::has_room;
use crate::redis::clock::When;
use crate::redis::collections::words::{FIELDS_FEW, SET_BYTES_MAX, WRITES_AT_ONCE, first, values_at_once};
use crate::redis::collections::{Call, ELEMENT_ROOM, peek_as, put_element_of};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_fail, put_integer, put_null};
use crate::redis::source::Name;
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;

/// Fields of a hash of which something is noted without memory of its own.
const FIELDS_HERE: usize = 64;

/// What is done with the fields that words name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    /// Their values are replied, and they are taken out.
    Take,
    /// Their values are replied, and they last as long as is said.
    Get(Lasting),
    /// They expire at this time, if that holds of when they did.
    Expire(Millis, When),
    /// They expire no more.
    Persist,
}

/// What has become of a hash, for keyspace events.
#[derive(Clone, Copy, Debug, Default)]
struct Become {
    timed: bool,
    persistent: bool,
    reduced: bool,
}

/// Begins what is done with some fields: an answer for each.
pub(super) fn begin(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    key: &Key<'_>,
    mut fields: Args<'_>,
    deed: Deed,
) -> Done {
    let (mark, whole) = (call.out.mark(), call.cx.guard.in_transaction());
    put_array(call.out, fields.len());
    let mut done = 0;
    while !fields.is_empty() && (whole || done == 0) {
        let at_once = if whole { WRITES_AT_ONCE } else { told_at_once(call, key, deed, fields)? };
        let most = if fields.len() <= at_once { at_once } else { call.writes_of_a_step().min(at_once) };
        let some = first(&mut fields, if whole { WRITES_AT_ONCE } else { most });
        let ends = fields.is_empty() || whole;
        let kept = if ends { Ok(None) } else { keep(call, key, fields).map(Some) };
        let kept = kept.and_then(|kept| {
            do_some(call, key.bytes(), some, deed)?;
            Ok(kept)
        });
        done += some.len();
        call.spend_on_writes(some.len());
        if let Some((key, kept)) = kept.inspect_err(|_| call.out.rewind(mark))? {
            debug_assert!(call.shared.rows.find(name.as_bytes()).is_some());
            call.go_on_with(Doing { deed, name: key, kept });
            return Ok(());
        }
    }
    Ok(())
}

/// Fields with which something is done in one moment, at most, from the first on: of those whose values are replied, or given
/// back, as many as have so many bytes together.
fn told_at_once(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    deed: Deed,
    fields: Args<'_>,
) -> Result<usize, Fail> {
    if fields.len() <= FIELDS_FEW {
        return Ok(WRITES_AT_ONCE);
    }
    let told = match deed {
        Deed::Expire(at, _) if at <= call.cx.now() => {
            return Ok(call.drops_at_once(key, fields, fields.len()));
        }
        Deed::Take | Deed::Get(_) => {
            let hash = peek_as(&mut call.cx.guard, key, Type::Hash)?;
            values_at_once(hash.as_ref(), (fields, fields.len()), SET_BYTES_MAX).max(1)
        }
        Deed::Expire(..) | Deed::Persist => WRITES_AT_ONCE,
    };
    let beside = match deed {
        Deed::Get(Lasting::Keep) => WRITES_AT_ONCE,
        Deed::Take | Deed::Get(_) | Deed::Expire(..) | Deed::Persist => call.beside_due(key, fields.len()),
    };
    Ok(told.min(beside))
}

/// The key, and the fields that are still to come.
fn keep(call: &mut Call<'_, '_, '_>, key: &Key<'_>, fields: Args<'_>) -> Result<(Name, Kept), Fail> {
    let kept = Kept::new(call, fields)?;
    Ok((Name::kept(call, key.bytes())?, kept))
}

/// Does something with fields, no more than [`WRITES_AT_ONCE`], as one moment: an answer for each, and events of the key.
fn do_some(call: &mut Call<'_, '_, '_>, name: &[u8], fields: Args<'_>, deed: Deed) -> Done {
    let was = look(call, name);
    let mut become_ = Become::default();
    match deed {
        Deed::Take | Deed::Get(_) => {
            call.as_one_with_room([name], |call| tell_values(call, name, fields, deed, &mut become_))?;
        }
        Deed::Expire(..) | Deed::Persist => {
            let mut done = SmallVec::<[Timed; FIELDS_HERE]>::new();
            let key = call.key(name);
            let guard = &mut call.cx.guard;
            match deed {
                Deed::Expire(at, when) => {
                    guard.hash_expire(&key, fields, at, |old| when.holds(old, at), &mut done)?;
                }
                Deed::Take | Deed::Get(_) | Deed::Persist => guard.hash_persist(&key, fields, &mut done)?,
            }
            for timed in done {
                let persists = matches!(deed, Deed::Persist);
                become_.timed |= timed == Timed::Set && !persists;
                become_.persistent |= timed == Timed::Set && persists;
                become_.reduced |= timed == Timed::Removed;
                put_integer(
                    call.out,
                    match timed {
                        Timed::Absent => -2,
                        Timed::Unmet if persists => -1,
                        Timed::Unmet => 0,
                        Timed::Set => 1,
                        Timed::Removed => 2,
                    },
                );
            }
        }
    }
    tell(call, name, was, become_);
    Ok(())
}

/// Publishes what has become of a hash.
fn tell(call: &mut Call<'_, '_, '_>, name: &[u8], was: Option<Seen>, become_: Become) {
    let (Some(was), db) = (was, call.client.db) else { return };
    let is = seen(&mut call.cx.guard, db, name);
    if was == is {
        return;
    }
    let named = [(become_.reduced, "hdel"), (become_.timed, "hexpire"), (become_.persistent, "hpersist")];
    if let Some((_, event)) = named.into_iter().find(|(is, _)| *is) {
        call.cx.tell_change(&Change::of(Class::Hash, event), db, name, was, is);
    }
}

/// Replies the values of fields, and takes these out or has them last; how much room that needs, if it has done nothing.
fn tell_values(
    call: &mut Call<'_, '_, '_>,
    name: &[u8],
    fields: Args<'_>,
    deed: Deed,
    become_: &mut Become,
) -> Result<Option<usize>, Fail> {
    let (key, now) = (call.key(name), call.cx.now());
    let hash = peek_as(&mut call.cx.guard, &key, Type::Hash)?;
    let bytes = |field| hash.as_ref().and_then(|hash| hash.field(field)).map_or(0, |value| value.len());
    let bytes: usize = fields.map(|field| bytes(field) + ELEMENT_ROOM).sum();
    if !has_room(call.out, bytes) {
        return Ok(Some(bytes));
    }
    let takes = match deed {
        Deed::Take => true,
        Deed::Get(Lasting::Until(at)) => at <= now,
        Deed::Get(_) | Deed::Expire(..) | Deed::Persist => false,
    };
    let mark = call.out.mark();
    let mut taken = SmallVec::<[usize; FIELDS_HERE]>::new();
    for field in fields {
        let there = hash.as_ref().and_then(|hash| Some((hash, hash.find(field)?)));
        // What is taken twice is there once.
        match there.filter(|(_, i)| !(takes && taken.contains(i))) {
            Some((hash, i)) => {
                if takes {
                    taken.push(i);
                }
                put_element_of(call.out, hash, &hash.entry(i).value);
            }
            None => put_null(call.out, call.client.resp3),
        }
    }
    let mut done = SmallVec::<[Timed; FIELDS_HERE]>::new();
    let guard = &mut call.cx.guard;
    let gone = match deed {
        _ if takes => guard.remove_named(&key, Type::Hash, fields).map(|gone| become_.reduced = gone > 0),
        Deed::Get(Lasting::Until(at)) => guard.hash_expire(&key, fields, at, |_| true, &mut done),
        Deed::Get(Lasting::Never) => guard.hash_persist(&key, fields, &mut done),
        Deed::Take | Deed::Get(Lasting::Keep) | Deed::Expire(..) | Deed::Persist => Ok(()),
    };
    gone.inspect_err(|_| call.out.rewind(mark))?;
    call.spend_on_bytes(bytes);
    let set = done.contains(&Timed::Set);
    become_.timed = set && matches!(deed, Deed::Get(Lasting::Until(_)));
    become_.persistent = set && matches!(deed, Deed::Get(Lasting::Never));
    Ok(None)
}

/// A command that has done with some of its fields.
#[derive(Debug)]
struct Doing {
    deed: Deed,
    name: Name,
    kept: Kept,
}

impl Job for Doing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Doing { deed, name, kept } = self;
        let key = name.key(call);
        let timely = call.writes_of_a_step();
        let some = first(&mut kept.words(), timely);
        // What is of another type by now says so below.
        let most = timely.min(told_at_once(call, &key, *deed, some).unwrap_or(WRITES_AT_ONCE));
        kept.take(|words| {
            let fields = first(words, most);
            let key = name.key(call);
            let mark = call.out.mark();
            if let Err(fail) = do_some(call, key.bytes(), fields, *deed) {
                // They are as they were: said in place of each.
                call.out.rewind(mark);
                fields.for_each(|_| put_fail(call.out, &fail));
            }
            call.spend_on_writes(fields.len());
        });
        Ok(match self.kept.left() {
            0 => Step::Done,
            _ if call.out.is_full() => Step::Full,
            _ => Step::More,
        })
    }

    fn held_bytes(&self) -> u64 {
        self.kept.held_bytes()
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
