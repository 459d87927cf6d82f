//! The exported functions of streams: writes that are acknowledged later.

use super::batch::free;
use super::call::{guard, plainly};
use super::client::Client;
use super::pointers::{bytes, copied, handle, place, put, room, told};
use crate::asks;
use crate::lives::Single;
use crate::shapes::{self, Bytes, Status};
use crate::stream::Stream;
use std::ffi::c_int;
use std::ptr;

/// `larder_stream`.
type StreamHandle = Single<Stream>;

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_stream_new(
    client: *mut Client,
    requests: u32,
    bytes: u32,
    failures_only: c_int,
) -> *mut StreamHandle {
    // SAFETY: 1.
    plainly(ptr::null_mut(), || unsafe {
        let stream = Stream::new(handle(client)?.life()?, requests, bytes, failures_only != 0);
        Ok(Box::into_raw(Box::new(Single::new(stream))))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_stream_set(
    stream: *mut StreamHandle,
    key: Bytes,
    value: Bytes,
    store: *const shapes::Store,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe {
        guard(error, || {
            let asked = asks::store(bytes(key)?, bytes(value)?, &copied(store)?)?;
            handle(stream)?.enter()?.send(&asked)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_stream_delete(
    stream: *mut StreamHandle,
    key: Bytes,
    remove: *const shapes::Remove,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe {
        guard(error, || {
            let asked = asks::remove(bytes(key)?, &copied(remove)?)?;
            handle(stream)?.enter()?.send(&asked)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_stream_barrier(
    stream: *mut StreamHandle,
    report: *mut shapes::Report,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1, 4.
    unsafe {
        guard(error, || {
            let room = room(report)?;
            let (told, failure) = handle(stream)?.enter()?.barrier();
            room.put(&told);
            failure.map_or(Ok(Status::OK), Err)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_stream_refused(
    stream: *const StreamHandle,
    number: usize,
    key: *mut Bytes,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1, 4. The bytes of the key are the stream's, and stay until its next barrier.
    unsafe {
        guard(error, || {
            put(place(key), Bytes::default());
            let stream = handle(stream)?.enter()?;
            let refused = stream.refused(number)?;
            put(place(key), told(&refused.key));
            Err(refused.error.clone().into())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_stream_free(stream: *mut StreamHandle) {
    // SAFETY: 1.
    unsafe { free(stream) };
}
