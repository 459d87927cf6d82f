//! FUNCTION DUMP: all libraries, in a form that FUNCTION RESTORE reads.
//!
//! ```text
//! ┌──────── for each library, by their names ────────┐
//! │ 0xf5 │ how many bytes its text has │ the text │ … │ version: 2 bytes │ checksum of all that is before it: 8 │
//! ```
//!
//! Libraries may have 1/64 of the memory. So their texts are copied in steps, as far as the client takes the reply; in a
//! transaction all is one step. The reply is of what is known when the command begins, whatever goes meanwhile: the texts are
//! held, but not the libraries, whose variables workers keep as long as there is anything of them.

use std::sync::Arc;
use std::vec::IntoIter;

use larder_protocol::resp::{Args, HEAD_BYTES_MAX, write_bulk_head};

use crate::core::work::copying_ns;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::serialize::{FOOTER_BYTES, VERSION, checking_ns, crc64_on, library_head};
use crate::redis::steps::job::{Job, Step};

/// Bytes that are copied between two looks at how much a step has done.
const CHUNK_BYTES: usize = 16 << 10;

/// What of a payload is still to be written.
#[derive(Debug)]
struct Dumping {
    /// Bytes of the payload, and whether that is said.
    bytes: usize,
    begun: bool,
    /// The text that is being written, and how much of it is.
    under_way: Option<(Arc<[u8]>, usize)>,
    /// Those behind it.
    left: IntoIter<Arc<[u8]>>,
    /// The checksum of what is written.
    crc: u64,
    /// The texts: others may take the place of their libraries meanwhile.
    _held: Heap,
}

impl Dumping {
    /// Writes some of it; true if that was the last.
    fn put_some(&mut self, call: &mut Call<'_, '_, '_>, ns: &mut u64) -> bool {
        match self.under_way.take() {
            Some((text, from)) => {
                let to = text.len().min(from + CHUNK_BYTES);
                self.put(call, &text[from..to], ns);
                self.under_way = (to < text.len()).then_some((text, to));
                false
            }
            None => match self.left.next() {
                Some(text) => {
                    self.put(call, &library_head(text.len()), ns);
                    self.under_way = Some((text, 0));
                    false
                }
                None => {
                    self.put(call, &VERSION.to_le_bytes(), ns);
                    call.out.put(&self.crc.to_le_bytes());
                    call.out.put(b"\r\n");
                    true
                }
            },
        }
    }

    fn put(&mut self, call: &mut Call<'_, '_, '_>, bytes: &[u8], ns: &mut u64) {
        self.crc = crc64_on(self.crc, bytes);
        call.out.put(bytes);
        let bytes = bytes.len() as u64;
        *ns += checking_ns(bytes) + copying_ns(bytes);
    }
}

impl Job for Dumping {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        if !std::mem::replace(&mut self.begun, true) {
            let mut head = [0; HEAD_BYTES_MAX];
            let bytes = write_bulk_head(&mut head, self.bytes as u64);
            call.out.put(&head[..bytes]);
        }
        let step = loop {
            if self.put_some(call, &mut ns) {
                break Step::Done;
            }
            if call.out.is_full() {
                break Step::Full;
            }
            if ns >= ns_max {
                break Step::More;
            }
        };
        call.spend(ns);
        Ok(step)
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn held_bytes(&self) -> u64 {
        self.bytes as u64
    }
}

/// FUNCTION DUMP: its first step, and all of it if there is no more, or in a transaction.
pub(super) fn dump(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let all: Vec<Arc<[u8]>> =
        call.shared.libraries.all().iter().map(|library| Arc::clone(&library.code)).collect();
    let of_text = |text: &Arc<[u8]>| library_head(text.len()).len() + text.len();
    let bytes = all.iter().map(of_text).sum::<usize>() + FOOTER_BYTES;
    let held = Heap::keep(call, bytes)?;
    if call.cx.guard.in_transaction() {
        call.make_room(HEAD_BYTES_MAX + bytes + 2)?;
    }
    let left = all.into_iter();
    call.work(Dumping { bytes, begun: false, under_way: None, left, crc: 0, _held: held })
}
