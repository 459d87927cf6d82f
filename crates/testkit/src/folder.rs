//! A folder of a test's own.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A new folder among the system's temporary ones; it is a [`Path`]. When this is dropped, the folder is removed with all
/// that is in it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty folder that has `name` in its own name, and no other test has.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new(name: &str) -> Folder {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Relaxed);
        let folder = std::env::temp_dir().join(format!("larder-{name}-{}-{number}", std::process::id()));
        // An earlier process with the same number may have left it.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a folder of our own");
        Folder(folder)
    }

    /// The path of a file in it, as text.
    pub fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file in it; returns the file's path, as text.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.at(name);
        std::fs::write(&path, text).expect("a file of our own");
        path
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for Folder {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If it is gone already, nothing is lost.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
