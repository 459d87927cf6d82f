//! The store alone, against a plain map: every eight bytes are an operation.
#![no_main]

use larder_testkit::store_model::{OP_BYTES, Op, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let ops: Vec<Op> = input.as_chunks::<OP_BYTES>().0.iter().take(120).map(|op| Op::decode(op).lighter()).collect();
    run(&ops);
});
