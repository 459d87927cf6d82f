//! The meta commands, one function each.

mod arithmetic;
mod debug;
mod get;
mod remove;
mod reply;
mod set;

pub(crate) use arithmetic::arithmetic;
pub(crate) use debug::debug;
pub(crate) use get::get;
pub(crate) use remove::delete;
pub(crate) use set::{Plan, plan as plan_set};
