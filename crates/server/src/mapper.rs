//! A thread that has the system map memory before requests need it: that takes milliseconds where a virtual machine's
//! host has to find it first. It gives the heap's free pages back, too, where much of what was on the heap is gone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

use larder_store::Store;

use crate::confine::{Confinement, Role};

/// The stack: nothing is called that needs more.
const STACK_BYTES: usize = 64 << 10;

/// The thread, as its starter sees it.
#[derive(Debug)]
pub struct Mapper {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Mapper {
    /// Starts it, with the first of the memory mapped already: what the process holds when it begins to serve is then
    /// the same whenever the thread gets to run.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(store: &Arc<Store>, confinement: &Confinement) -> io::Result<Mapper> {
        while store.make_memory_ready() {}
        let (store, stop) = (Arc::clone(store), Arc::new(AtomicBool::new(false)));
        let (stops, confinement) = (Arc::clone(&stop), confinement.clone());
        let work = move || {
            confinement.enter(Role::Mapper);
            store.memory_is_made_ready_by(thread::current());
            while !stops.load(SeqCst) {
                if !store.make_memory_ready() {
                    // Woken by the worker that takes memory, and by the thread that ends it.
                    thread::park();
                }
            }
        };
        let thread = thread::Builder::new().name("memory".into()).stack_size(STACK_BYTES).spawn(work)?;
        Ok(Mapper { thread, stop })
    }

    /// Ends the thread, and waits for it.
    pub fn end(self) {
        self.stop.store(true, SeqCst);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}
