//! Marks bytes that no code may touch for AddressSanitizer. Without it, does nothing.

#[cfg(larder_asan)]
mod asan {
    use std::ffi::c_void;
    unsafe extern "C" {
        pub(super) fn __asan_poison_memory_region(address: *const c_void, bytes: usize);
        pub(super) fn __asan_unpoison_memory_region(address: *const c_void, bytes: usize);
    }
}

/// Under AddressSanitizer: touching these bytes is an error from now on.
#[inline]
pub(crate) fn poison(_address: *mut u8, _bytes: usize) {
    #[cfg(larder_asan)]
    // SAFETY: the call only marks shadow memory.
    unsafe {
        asan::__asan_poison_memory_region(_address.cast(), _bytes);
    }
}

/// Under AddressSanitizer: these bytes may be touched again.
#[inline]
pub(crate) fn unpoison(_address: *mut u8, _bytes: usize) {
    #[cfg(larder_asan)]
    // SAFETY: the call only marks shadow memory.
    unsafe {
        asan::__asan_unpoison_memory_region(_address.cast(), _bytes);
    }
}
