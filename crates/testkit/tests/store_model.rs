//! Random operations on a small store, with eviction, expiry, moves, flushes and changes of the limit, are
//! answered as a plain map allows.

use larder_testkit::store_model::{OP_BYTES, Op, run};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    // Failures are printed smallest first; `PROPTEST_RNG_SEED` replays a run.
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_answers_what_a_map_allows(bytes in vec(any::<[u8; OP_BYTES]>(), 1..300)) {
        let ops: Vec<Op> = bytes.iter().map(Op::decode).collect();
        run(&ops);
    }
}
