//! The libraries of functions that all workers know by their names, until a client deletes or replaces them.
//!
//! Libraries are charged to the memory limit, and take 1/64 of it at most. They are so few that what concerns all of them is done
//! in one step.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_store::Store;

use super::cache::Nature;
use crate::redis::fail::{Fail, shown};

/// All libraries together take at most one part in so many of the memory limit.
pub(crate) const SHARE: u64 = 64;
/// Most libraries that are known.
pub(crate) const LIBRARIES_MAX: usize = 4 << 10;
/// Most functions of all libraries together: adding so many takes some milliseconds.
pub(crate) const FUNCTIONS_MAX: usize = 16 << 10;
/// Bytes of a library, of each of its functions, and of each of their flags, besides text.
const LIBRARY_BYTES: usize = 256;
const FUNCTION_BYTES: usize = 512;
const FLAG_BYTES: usize = 48;
/// A function's name is kept in its library, in the map of functions, and in each state that has loaded it: at least two.
const NAMES: usize = 4;

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    pub name: Box<str>,
    /// Its whole text, which a reply may still need when the library is no longer known.
    pub code: Arc<[u8]>,
    pub functions: Vec<Function>,
}

/// The error if libraries would take more than [`SHARE`].
pub(crate) const TOO_MUCH: Fail = Fail::of("OOM libraries take as much memory as they may");

/// The error if there would be more than [`LIBRARIES_MAX`], or functions than [`FUNCTIONS_MAX`].
pub(crate) const TOO_MANY: Fail = Fail::of("ERR libraries are 4096 at most, with 16384 functions together");

/// A function of a library.
#[derive(Debug)]
pub(crate) struct Function {
    pub nature: Arc<Nature>,
    pub description: Option<Box<[u8]>>,
    pub flags: Vec<String>,
}

impl Library {
    /// The text that is compiled. It begins at the end of the first line, so that lines keep their numbers.
    pub fn text(&self) -> &[u8] {
        let head = memchr::memchr(b'\n', &self.code).unwrap_or(0);
        &self.code[head..]
    }

    /// Bytes of the library.
    pub fn bytes(&self) -> u64 {
        let function = |function: &Function| {
            let described = function.description.as_ref().map_or(0, |text| text.len());
            let names = NAMES * function.nature.name.len();
            FUNCTION_BYTES + described + names + FLAG_BYTES * function.flags.len()
        };
        let functions: usize = self.functions.iter().map(function).sum();
        (self.code.len() + functions + LIBRARY_BYTES) as u64
    }
}

/// A function's name as a key: functions are found in either case.
fn key_of(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// The known libraries.
#[derive(Debug, Default)]
pub(crate) struct Libraries(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    libraries: BTreeMap<Box<str>, Arc<Library>>,
    /// Functions by their names in lower case.
    functions: HashMap<Box<str>, (Arc<Library>, usize)>,
    bytes: u64,
}

/// What happens to known libraries when others are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// All are forgotten.
    Flush,
    /// They stay, and none of their names may be added.
    Append,
    /// Those with an added name are forgotten.
    Replace,
}

impl Known {
    fn forget(&mut self, name: &str) -> Option<Arc<Library>> {
        let library = self.libraries.remove(name)?;
        for function in &library.functions {
            self.functions.remove(&*key_of(&function.nature.name));
        }
        self.bytes -= library.bytes();
        Some(library)
    }

    fn add(&mut self, library: Library) {
        let library = Arc::new(library);
        for (at, function) in library.functions.iter().enumerate() {
            let name = key_of(&function.nature.name).into();
            self.functions.insert(name, (Arc::clone(&library), at));
        }
        self.bytes += library.bytes();
        self.libraries.insert(library.name.clone(), library);
    }
}

impl Libraries {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the library of a function, and the function's place in it.
    pub fn find(&self, name: &str) -> Option<(Arc<Library>, usize)> {
        self.known().functions.get(&*key_of(name)).cloned()
    }

    /// Whether a library of this name is known.
    pub fn has(&self, name: &str) -> bool {
        self.known().libraries.contains_key(name)
    }

    /// All libraries, by name.
    pub fn all(&self) -> Vec<Arc<Library>> {
        self.known().libraries.values().cloned().collect()
    }

    /// How many libraries there are, how many functions they have, and their bytes.
    pub fn size(&self) -> (usize, usize, u64) {
        let known = self.known();
        (known.libraries.len(), known.functions.len(), known.bytes)
    }

    /// Makes libraries known, all or none. `taken`: the error for a name that a staying library has.
    ///
    /// # Errors
    /// A name is taken, or two of them have the same, or there is no room for them.
    pub fn add(
        &self,
        store: &Store,
        new: Vec<Library>,
        policy: Policy,
        taken: fn(&str) -> String,
    ) -> Result<(), Fail> {
        let mut known = self.known();
        let most = store.memory_bytes() / SHARE;
        let mut coming: HashSet<Box<str>> = HashSet::new();
        if let Some(again) = new.iter().find(|library| !coming.insert(library.name.clone())) {
            return Err(Fail::with(format!("ERR Library '{}' already exists", again.name)));
        }
        let stays = |library: &Library| match policy {
            Policy::Flush => false,
            Policy::Append => true,
            Policy::Replace => !coming.contains(&library.name),
        };
        let staying = known.libraries.values().map(|library| &**library).filter(|library| stays(library));
        let (mut count, mut functions, mut bytes) = (0, 0, 0);
        for library in staying.chain(&new) {
            count += 1;
            functions += library.functions.len();
            bytes += library.bytes();
        }
        let mut names: HashSet<String> = HashSet::new();
        for library in &new {
            if known.libraries.get(&library.name).is_some_and(|there| stays(there)) {
                return Err(Fail::with(taken(&library.name)));
            }
            for function in &library.functions {
                let name = &*function.nature.name;
                let key = key_of(name);
                let taken = known.functions.get(&*key).is_some_and(|(of, _)| stays(of));
                if taken || !names.insert(key) {
                    return Err(Fail::with(format!(
                        "ERR Function {} already exists",
                        shown(name.as_bytes(), 128)
                    )));
                }
            }
        }
        if count > LIBRARIES_MAX || functions > FUNCTIONS_MAX {
            return Err(TOO_MANY);
        }
        if bytes > most {
            return Err(TOO_MUCH);
        }
        let before = known.bytes;
        let gone: Vec<Box<str>> = known
            .libraries
            .values()
            .filter(|library| !stays(library))
            .map(|library| library.name.clone())
            .collect();
        gone.iter().for_each(|name| drop(known.forget(name)));
        new.into_iter().for_each(|library| known.add(library));
        store.set_aside(known.bytes as i64 - before as i64);
        Ok(())
    }

    /// Forgets a library; false if there is none of that name.
    pub fn forget(&self, store: &Store, name: &str) -> bool {
        let gone = self.known().forget(name);
        if let Some(library) = &gone {
            store.set_aside(-(library.bytes() as i64));
        }
        gone.is_some()
    }

    /// Forgets all libraries.
    pub fn flush(&self, store: &Store) {
        let gone = std::mem::take(&mut *self.known());
        store.set_aside(-(gone.bytes as i64));
    }
}

#[cfg(test)]
mod tests {
    use larder_store::Config;

    use super::*;

    fn library(name: String, functions: usize) -> Library {
        let function = |n| Function {
            nature: Arc::new(Nature::of_function(&format!("{name}_{n}"))),
            description: None,
            flags: Vec::new(),
        };
        let functions = (0..functions).map(function).collect();
        Library { name: name.into(), code: Arc::default(), functions }
    }

    fn some(count: usize, functions: usize) -> Vec<Library> {
        (0..count).map(|n| library(format!("l{n}"), functions)).collect()
    }

    #[test]
    fn so_many_libraries_are_known_at_most_and_so_many_functions() {
        let memory_bytes = 1 << 30;
        let config =
            Config { memory_bytes, memory_bytes_max: memory_bytes, workers_max: 1, evict: true, seed: 1 };
        let store = Store::new(config).expect("a store");
        let libraries = Libraries::default();
        let add = |new, policy| libraries.add(&store, new, policy, |name| name.to_owned());
        for (count, functions) in [(LIBRARIES_MAX + 1, 0), (1, FUNCTIONS_MAX + 1)] {
            assert_eq!(add(some(count, functions), Policy::Flush), Err(TOO_MANY));
            assert_eq!(libraries.size(), (0, 0, 0));
        }
        for (count, functions) in
            [(1, FUNCTIONS_MAX - 1), (1, FUNCTIONS_MAX), (LIBRARIES_MAX - 1, 0), (LIBRARIES_MAX, 0)]
        {
            assert_eq!(add(some(count, functions), Policy::Flush), Ok(()));
            let (known, of_all, _) = libraries.size();
            assert_eq!((known, of_all), (count, count * functions));
        }
        // One more is too many, and one instead of another is not.
        assert_eq!(add(vec![library("more".to_owned(), 0)], Policy::Append), Err(TOO_MANY));
        assert_eq!(add(vec![library("l0".to_owned(), FUNCTIONS_MAX)], Policy::Replace), Ok(()));
        assert_eq!(add(vec![library("l1".to_owned(), 1)], Policy::Replace), Err(TOO_MANY));
        assert_eq!(libraries.size().1, FUNCTIONS_MAX);
        libraries.flush(&store);
    }
}
