//! Pointers of callers: reading and writing through them, by the numbered promises of `abi`.

use super::Fallible;
use crate::failure::wrong;
use crate::shapes::{self, Bytes};
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::{ptr, slice};

/// The largest size that a struct can have. A larger number is uninitialised memory.
const SHAPE_BYTES_MAX: usize = 4096;

/// A struct that begins with its size and may grow.
///
/// # Safety
/// It is `repr(C)`, begins with a `u32`, and has fields that are integers, raw pointers, or arrays or structs of such: zeros
/// are a value.
pub unsafe trait Shape: Copy {}

macro_rules! shapes {
    ($($name:ident)*) => { $(
        // SAFETY: it is so, as its definition shows.
        unsafe impl Shape for shapes::$name {}
    )* };
}
shapes! { Error Config Counters Read Meta Store Remove Count Lease Request Report }

/// The size in a struct.
///
/// # Safety
/// 3 or 4; it is not NULL.
unsafe fn size_of_shape(pointer: *const u32) -> Fallible<usize> {
    // SAFETY: the size is the first field.
    match unsafe { pointer.read() } as usize {
        size if size < size_of::<u32>() => wrong("the size of a struct is not set"),
        size if size > SHAPE_BYTES_MAX => wrong("the size of a struct cannot be"),
        size => Ok(size),
    }
}

/// Copies a struct, as far as its size goes; zeros beyond, and for NULL.
///
/// # Safety
/// 3.
pub unsafe fn copied<T: Shape>(pointer: *const T) -> Fallible<T> {
    let mut copy = MaybeUninit::<T>::zeroed();
    if !pointer.is_null() {
        // SAFETY: 3, and it is not NULL.
        let size = unsafe { size_of_shape(pointer.cast()) }?;
        let known = size.min(size_of::<T>());
        // SAFETY: this many bytes can be read (3), and the copy has room for them.
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

/// Room for a struct, of the size that the caller's struct has.
pub struct Room<T> {
    pointer: *mut T,
    size: usize,
}

/// # Safety
/// 4, as long as the room is used.
pub unsafe fn room<T: Shape>(pointer: *mut T) -> Fallible<Room<T>> {
    // SAFETY: 4, and it is not NULL.
    let size = if pointer.is_null() { 0 } else { unsafe { size_of_shape(pointer.cast()) }? };
    Ok(Room { pointer, size: size.min(size_of::<T>()) })
}

impl<T: Shape> Room<T> {
    /// Fills in as many fields as there is room for, except the size.
    pub fn put(&self, told: &T) {
        let begins = size_of::<u32>();
        if self.size > begins {
            let from = ptr::from_ref(told).cast::<u8>();
            // SAFETY: both have this many bytes (4, and the size of the shape).
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

/// Room for a value of a fixed size.
///
/// # Safety
/// 4, as long as it is used.
pub unsafe fn place<'a, T>(pointer: *mut T) -> Option<&'a mut MaybeUninit<T>> {
    // SAFETY: 4.
    unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() }
}

/// Writes to the room, if there is any.
pub fn put<T>(place: Option<&mut MaybeUninit<T>>, what: T) {
    if let Some(place) = place {
        place.write(what);
    }
}

/// A caller's buffer.
///
/// # Safety
/// 4, as long as it is used.
pub unsafe fn buffer<'a>(data: *mut c_void, cap: usize) -> Fallible<&'a mut [MaybeUninit<u8>]> {
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
pub unsafe fn bytes<'a>(bytes: Bytes) -> Fallible<&'a [u8]> {
    match (bytes.data.is_null(), bytes.len) {
        (_, 0) => Ok(&[]),
        (true, _) => wrong("bytes are NULL and have a length"),
        (false, len) if len > isize::MAX as usize => wrong("a length cannot be"),
        // SAFETY: 2.
        (false, len) => Ok(unsafe { slice::from_raw_parts(bytes.data.cast(), len) }),
    }
}

/// Bytes for the caller.
pub fn told(bytes: &[u8]) -> Bytes {
    if bytes.is_empty() { Bytes::default() } else { Bytes { data: bytes.as_ptr().cast(), len: bytes.len() } }
}

/// A text, if there is one.
///
/// # Safety
/// 3.
pub unsafe fn text(pointer: *const c_char) -> Fallible<Option<String>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: 3.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(|text| Some(text.to_owned())).or(wrong("a text is not UTF-8"))
}

/// An array in a configuration.
///
/// # Safety
/// 3.
pub unsafe fn array<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    // SAFETY: 3.
    if pointer.is_null() { &[] } else { unsafe { slice::from_raw_parts(pointer, count) } }
}

/// What a handle refers to.
///
/// # Safety
/// 1, as long as it is used.
pub unsafe fn handle<'a, T>(pointer: *const T) -> Fallible<&'a T> {
    // SAFETY: 1.
    unsafe { pointer.as_ref() }.map_or_else(|| wrong("the handle is NULL"), Ok)
}
