//! The exported functions of requests that are made one by one.

use super::call::guard;
use super::client::{Client, enter};
use super::pointers::{buffer, bytes, copied, place, put, room, told};
use crate::asks;
use crate::calls;
use crate::failure::wrong;
use crate::lives;
use crate::shapes::{self, Bytes, Status};
use larder_client::Outcome;
use std::ffi::{c_int, c_void};
use std::{mem, ptr};

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_get(
    client: *mut Client,
    key: Bytes,
    read: *const shapes::Read,
    buf: *mut c_void,
    cap: usize,
    len: *mut usize,
    meta: *mut shapes::Meta,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe {
        guard(error, || {
            put(place(len), 0);
            let meta = room(meta)?;
            let asked = asks::read(bytes(key)?, &copied(read)?)?;
            let (status, reply, copied) = calls::get(enter(client)?.client(), &asked, buffer(buf, cap)?)?;
            put(place(len), copied.bytes);
            meta.put(&asks::told(&reply));
            Ok(status)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_get_alloc(
    client: *mut Client,
    key: Bytes,
    read: *const shapes::Read,
    value: *mut Bytes,
    meta: *mut shapes::Meta,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe {
        guard(error, || {
            let Some(room_of_value) = place(value) else { return wrong("there is no room for the value") };
            room_of_value.write(Bytes::default());
            let meta = room(meta)?;
            let asked = asks::read(bytes(key)?, &copied(read)?)?;
            let (status, reply, value) = calls::get_alloc(enter(client)?.client(), &asked)?;
            meta.put(&asks::told(&reply));
            if !value.is_empty() {
                let len = value.len();
                room_of_value.write(Bytes { data: Box::into_raw(value).cast(), len });
            }
            Ok(status)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_bytes_free(value: *mut Bytes) {
    // SAFETY: 4; the bytes are initialised, whatever they are.
    let Some(value) = (unsafe { value.as_mut() }) else { return };
    let given = mem::take(value);
    if !given.data.is_null() {
        let bytes = ptr::slice_from_raw_parts_mut(given.data.cast::<u8>().cast_mut(), given.len);
        // SAFETY: `larder_get_alloc` made it from a box of this many bytes. It was not freed, or it would be NULL.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_set(
    client: *mut Client,
    key: Bytes,
    value: Bytes,
    store: *const shapes::Store,
    meta: *mut shapes::Meta,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe {
        guard(error, || {
            let meta = room(meta)?;
            let asked = asks::store(bytes(key)?, bytes(value)?, &copied(store)?)?;
            let (status, reply) = calls::request(enter(client)?.client(), &asked)?;
            meta.put(&asks::told(&reply));
            Ok(status)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_delete(
    client: *mut Client,
    key: Bytes,
    remove: *const shapes::Remove,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe {
        guard(error, || {
            let asked = asks::remove(bytes(key)?, &copied(remove)?)?;
            Ok(calls::request(enter(client)?.client(), &asked)?.0)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_invalidate(
    client: *mut Client,
    key: Bytes,
    serve_stale_ms: i64,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1, 2, 4.
    unsafe {
        guard(error, || {
            let asked = asks::invalidate(bytes(key)?, serve_stale_ms)?;
            Ok(calls::request(enter(client)?.client(), &asked)?.0)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_touch(
    client: *mut Client,
    key: Bytes,
    ttl_ms: i64,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1, 2, 4.
    unsafe {
        guard(error, || {
            let asked = asks::touch(bytes(key)?, ttl_ms)?;
            Ok(calls::request(enter(client)?.client(), &asked)?.0)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_incr(
    client: *mut Client,
    key: Bytes,
    delta: u64,
    count: *const shapes::Count,
    number: *mut u64,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe { counted(client, key, delta, false, count, number, error) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_decr(
    client: *mut Client,
    key: Bytes,
    delta: u64,
    count: *const shapes::Count,
    number: *mut u64,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe { counted(client, key, delta, true, count, number, error) }
}

/// # Safety
/// 1 to 4.
unsafe fn counted(
    client: *mut Client,
    key: Bytes,
    delta: u64,
    down: bool,
    count: *const shapes::Count,
    number: *mut u64,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: the caller's.
    unsafe {
        guard(error, || {
            put(place(number), 0);
            let asked = asks::count(bytes(key)?, delta, down, &copied(count)?)?;
            let (status, reply) = calls::request(enter(client)?.client(), &asked)?;
            put(place(number), reply.number);
            Ok(status)
        })
    }
}

/// `larder_change`.
type Change = unsafe extern "C" fn(user: *mut c_void, old: *const Bytes, value: *mut Bytes) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_update(
    client: *mut Client,
    key: Bytes,
    ttl_ms: i64,
    change: Option<Change>,
    user: *mut c_void,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1, 2, 4, 5.
    unsafe {
        guard(error, || {
            let Some(change) = change else { return wrong("there is no function that changes") };
            let inside = enter(client)?;
            let process = lives::process();
            let mut failure = None;
            let status = calls::update(inside.client(), bytes(key)?, ttl_ms, |old| {
                let old = old.map(told);
                let mut value = Bytes::default();
                let left = change(user, old.as_ref().map_or(ptr::null(), ptr::from_ref), &mut value);
                if lives::process() != process {
                    // The callback has forked, and this is the child: the call belongs to the parent.
                    failure = Some(larder_client::Error::Closed(Outcome::NotSent).into());
                    return None;
                }
                match bytes(value) {
                    _ if left != 0 => None,
                    Ok(value) => Some(value.to_vec()),
                    Err(wrong) => {
                        failure = Some(wrong);
                        None
                    }
                }
            })?;
            failure.map_or(Ok(status), Err)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_get_or_lease(
    client: *mut Client,
    key: Bytes,
    lease: *mut shapes::Lease,
    buf: *mut c_void,
    cap: usize,
    len: *mut usize,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe {
        guard(error, || {
            put(place(len), 0);
            if lease.is_null() {
                return wrong("there is no room for the lease");
            }
            let (asked, room) = (copied(lease)?, room(lease)?);
            let (status, told, copied) =
                calls::get_or_lease(enter(client)?.client(), bytes(key)?, &asked, buffer(buf, cap)?)?;
            put(place(len), copied.bytes);
            room.put(&told);
            Ok(status)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_fill(
    client: *mut Client,
    key: Bytes,
    value: Bytes,
    ttl_ms: i64,
    lease: *const shapes::Lease,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe {
        guard(error, || {
            if lease.is_null() {
                return wrong("there is no lease");
            }
            calls::fill(enter(client)?.client(), bytes(key)?, bytes(value)?, ttl_ms, &copied(lease)?)
        })
    }
}
