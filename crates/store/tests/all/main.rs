//! The tests of the store through its interface, as one program: to link each by itself takes longer than most of them.
//! `schedules` is built in its own way.

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
