//! Whole sessions over a store, against the reference model: every twelve bytes are an operation. One byte more says that
//! they come in pipelines, received in several ways.
#![no_main]

use larder_testkit::model::{OP_BYTES, Op, check, check_pipelines};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (bytes, more) = input.as_chunks::<OP_BYTES>();
    let bytes = &bytes[..bytes.len().min(300)];
    let checked = match more {
        [_] => check_pipelines(bytes),
        _ => check(&bytes.iter().map(Op::decode).collect::<Vec<Op>>()),
    };
    if let Err(difference) = checked {
        panic!("{difference}");
    }
});
