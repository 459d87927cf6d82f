//! The classic commands on items, one function each.

mod arithmetic;
mod fetch;
mod remove;
mod store;

pub(crate) use arithmetic::{Change, Changed, arithmetic, change};
pub(crate) use fetch::{fetch, fetch_and_touch};
pub(crate) use remove::{class_there, delete, touch};
pub(crate) use store::{
    Outcome, account, attributes, classic_expect, classic_outcome, concat, fits, fitting_value_bytes,
    put_stored, refuse, store, stored_reply, too_large,
};
