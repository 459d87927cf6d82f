//! Collections in a store, against plain vectors: every eight bytes are an operation, most of them on elements.
#![no_main]

use larder_testkit::store_model::{OP_BYTES, Op, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let ops: Vec<Op> = input.as_chunks::<OP_BYTES>().0.iter().take(400).map(Op::of_elements).collect();
    run(&ops);
});
