//! DUMP: a value in Redis's payload, with its checksum. A large string is sent from its place, and `collections/payload.rs` sends
//! a collection.

use larder_protocol::resp::Args;
use larder_store::{Hint, Key, Pinned, Value};

use crate::redis::call::Call;
use crate::redis::collections::payload;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_bulk, put_fail, put_head};
use crate::redis::serialize::{
    FOOTER_BYTES, TYPE_STRING, VERSION, checking_ns, crc64, crc64_on, dump_string, length,
};
use crate::redis::steps::job::{Job, Step};

/// Serves DUMP.
pub(crate) fn dump(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, args: Args<'_>) -> Done {
    match call.cx.guard.peek(key).hit() {
        Some(item) => match item.value() {
            Value::Whole(value) => put_bulk(call.out, &dump_string(value)),
            Value::Collection(there) => {
                let kind = there.kind();
                return match payload::dump(call, key, hint, kind, args) {
                    // Others have put a value of another type there since.
                    Err(fail) if fail == Fail::WRONG_TYPE => dump(call, key, hint, args),
                    done => done,
                };
            }
            Value::Pieces(_) => {
                let Some(pinned) = item.pin_for_reply() else {
                    put_fail(call.out, &Fail::HELD);
                    return Ok(());
                };
                let mut head = vec![TYPE_STRING];
                head.extend_from_slice(&length(pinned.value_bytes()));
                let crc = crc64(&head);
                return call.work(Dumping { head, pinned: Some(pinned), crc, at: 0 });
            }
        },
        None => return call.null(),
    }
    Ok(())
}

/// A DUMP of a large string, in steps: its checksum is computed first, and sent behind it.
#[derive(Debug)]
struct Dumping {
    head: Vec<u8>,
    /// The value, until it is replied.
    pinned: Option<Pinned>,
    /// The checksum of the head and of the first `at` bytes of the value.
    crc: u64,
    at: u64,
}

impl Job for Dumping {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Some(pinned) = &self.pinned else { return Ok(Step::Done) };
        let (ns_max, mut ns) = (call.step_ns(), 0);
        for piece in pinned.pieces(self.at) {
            if ns >= ns_max {
                call.spend(ns);
                return Ok(Step::More);
            }
            self.crc = crc64_on(self.crc, piece);
            self.at += piece.len() as u64;
            ns += checking_ns(piece.len() as u64);
        }
        call.spend(ns);
        let version = VERSION.to_le_bytes();
        let bytes = self.head.len() as u64 + pinned.value_bytes() + FOOTER_BYTES as u64;
        put_head(call.out, b'$', bytes);
        call.out.put(&self.head);
        self.pinned.take().into_iter().for_each(|pinned| call.out.splice(pinned));
        call.out.put(&version);
        call.out.put(&crc64_on(self.crc, &version).to_le_bytes());
        call.out.put(b"\r\n");
        Ok(Step::Done)
    }

    fn only_reads(&self) -> bool {
        true
    }
}
