//! Random streams of commands get the replies of the reference model.

use larder_testkit::model::{OP_BYTES, Op, check};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    // Failures are printed smallest first; `PROPTEST_RNG_SEED` replays a run.
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_commands_are_answered_as_the_model_says(bytes in vec(any::<[u8; OP_BYTES]>(), 1..150)) {
        let ops: Vec<Op> = bytes.iter().map(Op::decode).collect();
        prop_assert_eq!(check(&ops), Ok(()));
    }
}
