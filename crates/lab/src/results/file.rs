//! A file of results: opened before anything is measured, written at the end.
//!
//! A file with contents is kept, unless it may be overwritten. A file that was created and not written is removed. Pipes and
//! devices are written directly.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// A file that will be written.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    file: File,
    of: Metadata,
    /// The file was created by this run, and nothing is written to it yet.
    empty: bool,
}

impl ResultFile {
    /// Opens all these files. `force`: their contents may be overwritten.
    ///
    /// # Errors
    /// [`Error::File`] when one cannot be written, has contents, or is named twice.
    pub fn open_all<'p>(
        force: bool,
        paths: impl IntoIterator<Item = Option<&'p Path>>,
    ) -> Result<Vec<Option<ResultFile>>, Error> {
        let mut files: Vec<Option<ResultFile>> = Vec::new();
        for path in paths {
            let Some(path) = path else {
                files.push(None);
                continue;
            };
            let file = ResultFile::open(path)?;
            let same = |other: &&ResultFile| other.of.is_file() && other.identity() == file.identity();
            if let Some(other) = files.iter().flatten().find(same) {
                let why = format!("two results cannot both be written there: {}", other.path.display());
                return Err(Error::File(path.to_owned(), why));
            }
            if file.of.is_file() && file.of.len() > 0 && !force {
                let why = "it is there already; if it may be written over, say --force";
                return Err(Error::File(path.to_owned(), why.to_owned()));
            }
            files.push(Some(file));
        }
        Ok(files)
    }

    fn open(path: &Path) -> Result<ResultFile, Error> {
        let refuse = |error: std::io::Error| Error::File(path.to_owned(), error.to_string());
        let (file, empty) = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                (OpenOptions::new().write(true).open(path).map_err(refuse)?, false)
            }
            Err(error) => return Err(refuse(error)),
        };
        let of = file.metadata().map_err(refuse)?;
        Ok(ResultFile { path: path.to_owned(), file, of, empty })
    }

    fn identity(&self) -> (u64, u64) {
        (self.of.dev(), self.of.ino())
    }

    /// Writes `bytes` in place of the old contents.
    ///
    /// # Errors
    /// [`Error::File`] when the system refuses: then a file that was created is removed.
    pub fn write(mut self, bytes: &[u8]) -> Result<(), Error> {
        let regular = self.of.is_file();
        let write = |file: &mut File| {
            if regular {
                file.set_len(0)?;
            }
            file.write_all(bytes)?;
            // Some systems report only here that a disk is full.
            if regular { file.sync_all() } else { Ok(()) }
        };
        write(&mut self.file).map_err(|error| Error::File(self.path.clone(), error.to_string()))?;
        self.empty = false;
        Ok(())
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        if self.empty {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("larder-files-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn refused(force: bool, paths: [Option<&Path>; 2]) -> String {
        ResultFile::open_all(force, paths).unwrap_err().to_string()
    }

    #[test]
    fn what_is_there_is_kept_unless_it_may_be_written_over() {
        let folder = folder("kept");
        let (old, new) = (folder.join("old"), folder.join("new"));
        fs::write(&old, "dear").unwrap();
        assert!(refused(false, [Some(&new), Some(&old)]).contains("say --force"));
        assert_eq!(fs::read(&old).unwrap(), b"dear");
        assert!(!new.exists(), "nothing was written to it");
        let mut both = ResultFile::open_all(true, [Some(&*new), Some(&*old)]).unwrap().into_iter().flatten();
        both.next().unwrap().write(b"new").unwrap();
        both.next().unwrap().write(b"x").unwrap();
        assert_eq!((fs::read(&new).unwrap(), fs::read(&old).unwrap()), (b"new".to_vec(), b"x".to_vec()));
        // An empty file has no contents to lose.
        fs::write(&old, "").unwrap();
        drop(ResultFile::open_all(false, [Some(&*old), None]).unwrap());
        assert!(old.exists(), "it was there before");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn two_results_do_not_go_into_one_file_however_it_is_called() {
        let folder = folder("twice");
        let (file, other, link) = (folder.join("a"), folder.join("./a"), folder.join("b"));
        std::os::unix::fs::symlink("a", &link).unwrap();
        for again in [&file, &other, &link] {
            for force in [false, true] {
                assert!(refused(force, [Some(&file), Some(again)]).contains("cannot both be written there"));
                assert!(!file.exists());
            }
        }
        let null = Path::new("/dev/null");
        assert!(ResultFile::open_all(false, [Some(null), Some(null)]).is_ok(), "a device loses nothing");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_full_disk_is_told() {
        let mut file = ResultFile::open_all(false, [Some(Path::new("/dev/full"))]).unwrap();
        let error = file.pop().flatten().unwrap().write(b"all").unwrap_err().to_string();
        assert!(error.starts_with("/dev/full: No space left on device"), "{error}");
    }
}
