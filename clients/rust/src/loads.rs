//! The loads of values that are under way in a client: of its callers one loads, and the others may wait for it.

use crate::line::Line;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The loads that are under way in this client.
#[derive(Debug)]
pub struct Loads<L: Line> {
    running: Mutex<HashMap<Vec<u8>, Arc<Load<L>>>>,
}

/// One load, for which other callers may wait.
#[derive(Debug)]
pub struct Load<L: Line> {
    state: Mutex<Found>,
    pub over: L::Dialed,
}

#[derive(Debug, Default)]
struct Found {
    is_over: bool,
    /// `None`: the load failed, and each waiting caller loads the value itself.
    value: Option<Arc<[u8]>>,
}

/// A load that this caller has begun.
#[derive(Debug)]
pub struct Mine<'l, L: Line> {
    loads: &'l Loads<L>,
    key: Vec<u8>,
    load: Arc<Load<L>>,
}

impl<L: Line> Default for Loads<L> {
    fn default() -> Loads<L> {
        Loads { running: Mutex::default() }
    }
}

impl<L: Line> Loads<L> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<Load<L>>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The load of this key, if one is under way.
    pub fn of(&self, key: &[u8]) -> Option<Arc<Load<L>>> {
        self.lock().get(key).cloned()
    }

    /// Begins a load of this key; `Err` is the load that another caller has begun.
    pub fn begin(&self, key: &[u8]) -> Result<Mine<'_, L>, Arc<Load<L>>> {
        let mut running = self.lock();
        if let Some(load) = running.get(key) {
            return Err(Arc::clone(load));
        }
        let load = Arc::new(Load { state: Mutex::default(), over: L::Dialed::default() });
        running.insert(key.to_vec(), Arc::clone(&load));
        Ok(Mine { loads: self, key: key.to_vec(), load })
    }
}

impl<L: Line> Load<L> {
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, and whether the load is over.
    pub fn found(&self) -> (bool, Option<Arc<[u8]>>) {
        let state = self.lock();
        (state.is_over, state.value.clone())
    }
}

impl<L: Line<Dialed = Condvar>> Load<L> {
    /// Waits for the end of the load.
    pub fn wait(&self) -> Option<Arc<[u8]>> {
        let mut state = self.lock();
        while !state.is_over {
            state = self.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.value.clone()
    }
}

impl<L: Line> Mine<'_, L> {
    /// Ends the load with this value, and wakes the waiting callers.
    pub fn found(self, value: &[u8]) {
        self.load.lock().value = Some(value.into());
    }
}

impl<L: Line> Drop for Mine<'_, L> {
    fn drop(&mut self) {
        self.loads.lock().remove(&self.key);
        self.load.lock().is_over = true;
        L::tell(&self.load.over);
    }
}
