//! ACL LOAD and ACL SAVE. A thread of their own reads the file and applies its rules, or prints them and writes it; meanwhile the
//! worker serves others, and the client waits. One thread at a time works at the file.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};

use larder_protocol::resp::Args;

use super::failed;
use crate::core::acl::catalog::Catalog;
use crate::core::acl::file;
use crate::core::acl::user::User;
use crate::core::host::UsersFile;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::steps::job::{Job, Step};

const NO_FILE: Fail = Fail::of(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.",
);
const NOT_SAVED: Fail = Fail::of(
    "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
);

/// How often the worker looks whether the thread has ended, in milliseconds.
const LOOK_MS: u64 = 5;

pub(super) fn load(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let file = call.cx.host.users_file().ok_or(NO_FILE)?;
    let (all_channels, catalog) = (call.cx.shared.access.all_channels(), call.shared.catalog);
    let work = move || {
        let path = file.path();
        let text = file.read().map_err(|why| format!("Error loading ACLs, opening file '{path}': {why}"))?;
        file::read(&text, path, catalog, |name| User::new(0, name, all_channels))
    };
    begin(call, work, loaded)
}

fn loaded(call: &mut Call<'_, '_, '_>, read: Result<Vec<User>, String>) -> Done {
    let users = read.map_err(|why| Fail::with(format!("ERR {why}")))?;
    let access = &call.cx.shared.access;
    let (before, users) = access.replace_users(users).map_err(|unchanged| failed(&unchanged))?;
    call.users_changed();
    let there: HashSet<u64> = users.iter().map(|user| user.id).collect();
    call.close_those(&|id| !there.contains(&id));
    call.close_monitors(&users.iter().cloned().collect::<Vec<_>>());
    let loses = |user: &&Arc<User>| before.get(user.name()).is_some_and(|then| !user.hears_as_much(then));
    call.close_deaf(users.iter().filter(loses).cloned().collect())
}

pub(super) fn save(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let file = call.cx.host.users_file().ok_or(NO_FILE)?;
    let (users, catalog) = (call.cx.shared.access.users(), call.shared.catalog);
    let work = move || {
        let mut text = Vec::new();
        for user in users.iter() {
            text.extend_from_slice(&user.print());
            text.push(b'\n');
        }
        save_text(&*file, &text, catalog)
    };
    begin(call, work, |call, written| {
        written.map_err(|why| {
            call.cx.host.note(3, &format!("ACL SAVE: {why}"));
            NOT_SAVED
        })?;
        call.ok()
    })
}

/// Writes a text that can be read again: one that cannot would stop the next start.
fn save_text(file: &dyn UsersFile, text: &[u8], catalog: &Catalog) -> Result<(), String> {
    file::read(text, file.path(), catalog, |name| User::new(0, name, false))?;
    file.write(text).map_err(|why| why.to_string())
}

type Work<T> = Box<dyn FnOnce() -> T + Send>;
type Then<T> = fn(&mut Call<'_, '_, '_>, T) -> Done;

fn begin<T: std::fmt::Debug + Send + 'static>(
    call: &mut Call<'_, '_, '_>,
    work: impl FnOnce() -> T + Send + 'static,
    then: Then<T>,
) -> Done {
    let filing = Arc::clone(&call.cx.shared.access.filing);
    call.wait_with(Filing { work: Some(Box::new(work)), filing, done: Arc::default(), then });
    Ok(())
}

/// A command whose thread works at the file, or is about to.
struct Filing<T> {
    /// What the thread is to do; none once it has begun.
    work: Option<Work<T>>,
    /// Whether a thread works at the file.
    filing: Arc<AtomicBool>,
    done: Arc<Mutex<Option<T>>>,
    then: Then<T>,
}

impl<T> std::fmt::Debug for Filing<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filing").field("has_begun", &self.work.is_none()).finish_non_exhaustive()
    }
}

/// Frees the file for others when dropped, however the thread ends.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl<T: std::fmt::Debug + Send + 'static> Filing<T> {
    /// Begins the thread, unless another works at the file.
    ///
    /// # Errors
    /// No thread can be started.
    fn begin(&mut self) -> Done {
        if self.work.is_none() || self.filing.swap(true, AcqRel) {
            return Ok(());
        }
        let busy = Busy(Arc::clone(&self.filing));
        let (Some(work), done) = (self.work.take(), Arc::clone(&self.done)) else { return Ok(()) };
        let run = move || {
            let _busy = busy;
            let found = work();
            *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        };
        let thread = std::thread::Builder::new().name("users".into()).spawn(run);
        thread.map(drop).map_err(|why| Fail::with(format!("ERR no thread for the file of users: {why}")))
    }
}

impl<T: std::fmt::Debug + Send + 'static> Job for Filing<T> {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        self.begin()?;
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A client that has ended its own sending is still answered, and rules that were read for it are applied.
        let Some(done) = done else { return Ok(Step::Sleep(LOOK_MS)) };
        (self.then)(call, done)?;
        Ok(Step::Done)
    }

    fn waits(&self) -> bool {
        true
    }
}
