//! Random operations on a small store, with eviction, expiry, moves, flushes and changes of the limit, get results that a plain
//! map allows.

use larder_testkit::store_model::{OP_BYTES, Op, run};
use proptest::collection::vec;
use proptest::prelude::*;

/// Inputs of the fuzzers that are worth keeping; the fuzzers run a lighter form of this test.
#[test]
fn the_fuzzers_corpora_are_answered_as_a_map_allows() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");
    for corpus in ["store_model", "collections"] {
        let decode = if corpus == "store_model" { Op::decode } else { Op::of_elements };
        let mut inputs = 0;
        for file in std::fs::read_dir(format!("{seeds}/{corpus}")).expect("a directory") {
            let bytes = std::fs::read(file.expect("a file").path()).expect("its bytes");
            run(&bytes.as_chunks::<OP_BYTES>().0.iter().map(decode).collect::<Vec<Op>>());
            inputs += 1;
        }
        assert!(inputs > 0, "{corpus} is empty");
    }
}

proptest! {
    // Failures are printed smallest first; `PROPTEST_RNG_SEED` replays a run.
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn collections_are_as_vectors(bytes in vec(any::<[u8; OP_BYTES]>(), 1..600)) {
        let ops: Vec<Op> = bytes.iter().map(Op::of_elements).collect();
        run(&ops);
    }

    #[test]
    fn a_store_answers_what_a_map_allows(bytes in vec(any::<[u8; OP_BYTES]>(), 1..300)) {
        let ops: Vec<Op> = bytes.iter().map(Op::decode).collect();
        run(&ops);
    }
}
