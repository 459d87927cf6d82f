//! The exported functions: pointers in, pointers out, and no panic beyond.
//!
//! What callers promise is said to them by `larder.h`. The proofs below cite it by these numbers:
//!
//! 1. A handle is NULL, or was made by the function for it and not freed since; who frees it is the last to use it.
//! 2. Bytes: `len` of them can be read at `data`, and nobody writes them during the call; or `len` is 0.
//! 3. What is given in a struct: it is NULL, or aligned, and as many bytes as its `size` says can be read, which nobody writes
//!    during the call. Arrays in it have as many members as it says, and texts end with 0.
//! 4. Room for what is told: it is NULL, or aligned, and can be written: a type's own bytes, or as many as its `size` says, or
//!    as many as are said beside it. Nobody else reads or writes it during the call.
//! 5. A function of the caller's may be called as its type says, and returns.
//!
//! Nothing that is made of a caller's pointer outlives the call, but what handles own.

use crate::asks::{self, Asked};
use crate::batch::Batch;
use crate::calls;
use crate::config::{self, Texts};
use crate::failure::{self, Failure, wrong};
use crate::lives::{self, Inside, Life, Single};
use crate::pipe::{self, Pipe};
use crate::shapes::{self, Bytes, Status};
use crate::stream::Stream;
use larder_client::OpenSocket;
use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::{File, Metadata};
use std::mem::{self, MaybeUninit};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

type Told<T> = Result<T, Failure>;

/// The largest size that a struct says truthfully; more is memory that nobody has filled in.
const SHAPE_BYTES_MAX: usize = 4096;

/// A struct that begins with its size and may grow.
///
/// # Safety
/// It is `repr(C)`, begins with a `u32`, and has fields that are integers, raw pointers, or arrays or structs of such: zeros
/// are a value.
unsafe trait Shape: Copy {}

macro_rules! shapes {
    ($($name:ident)*) => { $(
        // SAFETY: it is so, as its definition shows.
        unsafe impl Shape for shapes::$name {}
    )* };
}
shapes! { Error Config Counters Read Meta Store Remove Count Lease Request Report }

// ---- Pointers ----------------------------------------------------------------------------------------------------

/// The size that a struct says.
///
/// # Safety
/// 3 or 4; it is not NULL.
unsafe fn size_of_shape(pointer: *const u32) -> Told<usize> {
    // SAFETY: the size is the first field.
    match unsafe { pointer.read() } as usize {
        size if size < size_of::<u32>() => wrong("the size of a struct is not set"),
        size if size > SHAPE_BYTES_MAX => wrong("the size of a struct cannot be"),
        size => Ok(size),
    }
}

/// What a struct says, as far as it goes; zeros beyond, and for NULL.
///
/// # Safety
/// 3.
unsafe fn copied<T: Shape>(pointer: *const T) -> Told<T> {
    let mut copy = MaybeUninit::<T>::zeroed();
    if !pointer.is_null() {
        // SAFETY: 3, and it is not NULL.
        let size = unsafe { size_of_shape(pointer.cast()) }?;
        let known = size.min(size_of::<T>());
        // SAFETY: so many bytes can be read (3), and the copy has room for them.
        unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), copy.as_mut_ptr().cast(), known) };
        // SAFETY: these can be read (3).
        let beyond = unsafe { slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known) };
        if beyond.iter().any(|&byte| byte != 0) {
            return wrong("a struct has a field that this version does not know");
        }
    }
    // SAFETY: zeros are a value of a shape, and so is any part of one in front of zeros.
    Ok(unsafe { copy.assume_init() })
}

/// Room for a struct, of the size that it says.
struct Room<T> {
    pointer: *mut T,
    size: usize,
}

/// # Safety
/// 4, as long as the room is used.
unsafe fn room<T: Shape>(pointer: *mut T) -> Told<Room<T>> {
    // SAFETY: 4, and it is not NULL.
    let size = if pointer.is_null() { 0 } else { unsafe { size_of_shape(pointer.cast()) }? };
    Ok(Room { pointer, size: size.min(size_of::<T>()) })
}

impl<T: Shape> Room<T> {
    /// Fills as much as there is room for, but the size.
    fn put(&self, told: &T) {
        let begins = size_of::<u32>();
        if self.size > begins {
            let from = ptr::from_ref(told).cast::<u8>();
            // SAFETY: so many bytes of both are there (4, and the size of the shape).
            unsafe {
                ptr::copy_nonoverlapping(
                    from.add(begins),
                    self.pointer.cast::<u8>().add(begins),
                    self.size - begins,
                );
            }
        }
    }
}

/// Room for something of one size.
///
/// # Safety
/// 4, as long as it is used.
unsafe fn place<'a, T>(pointer: *mut T) -> Option<&'a mut MaybeUninit<T>> {
    // SAFETY: 4.
    unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() }
}

/// Writes there, if there is room.
fn put<T>(place: Option<&mut MaybeUninit<T>>, what: T) {
    if let Some(place) = place {
        place.write(what);
    }
}

/// A caller's buffer.
///
/// # Safety
/// 4, as long as it is used.
unsafe fn buffer<'a>(data: *mut c_void, cap: usize) -> Told<&'a mut [MaybeUninit<u8>]> {
    match (data.is_null(), cap) {
        (_, 0) => Ok(&mut []),
        (true, _) => wrong("a buffer is NULL"),
        (false, cap) if cap > isize::MAX as usize => wrong("a length cannot be"),
        // SAFETY: 4.
        (false, cap) => Ok(unsafe { slice::from_raw_parts_mut(data.cast(), cap) }),
    }
}

/// A caller's bytes.
///
/// # Safety
/// 2, as long as they are used.
unsafe fn bytes<'a>(bytes: Bytes) -> Told<&'a [u8]> {
    match (bytes.data.is_null(), bytes.len) {
        (_, 0) => Ok(&[]),
        (true, _) => wrong("bytes are NULL and have a length"),
        (false, len) if len > isize::MAX as usize => wrong("a length cannot be"),
        // SAFETY: 2.
        (false, len) => Ok(unsafe { slice::from_raw_parts(bytes.data.cast(), len) }),
    }
}

/// Bytes that are told.
fn told(bytes: &[u8]) -> Bytes {
    if bytes.is_empty() { Bytes::default() } else { Bytes { data: bytes.as_ptr().cast(), len: bytes.len() } }
}

/// A text, if there is one.
///
/// # Safety
/// 3.
unsafe fn text(pointer: *const c_char) -> Told<Option<String>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: 3.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(|text| Some(text.to_owned())).or(wrong("a text is not UTF-8"))
}

/// An array of a configuration.
///
/// # Safety
/// 3.
unsafe fn array<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    // SAFETY: 3.
    if pointer.is_null() { &[] } else { unsafe { slice::from_raw_parts(pointer, count) } }
}

/// What a handle is of.
///
/// # Safety
/// 1, as long as it is used.
unsafe fn handle<'a, T>(pointer: *const T) -> Told<&'a T> {
    // SAFETY: 1.
    unsafe { pointer.as_ref() }.map_or_else(|| wrong("the handle is NULL"), Ok)
}

// ---- Calls -------------------------------------------------------------------------------------------------------

/// Makes a call and tells what came of it. Nothing that it uses is looked at after a panic, but by what
/// notices that ([`Single`]), or by locks that are as good as before.
///
/// # Safety
/// 4, of the error.
unsafe fn guard(error: *mut shapes::Error, call: impl FnOnce() -> Told<Status>) -> Status {
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

/// Makes a call that returns something else; `otherwise` if it could not be made.
fn plainly<T>(otherwise: T, call: impl FnOnce() -> Told<T>) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Failure::Bug(String::new()))).unwrap_or(otherwise)
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words").to_owned()
}

// ---- A client ----------------------------------------------------------------------------------------------------

/// `larder_client`.
pub struct Client {
    /// Which is this process's, or was its parent's. Made by [`Box::into_raw`], and freed by this process alone.
    life: AtomicPtr<Life>,
    names: Vec<CString>,
}

impl Client {
    /// The client of this process, made now if it was forked since.
    fn life(&self) -> Told<&Life> {
        let parents = self.life.load(Ordering::Acquire);
        // SAFETY: a life is freed with its handle, at the earliest.
        let life = unsafe { &*parents };
        if life.is_ours() {
            return Ok(life);
        }
        let ours = Box::into_raw(Box::new(life.anew()?));
        match self.life.compare_exchange(parents, ours, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                close_sockets(life);
                // SAFETY: as above.
                Ok(unsafe { &*ours })
            }
            Err(others) => {
                // SAFETY: it was made above and given to nobody.
                drop(unsafe { Box::from_raw(ours) });
                // SAFETY: as above.
                Ok(unsafe { &*others })
            }
        }
    }
}

/// Closes what this process has of its parent's sockets, which are not shut down: the parent goes on.
fn close_sockets(parents: &Life) {
    parents.client.sockets().for_each(close_socket);
}

/// Closes what this process has of a socket that its parent made.
fn close_socket(socket: OpenSocket) {
    // SAFETY: nobody else closes it: its owner is the parent's, and never freed here. Whether the number still means it, after
    // a child that closed and opened files, is looked at; if not, the number is let go of.
    let file = unsafe { File::from_raw_fd(socket.number) };
    let is_it = |known: Metadata| known.file_type().is_socket() && known.ino() == socket.inode;
    if !file.metadata().is_ok_and(is_it) {
        let _ = file.into_raw_fd();
    }
}

unsafe extern "C" {
    /// Of the C library: functions that are called around a fork.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

extern "C" fn in_child() {
    lives::was_forked();
}

/// From here on forks are counted.
fn count_forks() -> Told<()> {
    static COUNTED: AtomicBool = AtomicBool::new(false);
    if COUNTED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: what is called in the child adds to a number, which any thread may do at any time.
    if unsafe { pthread_atfork(None, None, Some(in_child)) } == 0 {
        return Ok(());
    }
    COUNTED.store(false, Ordering::Relaxed);
    Err(Failure::Bug("no memory to count forks".to_owned()))
}

/// A call with a client, of this process, begins.
///
/// # Safety
/// 1, as long as it is used.
unsafe fn enter<'a>(client: *const Client) -> Told<Inside<'a>> {
    // SAFETY: the caller's.
    Ok(unsafe { handle(client) }?.life()?.enter())
}

/// A configuration, with what its pointers lead to.
///
/// # Safety
/// 2, 3.
unsafe fn configured(config: *const shapes::Config) -> Told<larder_client::Builder> {
    // SAFETY: 2, 3.
    unsafe {
        let config = copied(config)?;
        let addresses = array(config.servers, config.servers_count);
        let names = array(config.names, addresses.len());
        let weights = array(config.weights, addresses.len());
        let mut servers = Vec::new();
        for (at, &address) in addresses.iter().enumerate() {
            let Some(address) = text(address)? else { return wrong("a server is NULL") };
            let name = names.get(at).map_or(Ok(None), |&name| text(name))?;
            servers.push((address, name, weights.get(at).copied()));
        }
        let texts = Texts {
            servers,
            preset: text(config.preset)?,
            user: text(config.user)?,
            password: text(config.password)?,
            key_prefix: bytes(config.key_prefix)?.to_vec(),
        };
        config::builder(&config, texts)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_open(
    config: *const shapes::Config,
    client: *mut *mut Client,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 2, 3, 4.
    unsafe {
        guard(error, || {
            let Some(room) = place(client) else { return wrong("there is no room for the client") };
            room.write(ptr::null_mut());
            count_forks()?;
            let made = configured(config)?.build()?;
            let names = made.servers().map(|name| CString::new(name).unwrap_or_default()).collect();
            let life = AtomicPtr::new(Box::into_raw(Box::new(Life::new(made))));
            room.write(Box::into_raw(Box::new(Client { life, names })));
            Ok(Status::OK)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_shutdown(client: *mut Client) {
    // SAFETY: 1.
    plainly((), || unsafe {
        handle(client)?.life()?.shut_down();
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_free(client: *mut Client) {
    plainly((), || {
        // SAFETY: 1.
        let pointer = unsafe { handle(client) }?.life.load(Ordering::Acquire);
        // SAFETY: a life is freed with its handle, at the earliest.
        let life = unsafe { &*pointer };
        if life.is_ours() {
            life.shut_down();
            life.wait();
            // SAFETY: nobody is inside, and nobody enters (1).
            drop(unsafe { Box::from_raw(pointer) });
        } else {
            // Locks of it may be held by threads of the parent: it stays where it is.
            close_sockets(life);
        }
        // SAFETY: 1.
        drop(unsafe { Box::from_raw(client) });
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_server_count(client: *const Client) -> usize {
    // SAFETY: 1.
    plainly(0, || Ok(unsafe { handle(client) }?.names.len()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_server_name(client: *const Client, server: usize) -> *const c_char {
    plainly(ptr::null(), || {
        // SAFETY: 1.
        let client = unsafe { handle(client) }?;
        Ok(client.names.get(server).map_or(ptr::null(), |name| name.as_ptr()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_server_of(client: *const Client, key: Bytes) -> usize {
    // SAFETY: 1, 2.
    plainly(0, || unsafe { Ok(enter(client)?.client().index_of(bytes(key)?)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_server_version(
    client: *mut Client,
    server: usize,
    buf: *mut c_char,
    cap: usize,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1, 4.
    unsafe {
        guard(error, || {
            if server >= handle(client)?.names.len() {
                return wrong("there are fewer servers");
            }
            let room = buffer(buf.cast(), cap)?;
            let version = enter(client)?.client().version(server)?;
            let Some((end, room)) = room.split_last_mut() else { return Ok(Status::TRUNCATED) };
            let copied = calls::copy(version.as_bytes(), room);
            room.get_mut(copied.bytes).unwrap_or(end).write(0);
            Ok(if copied.is_whole { Status::OK } else { Status::TRUNCATED })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_flush_all(client: *mut Client, error: *mut shapes::Error) -> Status {
    // SAFETY: 1, 4.
    unsafe {
        guard(error, || {
            enter(client)?.client().flush_all()?;
            Ok(Status::OK)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_read_counters(client: *const Client, counters: *mut shapes::Counters) -> Status {
    // SAFETY: 1, 4.
    unsafe {
        guard(ptr::null_mut(), || {
            let room = room(counters)?;
            let servers = handle(client)?.names.len() as u32;
            let counted = enter(client)?.client().counters();
            room.put(&shapes::Counters {
                size: 0,
                servers,
                requests: counted.requests,
                writes: counted.writes,
                reads: counted.reads,
                overdue: counted.overdue,
                dials: counted.dials,
                unreported: counted.unreported,
            });
            Ok(Status::OK)
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn larder_status_text(status: Status) -> *const c_char {
    status.text().as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn larder_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no 0 inside"),
        };
    VERSION.as_ptr()
}

// ---- One after the other -----------------------------------------------------------------------------------------

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
    // SAFETY: 4; the bytes are there, whoever wrote them.
    let Some(value) = (unsafe { value.as_mut() }) else { return };
    let given = mem::take(value);
    if !given.data.is_null() {
        let bytes = ptr::slice_from_raw_parts_mut(given.data.cast::<u8>().cast_mut(), given.len);
        // SAFETY: `larder_get_alloc` made it of a box of so many bytes, and nobody has freed it: it would be NULL.
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
                    // It has forked, and this is the child: the call is the parent's.
                    failure = Some(larder_client::Error::Closed.into());
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

// ---- Together ----------------------------------------------------------------------------------------------------

/// `larder_batch`.
type BatchHandle = Single<Batch>;

/// Any request, with what its pointers lead to.
///
/// # Safety
/// 2, 3, as long as it is used.
unsafe fn asked<'a>(request: *const shapes::Request) -> Told<Asked<'a>> {
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

/// Frees what is this process's, and leaves what is its parent's: locks of it may be held by threads of the parent.
///
/// # Safety
/// 1.
unsafe fn free<T>(pointer: *mut Single<T>) {
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

// ---- Later -------------------------------------------------------------------------------------------------------

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

// ---- Event loops -------------------------------------------------------------------------------------------------

/// `larder_pipe`.
pub struct PipeHandle {
    single: Single<Pipe>,
    socket: OpenSocket,
    /// Requests that have ended are being told.
    telling: AtomicBool,
    /// It was freed meanwhile.
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
    // SAFETY: 1, 4, 5. While requests are told nobody is inside, so that these calls may use the pipe; it is not freed before
    // the last was told.
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

/// Tells what became of a request.
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
