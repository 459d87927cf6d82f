//! Sessions of three RESP clients and one of memcached's protocol on one store, against the model of
//! Redis: every byte is a choice of the client that asks, the command, or its arguments.
#![no_main]

use larder_testkit::redis::check::check;
use larder_testkit::redis::stream::Choices;
use libfuzzer_sys::fuzz_target;

/// Steps of an input, at most.
const STEPS: usize = 300;

fuzz_target!(|input: &[u8]| {
    if let Err(difference) = check(Choices::Bytes(input), STEPS) {
        panic!("{difference}");
    }
});
