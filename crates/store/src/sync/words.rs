//! Words and locks that give the scheduler a turn before each access, with the feature `schedule`.
//!
//! A word is `repr(transparent)` over the standard library's, so that casts into the arena stay valid. All
//! threads of a schedule are one thread of the system: what a turn does not interrupt is one step, and orderings
//! weaker than sequential consistency are loom's to check.

use crate::schedule::{turn, turn_at, wait};
use std::sync::{LockResult, TryLockError, TryLockResult};

pub(crate) use std::sync::MutexGuard;
pub(crate) use std::sync::atomic::Ordering;

/// A turn; what a fence orders is ordered already.
#[inline]
pub(crate) fn fence(_: Ordering) {
    turn();
}

/// What every word can do.
macro_rules! word {
    ($name:ident $(<$t:ident>)?, $value:ty) => {
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name $(<$t>)? (std::sync::atomic::$name $(<$t>)?);

        #[allow(dead_code, reason = "the store does not do everything with every width")]
        impl $(<$t>)? $name $(<$t>)? {
            pub(crate) const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }
            #[inline]
            pub(crate) fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            #[inline]
            pub(crate) fn into_inner(self) -> $value {
                self.0.into_inner()
            }
            #[inline]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                turn_at(self);
                self.0.load(order)
            }
            #[inline]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                turn_at(self);
                self.0.store(value, order);
            }
            #[inline]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                turn_at(self);
                self.0.swap(value, order)
            }
            #[inline]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                turn_at(self);
                self.0.compare_exchange(current, new, success, failure)
            }
            #[inline]
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                turn_at(self);
                self.0.compare_exchange_weak(current, new, success, failure)
            }
            #[inline]
            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                turn_at(self);
                self.0.fetch_update(success, failure, &mut f)
            }
        }
    };
}

/// What numbers can do besides.
macro_rules! number {
    ($name:ident, $value:ty, $($operation:ident)*) => {
        #[allow(dead_code, reason = "the store does not do everything with every width")]
        impl $name {
            $(
                #[inline]
                pub(crate) fn $operation(&self, value: $value, order: Ordering) -> $value {
                    turn_at(self);
                    self.0.$operation(value, order)
                }
            )*
        }
    };
}

word!(AtomicBool, bool);
word!(AtomicU8, u8);
word!(AtomicU16, u16);
word!(AtomicU32, u32);
word!(AtomicU64, u64);
word!(AtomicPtr<T>, *mut T);
number!(AtomicBool, bool, fetch_or fetch_and);
number!(AtomicU8, u8, fetch_add fetch_sub fetch_or fetch_and);
number!(AtomicU16, u16, fetch_add fetch_sub fetch_or fetch_and);
number!(AtomicU32, u32, fetch_add fetch_sub fetch_or fetch_and fetch_max fetch_min);
number!(AtomicU64, u64, fetch_add fetch_sub fetch_or fetch_and fetch_max fetch_min);

/// A lock whose waiters take turns.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        loop {
            match self.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => wait(),
            }
        }
    }

    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        turn();
        self.0.try_lock()
    }

    #[allow(dead_code, reason = "few locks end with their value")]
    pub(crate) fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}
