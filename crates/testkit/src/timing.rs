//! Claims about time, as tests outside the gate make them.

use std::time::{Duration, Instant};

/// How often what takes too long is tried.
const TRIES: u32 = 3;

/// Something takes at most so long. A machine with other things to do only adds time: it holds if the best of up to three
/// tries holds it, and each of them is printed.
///
/// # Panics
/// When none of them does.
#[track_caller]
pub fn at_most(bound: Duration, mut took: impl FnMut() -> Duration) {
    for _ in 0..TRIES {
        let took = took();
        println!("{took:?} of {bound:?}");
        if took < bound {
            return;
        }
    }
    panic!("it took longer than {bound:?} each time");
}

/// How long some work takes.
pub fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let began = Instant::now();
    std::hint::black_box(work());
    began.elapsed()
}
