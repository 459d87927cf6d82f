//! `larder lab load` and `hitratio` on servers that are running already: with traces, and with commands that
//! the user gives.

mod commands;
mod targets;
mod traces;
