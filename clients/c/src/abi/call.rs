//! How each exported function ends: with a status, even if it panics.

use super::Fallible;
use super::pointers::room;
use crate::failure::{self, Failure};
use crate::shapes::{self, Status};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes a call and fills the error. After a panic only two kinds of state are used again: what notices the panic
/// (`lives::Single`), and locks that are as good as before.
///
/// # Safety
/// 4, for the error.
pub unsafe fn guard(error: *mut shapes::Error, call: impl FnOnce() -> Fallible<Status>) -> Status {
    // SAFETY: the caller's.
    let Ok(room) = (unsafe { room(error) }) else { return Status::BAD_ARGUMENT };
    let result =
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(Failure::Bug(words(&*panic))));
    match result {
        Ok(status) => {
            room.put(&failure::well(status));
            status
        }
        Err(failure) => {
            room.put(&failure.told());
            failure.status()
        }
    }
}

/// Makes a call that returns something else than a status: `otherwise` if it fails.
pub fn plainly<T>(otherwise: T, call: impl FnOnce() -> Fallible<T>) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Failure::Bug(String::new()))).unwrap_or(otherwise)
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words").to_owned()
}
