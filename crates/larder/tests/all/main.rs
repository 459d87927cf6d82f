//! The program as its users start it: the lab's experiments and their errors, replies to monitors, and the
//! page.

mod command_line;
mod in_browser;
mod lab;
mod lab_clients;
mod lab_counts;
mod lab_faults;
mod lab_load;
mod lab_matrix;
mod lab_peers;
mod lab_targets;
mod lab_truth;
mod monitor;
mod outcome;
mod serving;
mod web;
