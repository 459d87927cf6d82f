//! A place on one thread for what may not leave it: a Lua state, with a stack of its own.
//!
//! A [`Berth`] is the number of its place, and may go to any thread. On another thread than the one that put something there it
//! finds nothing. A thread that ends drops what was left on it.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

thread_local! {
    // A thread has few: a worker's state, and its script that goes on later.
    static PLACES: RefCell<Vec<(u64, Box<dyn Any>)>> = RefCell::default();
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A place on a thread. What lies there is dropped with the berth, if that is dropped on the same thread, else with the thread.
pub struct Berth<T> {
    number: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Default for Berth<T> {
    /// An empty place.
    fn default() -> Berth<T> {
        Berth { number: NEXT.fetch_add(1, Relaxed), kind: PhantomData }
    }
}

impl<T: 'static> Berth<T> {
    /// A place with something in it.
    pub fn new(what: Box<T>) -> Berth<T> {
        let berth = Berth::default();
        berth.put(what);
        berth
    }

    /// Takes what lies there. `None` on another thread than the one that put it there, and while that thread ends.
    pub fn take(&self) -> Option<Box<T>> {
        let left = PLACES.try_with(|places| take(&mut places.borrow_mut(), self.number));
        left.ok().flatten()?.downcast().ok()
    }

    /// Puts something there, and returns what lay there.
    pub fn replace(&self, what: Box<T>) -> Option<Box<T>> {
        let before = self.take();
        self.put(what);
        before
    }

    /// Puts something into an empty place.
    pub fn put(&self, what: Box<T>) {
        PLACES.with_borrow_mut(|places| {
            debug_assert!(places.iter().all(|(number, _)| *number != self.number), "it was taken");
            places.push((self.number, what));
        });
    }
}

fn take(places: &mut Vec<(u64, Box<dyn Any>)>, number: u64) -> Option<Box<dyn Any>> {
    let at = places.iter().position(|(other, _)| *other == number)?;
    Some(places.swap_remove(at).1)
}

impl<T> Drop for Berth<T> {
    fn drop(&mut self) {
        // Dropped outside of the borrow, since what lies there may own a berth itself. There are no places while the thread ends.
        let left = PLACES.try_with(|places| take(&mut places.borrow_mut(), self.number));
        drop(left);
    }
}

impl<T> std::fmt::Debug for Berth<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Berth").field("number", &self.number).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn what_lies_there_stays_on_its_thread_and_goes_with_its_place() {
        let one = Rc::new(1);
        let berth = Berth::new(Box::new(Rc::clone(&one)));
        let berth = std::thread::spawn(move || {
            assert!(berth.take().is_none());
            berth
        })
        .join()
        .unwrap();
        assert_eq!(*berth.take().unwrap(), one);
        assert!(berth.take().is_none());
        berth.put(Box::new(Rc::clone(&one)));
        assert_eq!(Rc::strong_count(&one), 2);
        drop(berth.replace(Box::new(Rc::clone(&one))));
        assert_eq!(Rc::strong_count(&one), 2);
        drop(berth);
        assert_eq!(Rc::strong_count(&one), 1);
    }
}
