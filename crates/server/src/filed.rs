//! Files of users that are read again when an administrator says so (SIGHUP): `--requirepass-file`, `--auth-file`, `-Y`.
//!
//! All of them are read before anything is changed. If one is missing, is no file, or has a wrong line, the users stay as they
//! are. `--aclfile` is not among them: ACL LOAD reads it, and closes more connections than a signal should.

use larder_commands::FiledUsers;

use crate::values::{USERS_MAX, password, users};

/// The paths of the files.
#[derive(Clone, Debug, Default)]
pub struct UsersFiles {
    /// `--requirepass-file`; none if `--requirepass` came behind it.
    pub password: Option<String>,
    /// `--auth-file` and `-Y`: the option, and its path.
    pub users: Vec<(&'static str, String)>,
}

impl UsersFiles {
    /// True if there is such a file.
    pub fn any(&self) -> bool {
        self.password.is_some() || !self.users.is_empty()
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// What is wrong with the first that cannot be used, with the option and the path.
    pub fn read(&self) -> Result<FiledUsers, String> {
        let mut filed = FiledUsers::default();
        if let Some(path) = &self.password {
            filed.password = Some(again("--requirepass-file", path, password)?);
        }
        for (option, path) in &self.users {
            filed.users.extend(again(option, path, users)?);
        }
        if filed.users.len() > USERS_MAX {
            return Err(format!("--auth-file, -Y: {USERS_MAX} users at most"));
        }
        Ok(filed)
    }
}

/// Reads a file if it is one: at the start a pipe may have been named, which has no writer any more.
fn again<T>(option: &str, path: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<T, String> {
    let read = match std::fs::metadata(path) {
        Ok(there) if there.is_file() => read(path),
        Ok(_) => Err("it is no file that can be read again".into()),
        Err(error) => Err(error.to_string()),
    };
    read.map_err(|why| format!("{option} {path}: {why}"))
}
