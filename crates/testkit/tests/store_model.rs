//! Random operations on a small store, with eviction, expiry, moves, flushes and changes of the limit, are
//! answered as a plain map allows.

use larder_testkit::store_model::{OP_BYTES, Op, run};
use proptest::collection::vec;
use proptest::prelude::*;

/// What the fuzzer found worth keeping; it runs a lighter form of them.
#[test]
fn the_fuzzers_corpus_is_answered_as_a_map_allows() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/store_model");
    let mut inputs = 0;
    for file in std::fs::read_dir(corpus).expect("a directory") {
        let bytes = std::fs::read(file.expect("a file").path()).expect("its bytes");
        run(&bytes.as_chunks::<OP_BYTES>().0.iter().map(Op::decode).collect::<Vec<Op>>());
        inputs += 1;
    }
    assert!(inputs > 0, "{corpus} is empty");
}

proptest! {
    // Failures are printed smallest first; `PROPTEST_RNG_SEED` replays a run.
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_answers_what_a_map_allows(bytes in vec(any::<[u8; OP_BYTES]>(), 1..300)) {
        let ops: Vec<Op> = bytes.iter().map(Op::decode).collect();
        run(&ops);
    }
}
