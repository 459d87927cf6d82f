//! Files that the server's threads may open with `--seccomp on`, by Landlock: what they read again, and nothing else.
//!
//! | where | what for |
//! |---|---|
//! | `/proc`, three folders of `/sys` | reading: figures of the process and the machine |
//! | folders of certificates, keys and authorities | reading: `refresh_certs`, SIGHUP, `CONFIG SET tls-…` |
//! | folders of `--requirepass-file`, `--auth-file`, `-Y` | reading: SIGHUP |
//! | the folder of `--aclfile` | reading, making, writing, replacing: `ACL LOAD`, `ACL SAVE` |
//! | folders of `-P` and `-s` | reading and removing: both go at the end |
//!
//! Folders are named, since a file that is replaced is another one. Where a name is a link, the folder of what it leads to
//! counts, too: tools that renew certificates change links. A folder that cannot be opened is left out.
//!
//! The kernel limits the calling thread and those that it starts later. It asks at opening: what is open stays so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    path_beneath_rules,
};
use larder_tls::Options;

use crate::config::Config;

/// The last version of the kernel's interface that has new rights on files, up to Linux 6.18.
const RIGHTS: ABI = ABI::V5;

/// Where figures are read.
const FIGURES: [&str; 4] =
    ["/proc", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage", "/sys/devices/system"];

/// Folders, by what may be done in them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Folders {
    /// Files are read, and folders listed.
    read: BTreeSet<PathBuf>,
    /// Files are read and removed.
    removed: BTreeSet<PathBuf>,
    /// Files are read, made, written and removed.
    written: BTreeSet<PathBuf>,
}

/// Limits the calling thread, and those that it starts, to the files of these options; returns how far the kernel goes.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn limit(config: &Config) -> Result<RulesetStatus, RulesetError> {
    limit_to(&Folders::of(config))
}

fn limit_to(folders: &Folders) -> Result<RulesetStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let removed = read | AccessFs::RemoveFile;
    let written = removed | AccessFs::MakeReg | AccessFs::WriteFile;
    let limited = Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))?
        .create()?
        .add_rules(path_beneath_rules(FIGURES, read))?
        .add_rules(path_beneath_rules(&folders.read, read))?
        .add_rules(path_beneath_rules(&folders.removed, removed))?
        .add_rules(path_beneath_rules(&folders.written, written))?
        .restrict_self()?;
    Ok(limited.ruleset)
}

impl Folders {
    fn of(config: &Config) -> Folders {
        let mut folders = Folders::default();
        // As at start: without a port that speaks TLS these files are not read.
        if config.tls || config.redis_tls_port.is_some() || config.http_tls {
            let Options { chain, key, authorities, authorities_folder, .. } = &config.tls_options.redis;
            let files = [Some(chain), Some(key), authorities.as_ref()];
            files.into_iter().flatten().for_each(|file| around(file, &mut folders.read));
            if let Some(folder) = authorities_folder {
                folders.read.insert(folder.clone());
                // The folder's files are mostly links, with names by which OpenSSL finds them.
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                entries.for_each(|entry| around(&entry.path(), &mut folders.read));
            }
        }
        let users = config.users_files.users.iter().map(|(_, path)| path);
        let of_users = config.users_files.password.iter().chain(users);
        of_users.for_each(|path| around(Path::new(path), &mut folders.read));
        if let Some(path) = &config.rules_file {
            around(Path::new(path), &mut folders.read);
            // ACL SAVE replaces a link, and not what it leads to.
            folders.written.insert(folder_of(Path::new(path)));
        }
        let at_the_end = config.pid_file.iter().chain(&config.unix_socket);
        folders.removed.extend(at_the_end.map(|path| folder_of(path)));
        folders
    }
}

/// Adds the folder of a file, and where that is a link the folder of what it leads to.
fn around(file: &Path, folders: &mut BTreeSet<PathBuf>) {
    if file.as_os_str().is_empty() {
        return;
    }
    folders.insert(folder_of(file));
    folders.extend(std::fs::canonicalize(file).ok().map(|real| folder_of(&real)));
}

fn folder_of(file: &Path) -> PathBuf {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of a test's own, with a file and a link to it from a folder beside.
    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new(name: &str) -> TestFolder {
            let place = std::env::temp_dir().join(format!("larder-files-{}-{name}", std::process::id()));
            // A process of the same number may have left it.
            let _ = std::fs::remove_dir_all(&place);
            for folder in ["real", "named"] {
                std::fs::create_dir_all(place.join(folder)).expect("a folder of our own");
            }
            std::fs::write(place.join("real/file"), "text").expect("written");
            std::os::unix::fs::symlink(place.join("real/file"), place.join("named/link")).expect("a link");
            TestFolder(std::fs::canonicalize(place).expect("it is there"))
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.join(path)
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn folders_are_those_of_names_and_of_what_links_lead_to() {
        let place = TestFolder::new("named");
        let link = place.at("named/link");
        let mut config = Config { tls: true, pid_file: Some("pid".into()), ..Config::default() };
        config.tls_options.redis.chain = link.clone();
        config.tls_options.redis.authorities_folder = Some(place.at("named"));
        config.unix_socket = Some("/run/larder/socket".into());
        let folders = Folders::of(&config);
        assert_eq!(folders.read, BTreeSet::from([place.at("named"), place.at("real")]));
        assert_eq!(folders.removed, BTreeSet::from([PathBuf::from("."), PathBuf::from("/run/larder")]));
        assert!(folders.written.is_empty());
        // Without TLS its files are not read; a file of rules may be replaced where it is named.
        config.tls = false;
        config.rules_file = Some(link.display().to_string());
        config.users_files.password = Some("/etc/larder/password".into());
        let folders = Folders::of(&config);
        let read = [place.at("named"), place.at("real"), "/etc/larder".into()];
        assert_eq!(folders.read, BTreeSet::from(read));
        assert_eq!(folders.written, BTreeSet::from([place.at("named")]));
    }

    #[test]
    fn a_thread_opens_what_its_folders_have_and_nothing_else() {
        let (open, shut) = (TestFolder::new("open"), TestFolder::new("shut"));
        let folders = Folders {
            read: [open.at("named")].into(),
            removed: [open.at("real")].into(),
            written: BTreeSet::new(),
        };
        // The kernel limits a thread, so that other tests go on as they were.
        let (status, found) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let status = limit_to(&folders).expect("the kernel does not refuse");
                let refused = |done: std::io::Result<()>| {
                    done.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
                };
                let reads = |path: PathBuf| refused(std::fs::read(path).map(drop));
                let found = [
                    reads("/proc/self/status".into()),
                    reads(open.at("named/link")),
                    refused(std::fs::read_dir(open.at("named")).map(drop)),
                    refused(std::fs::remove_file(open.at("real/file"))),
                    refused(std::fs::write(open.at("real/new"), "")),
                    refused(std::fs::write(open.at("named/new"), "")),
                    refused(std::fs::remove_file(open.at("named/link"))),
                    reads(shut.at("real/file")),
                    refused(std::fs::remove_file(shut.at("real/file"))),
                ];
                (status, found)
            });
            thread.join().expect("it does not panic")
        });
        let is_limited = status != RulesetStatus::NotEnforced;
        assert_eq!(found[..4], [false; 4], "what is allowed");
        assert_eq!(found[4..], [is_limited; 5], "what is not");
    }
}
