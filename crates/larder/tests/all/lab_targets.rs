//! `larder lab load` and `hitratio` on servers that are running already: with traces, and with commands of users.

mod commands;
mod targets;
mod traces;
