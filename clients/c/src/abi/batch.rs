//! The exported functions of batches: requests that are sent together.

use super::Fallible;
use super::call::{guard, plainly};
use super::client::Client;
use super::pointers::{bytes, copied, handle, place, put, room, told};
use crate::asks::{self, Asked};
use crate::batch::Batch;
use crate::failure::wrong;
use crate::lives::Single;
use crate::shapes::{self, Bytes, Status};
use std::{mem, ptr};

/// `larder_batch`.
type BatchHandle = Single<Batch>;

/// Reads a request of any kind, with what its pointers lead to.
///
/// # Safety
/// 2 and 3, as long as it is used.
pub unsafe fn asked<'a>(request: *const shapes::Request) -> Fallible<Asked<'a>> {
    // SAFETY: 2, 3.
    unsafe {
        let request = copied(request)?;
        let key = bytes(request.key)?;
        match request.verb {
            shapes::VERB_GET => asks::read(key, &copied(request.read)?),
            shapes::VERB_SET => {
                let mut store = copied(request.store)?;
                if request.store.is_null() {
                    store.ttl_ms = request.ttl_ms;
                }
                asks::store(key, bytes(request.value)?, &store)
            }
            shapes::VERB_DELETE => asks::remove(key, &copied(request.remove)?),
            shapes::VERB_TOUCH => asks::touch(key, request.ttl_ms),
            shapes::VERB_INCR | shapes::VERB_DECR => {
                asks::count(key, request.delta, request.verb == shapes::VERB_DECR, &copied(request.count)?)
            }
            _ => wrong("verb is none of the verbs"),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_batch_new(client: *mut Client) -> *mut BatchHandle {
    // SAFETY: 1.
    plainly(ptr::null_mut(), || unsafe {
        let batch = Batch::new(handle(client)?.life()?);
        Ok(Box::into_raw(Box::new(Single::new(batch))))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_batch_add(
    batch: *mut BatchHandle,
    request: *const shapes::Request,
    number: *mut usize,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe {
        guard(error, || {
            let added = handle(batch)?.enter()?.add(&asked(request)?);
            put(place(number), added);
            Ok(Status::OK)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_batch_run(batch: *mut BatchHandle, error: *mut shapes::Error) -> Status {
    // SAFETY: 1, 4.
    unsafe { guard(error, || handle(batch)?.enter()?.run()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_batch_result(
    batch: *const BatchHandle,
    number: usize,
    value: *mut Bytes,
    counted: *mut u64,
    meta: *mut shapes::Meta,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1, 4. The bytes of the value are the batch's, and do not move before it is run again or freed.
    unsafe {
        guard(error, || {
            put(place(value), Bytes::default());
            put(place(counted), 0);
            let meta = room(meta)?;
            let batch = handle(batch)?.enter()?;
            let (status, reply, bytes) = batch.result(number)?;
            put(place(value), told(bytes));
            put(place(counted), reply.number);
            meta.put(&asks::told(&reply));
            Ok(status)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_batch_free(batch: *mut BatchHandle) {
    // SAFETY: 1.
    unsafe { free(batch) };
}

/// Frees what belongs to this process. What belongs to its parent stays: threads of the parent may hold its locks.
///
/// # Safety
/// 1.
pub unsafe fn free<T>(pointer: *mut Single<T>) {
    plainly((), || {
        if !pointer.is_null() {
            // SAFETY: 1.
            let single = unsafe { Box::from_raw(pointer) };
            if !single.is_ours() {
                mem::forget(single);
            }
        }
        Ok(())
    });
}
