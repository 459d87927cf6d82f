//! Claims about time, as tests outside the gate make them.

use std::time::{Duration, Instant};

/// Most tries of a claim.
const TRIES: u32 = 3;

/// Claims that something takes at most this long. A machine with other work only adds time: the claim holds if the best of up to
/// three tries keeps it. Each try is printed.
///
/// # Panics
/// If none of the tries keeps it.
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
