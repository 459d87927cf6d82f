//! The meaning of commands on items, whatever their words: each gives an outcome, which `classic`, `meta` and `frames` write.

mod arithmetic;
mod fetch;
mod remove;
mod store;

pub(crate) use arithmetic::{Arithmetic, Changed, change, count_no_number};
pub(crate) use fetch::{Fetched, fetch, fetch_and_touch};
pub(crate) use remove::{Removal, Removed, Touched, class_there, delete, remove, touch};
pub(crate) use store::{
    Ended, InSteps, NO_CLASS, Outcome, StorePlan, WholeValue, account, class_compared, concat,
    count_too_large, end, finish, fits, fitting_value_bytes, has_collection, is_long, refuse, store, string,
};
