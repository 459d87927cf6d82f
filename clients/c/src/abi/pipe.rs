//! The exported functions of pipes: connections of event loops.

use super::batch::asked;
use super::call::{guard, plainly};
use super::client::{close_socket, configured, count_forks};
use super::pointers::{copied, handle, place, put, told};
use crate::asks;
use crate::failure::{self, Failure, wrong};
use crate::lives::Single;
use crate::pipe::{self, Pipe};
use crate::shapes::{self, Status, TLS};
use larder_client::OpenSocket;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{mem, ptr};

/// `larder_pipe`.
pub struct PipeHandle {
    single: Single<Pipe>,
    socket: OpenSocket,
    /// Callbacks for ended requests are running.
    telling: AtomicBool,
    /// It was freed by one of these callbacks.
    doomed: AtomicBool,
}

/// `larder_done`.
type DoneFunction = unsafe extern "C" fn(user: *mut c_void, tag: *mut c_void, reply: *const shapes::Reply);

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_pipe_open(
    config: *const shapes::Config,
    pipe: *mut *mut PipeHandle,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 2, 3, 4.
    unsafe {
        guard(error, || {
            let Some(room) = place(pipe) else { return wrong("there is no room for the pipe") };
            room.write(ptr::null_mut());
            // Reading the files of a configuration may wait, and a pipe never does.
            if copied(config)?.options & TLS != 0 {
                return wrong("a larder_pipe has no TLS");
            }
            count_forks()?;
            let pipe = Pipe::open(configured(config)?)?;
            let socket = pipe.socket().ok_or(Failure::Bug("its socket cannot be known".to_owned()))?;
            let (telling, doomed) = (AtomicBool::new(false), AtomicBool::new(false));
            room.write(Box::into_raw(Box::new(PipeHandle {
                single: Single::new(pipe),
                socket,
                telling,
                doomed,
            })));
            Ok(Status::OK)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_pipe_fd(pipe: *const PipeHandle) -> c_int {
    // SAFETY: 1.
    plainly(-1, || Ok(unsafe { handle(pipe) }?.socket.number))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_pipe_wants(pipe: *const PipeHandle, wake_ms: *mut i64) -> u32 {
    // SAFETY: 1, 4.
    plainly(0, || unsafe {
        put(place(wake_ms), -1);
        let (bits, wake) = handle(pipe)?.single.enter()?.wants();
        put(place(wake_ms), wake.unwrap_or(-1));
        Ok(bits)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_pipe_submit(
    pipe: *mut PipeHandle,
    request: *const shapes::Request,
    tag: *mut c_void,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1 to 4.
    unsafe {
        guard(error, || handle(pipe)?.single.enter()?.submit(&asked(request)?, tag.expose_provenance()))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_pipe_process(
    pipe: *mut PipeHandle,
    ready: u32,
    done: Option<DoneFunction>,
    user: *mut c_void,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1, 4, 5. While callbacks run, no call holds the pipe, so that callbacks may use it. It is not freed before the last
    // callback.
    unsafe {
        guard(error, || {
            let Some(done) = done else { return wrong("there is no function to tell") };
            let known = handle(pipe)?;
            if known.telling.load(Ordering::Relaxed) {
                return wrong("it is processed by what it tells");
            }
            let (ended, result) = known.single.enter()?.process(ready)?;
            known.telling.store(true, Ordering::Relaxed);
            for (tag, result, value) in ended.iter() {
                tell(done, user, ptr::with_exposed_provenance_mut(tag), result, value);
            }
            known.telling.store(false, Ordering::Relaxed);
            if known.doomed.load(Ordering::Relaxed) {
                drop(Box::from_raw(pipe));
            } else if let Ok(mut inside) = known.single.enter() {
                inside.take_back(ended);
            }
            result?;
            Ok(Status::OK)
        })
    }
}

/// Calls the caller's function for a request that has ended.
///
/// # Safety
/// 5.
unsafe fn tell(
    done: DoneFunction,
    user: *mut c_void,
    tag: *mut c_void,
    result: Result<larder_client::Reply, &larder_client::Error>,
    value: &[u8],
) {
    let (error, meta, status, counted);
    match pipe::status(result) {
        Ok((said, reply)) => {
            (status, counted) = (said, reply.number);
            meta = shapes::Meta { size: size_of::<shapes::Meta>() as u32, ..asks::told(&reply) };
            error = failure::well(said);
        }
        Err(failure) => {
            (status, counted, meta) = (failure.status(), 0, shapes::Meta::default());
            error = shapes::Error { size: size_of::<shapes::Error>() as u32, ..failure.told() };
        }
    }
    let reply = shapes::Reply {
        size: size_of::<shapes::Reply>() as u32,
        status,
        outcome: error.outcome,
        reserved: 0,
        value: told(value),
        counted,
        meta: if status.0 < 16 { ptr::from_ref(&meta) } else { ptr::null() },
        error: if status.0 < 16 { ptr::null() } else { ptr::from_ref(&error) },
    };
    // SAFETY: the caller's; what the reply points to is here.
    unsafe { done(user, tag, &reply) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_pipe_free(pipe: *mut PipeHandle) {
    plainly((), || {
        // SAFETY: 1.
        let known = unsafe { handle(pipe) }?;
        if known.telling.load(Ordering::Relaxed) && known.single.is_ours() {
            known.doomed.store(true, Ordering::Relaxed);
            return Ok(());
        }
        // SAFETY: 1.
        let pipe = unsafe { Box::from_raw(pipe) };
        if !pipe.single.is_ours() {
            close_socket(pipe.socket);
            mem::forget(pipe);
        }
        Ok(())
    });
}
