//! Stores and replies of the binary protocol: what happens is `verbs`', and how a conversation reads frames is `binary`'s.

mod reply;
mod store;

pub(crate) use reply::{Untold, put_done, put_flags, put_item, put_number, put_status, put_text};
pub(crate) use store::Plan;
