//! FUNCTION DUMP: all libraries, in the form that FUNCTION RESTORE reads.
//!
//! ```text
//! ┌──────── for each library, by name ────────────────┐
//! │ 0xf5 │ how many bytes its text has │ the text │ … │ version: 2 bytes │ checksum of all before it: 8 bytes │
//! ```
//!
//! Libraries may have 1/64 of the memory. So their texts are copied in steps, as the client takes the reply; in a transaction in
//! one step. The reply has the libraries that are known when the command begins, whatever happens meanwhile. Only the texts are
//! held, not the libraries, whose variables workers keep as long as the library exists.

use std::sync::Arc;
use std::vec::IntoIter;

use larder_protocol::resp::{Args, HEAD_BYTES_MAX, write_bulk_head};

use crate::core::work::copying_ns;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::serialize::{FOOTER_BYTES, VERSION, checking_ns, crc64_on, library_head};
use crate::redis::steps::job::{Job, Step};

/// Bytes that are copied between two looks at the work of a step.
const CHUNK_BYTES: usize = 16 << 10;

/// A FUNCTION DUMP under way.
#[derive(Debug)]
struct Dumping {
    /// Bytes of the payload, and whether the head of the reply, which has them, is written.
    bytes: usize,
    begun: bool,
    /// The text that is being written, and how much of it was.
    under_way: Option<(Arc<[u8]>, usize)>,
    /// The texts behind it.
    left: IntoIter<Arc<[u8]>>,
    /// The checksum of what was written.
    crc: u64,
    /// The charge for the texts: other libraries may replace theirs meanwhile.
    _held: Heap,
}

impl Dumping {
    /// Writes some more; true when all is written.
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

/// Serves FUNCTION DUMP: does the first step, and leaves a job for the rest; in a transaction does all of it.
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
