//! Whole sessions over a store, against the reference model: every twelve bytes are an operation.
#![no_main]

use larder_testkit::model::{OP_BYTES, Op, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let ops: Vec<Op> = input.as_chunks::<OP_BYTES>().0.iter().take(300).map(Op::decode).collect();
    if let Err(difference) = check(&ops) {
        panic!("{difference}");
    }
});
