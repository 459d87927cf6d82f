//! Random streams of RESP and memcached's protocol on one keyspace get the replies of the reference model.

use larder_testkit::redis::check::check;
use larder_testkit::redis::stream::Choices;

/// Streams; `REDIS_MODEL_STREAMS` sets another number.
const STREAMS: u64 = 400;
/// Steps of a stream.
const STEPS: usize = 300;

#[test]
fn random_commands_of_both_protocols_are_answered_as_the_model_says() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let streams = number("REDIS_MODEL_STREAMS").unwrap_or(STREAMS);
    // A failure names its stream: `REDIS_MODEL_SEED` starts with it.
    let seed = number("REDIS_MODEL_SEED").unwrap_or(1);
    for seed in seed..seed + streams {
        if let Err(difference) = check(Choices::Seed(seed), STEPS) {
            panic!("stream {seed}: {difference}");
        }
    }
}
