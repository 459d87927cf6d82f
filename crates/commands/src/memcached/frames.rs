//! Stores and replies of the binary protocol. `verbs` has what commands do, `binary` how a conversation reads frames.

mod reply;
mod store;

pub(crate) use reply::{Untold, put_done, put_flags, put_item, put_number, put_status, put_text};
pub(crate) use store::Plan;
