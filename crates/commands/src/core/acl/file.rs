//! Reads a file of users: lines as `ACL LIST` shows them, each a user. A file with a wrong line gives errors, and no users.
//! `redis/server/acl/filing.rs` writes such a file, and reads the new text here before it replaces the old file.

use std::collections::HashSet;

use larder_protocol::resp::split;

use super::catalog::Catalog;
use super::rules::Fault;
use super::user::{Refused, USERS_BYTES_MAX, USERS_MAX, User, is_name};

/// Most bytes of such a file.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads the users of a file at `path`. `new_user` makes a user of a name, which may do nothing yet.
///
/// # Errors
/// Says in Redis's words what is wrong with the lines.
pub(crate) fn read(
    text: &[u8],
    path: &str,
    catalog: &Catalog,
    new_user: impl Fn(&str) -> User,
) -> Result<Vec<User>, String> {
    let (mut users, mut names, mut errors) = (Vec::<User>::new(), HashSet::new(), String::new());
    let mut bytes = 0;
    for (line, number) in text.split(|&byte| byte == b'\n').zip(1..) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match read_line(line, catalog, &new_user) {
            Ok(user) if names.insert(Box::<str>::from(user.name())) => {
                bytes += user.bytes();
                users.push(user);
                if users.len() > USERS_MAX || bytes > USERS_BYTES_MAX {
                    errors += &format!("{path}:{number}: too many users, or their rules hold too much. ");
                    break;
                }
            }
            Ok(user) => {
                errors += &format!("WARNING: Duplicate user '{}' found on line {number}. ", user.name());
            }
            Err(why) => errors += &format!("{path}:{number}{why}. "),
        }
        if errors.len() > ERRORS_BYTES_MAX {
            break;
        }
    }
    if errors.is_empty() {
        return Ok(users);
    }
    Err(errors + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
}

/// Errors beyond these bytes are not reported.
const ERRORS_BYTES_MAX: usize = 4 << 10;

fn read_line(line: &[u8], catalog: &Catalog, new_user: impl Fn(&str) -> User) -> Result<User, String> {
    let words = split(line).ok_or(": unbalanced quotes in acl line")?;
    let mut words = words.args();
    let (first, name) = (words.next(), words.next());
    let (Some(b"user"), Some(name)) = (first, name) else {
        return Err(" should start with user keyword followed by the username".into());
    };
    let Some(name) = std::str::from_utf8(name).ok().filter(|name| is_name(name.as_bytes())) else {
        return Err(": username contains invalid characters".into());
    };
    let new = new_user(name);
    let all_channels = new.rules().all(|rules| rules.allows_channel(b"", false, &mut 0));
    new.with(catalog, words, all_channels).map_err(|refused| match refused {
        Refused::Unmatched(_) => ": Unmatched parenthesis in selector definition".into(),
        Refused::Word(word, fault) => {
            // As in Redis: what is no command may be a password whose sign was forgotten.
            let names_command = fault == Fault::Unknown && matches!(word.first(), Some(b'+' | b'-'));
            if !names_command {
                return format!(": {}", fault.text());
            }
            let word = String::from_utf8_lossy(&word);
            format!(": Error in applying operation '{word}': {}", fault.text())
        }
    })
}
