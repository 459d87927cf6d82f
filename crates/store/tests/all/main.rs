//! The tests of the store through its public interface, as one program: linking one program for each would
//! take longer than most tests. `schedules` is a program of its own, since it is built with another feature.

mod access_patterns;
mod behaviour;
mod collections;
mod compaction;
mod databases;
mod expiry;
mod expiry_first;
mod fields;
mod impatient_worker;
mod large_values;
mod long_members;
mod long_values;
mod mixed_sizes;
mod moving;
mod other_workers;
mod patching;
mod pauses;
mod plain;
mod received;
mod removals;
mod shift;
mod shrinking;
mod small_memory;
mod storm;
mod strangers;
mod stress;
mod stuck_worker;
mod transactions;
mod usual_writes;
mod watches;
