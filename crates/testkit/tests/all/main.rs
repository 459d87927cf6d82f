//! Tests of the server through sessions, simulated sockets and real processes, as one program: to link each by itself
//! takes longer than most of them. `session_schedules` is built in its own way; `allocations` has an allocator that counts.

mod accept_failures;
mod attacks;
mod bad_clients;
mod canary;
mod held_replies;
mod hostile;
mod huge_values;
mod lengths;
mod limits;
mod linearizability;
mod long_replies;
mod model;
mod open_ports;
mod pipelines;
mod redis_blocking;
mod redis_kill;
mod redis_large;
mod redis_maxmemory;
mod redis_model;
mod redis_monitor;
mod redis_pubsub;
mod redis_start;
mod redis_threads;
mod redis_transactions;
mod redis_true_limit;
mod redis_watched;
mod resp_pieces;
mod slabs;
mod stopping;
mod store_model;
mod stress;
mod transcripts;
mod true_limit;
mod two_workers;
mod world;
