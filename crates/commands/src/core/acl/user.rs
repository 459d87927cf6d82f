//! A user: whether it may log in, by which passwords, and what it may do.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use larder_protocol::resp::split;
use smallvec::SmallVec;
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use super::ahead::Ahead;
use super::asked::Asked;
use super::catalog::{Catalog, CommandId};
use super::pattern::Need;
use super::rules::{Checked, Denied, Fault, Rules, check_each, has_blanks};
use crate::core::digest::Digest;

/// Most bytes of a user's name. A longer one is not looked at.
pub(crate) const NAME_BYTES_MAX: usize = 16 << 10;
/// Most bytes that a user's rules and passwords hold.
pub(crate) const USER_BYTES_MAX: usize = 64 << 10;
/// Most users that `ACL SETUSER` and `ACL LOAD` make.
pub(crate) const USERS_MAX: usize = 4096;
/// Most bytes that all these users hold.
pub(crate) const USERS_BYTES_MAX: usize = 16 << 20;
/// Most passwords of a user. A login compares each password of each user.
pub(crate) const PASSWORDS_MAX: usize = 64;
/// Most selectors of a user.
pub(crate) const SELECTORS_MAX: usize = 64;
/// Most rules that are applied at once, those of selectors among them.
pub(crate) const RULES_MAX: usize = 2048;
/// Rules that are applied between two counts of the user's bytes.
const LOOKS_EVERY: usize = 64;

/// A user.
#[derive(Clone)]
pub(crate) struct User {
    /// Distinguishes a user from another that had its name before.
    pub id: u64,
    name: Arc<str>,
    name_digest: Digest,
    pub enabled: bool,
    /// Whether any password is right.
    pub no_password: bool,
    skips_sanitizing: bool,
    /// Whether this is the default user, and off only because there were others at the start: no rule has said so.
    pub is_unnamed: bool,
    /// Whether its line at the start does not say if it may log in: it may as soon as a file has a password for it.
    pub awaits_password: bool,
    passwords: Vec<Digest>,
    root: Rules,
    selectors: Vec<Rules>,
    /// The short check of root and selectors, where requests are read ahead.
    ahead: Ahead,
    held_bytes: usize,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why the words of a user are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A selector that begins with this word does not end.
    Unmatched(Vec<u8>),
    /// This word cannot be applied.
    Word(Vec<u8>, Fault),
}

impl Refused {
    /// The text of its error, in Redis's words.
    pub fn text(&self) -> String {
        let shown = |word: &[u8]| -> String {
            // What was said of a password is not said again. A selector has none, but its writer may have thought so.
            match word {
                [b'>', ..] => ">(redacted)".into(),
                [b'<', ..] => "<(redacted)".into(),
                [b'(', inner @ ..] if inner.iter().any(|byte| matches!(byte, b'>' | b'<')) => {
                    "(redacted)".into()
                }
                _ => word.iter().take(512).map(|&byte| char::from(byte)).collect(),
            }
        };
        match self {
            Refused::Unmatched(word) => {
                format!("Unmatched parenthesis in acl selector starting at '{}'.", shown(word))
            }
            Refused::Word(word, fault) => {
                format!("Error in ACL SETUSER modifier '{}': {}", shown(word), fault.text())
            }
        }
    }
}

/// Merges the words of each selector into one word.
///
/// # Errors
/// A selector does not end.
fn merged<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Zeroizing<Vec<u8>>>, Refused> {
    let mut all = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words {
        open = match open.take() {
            Some((first, mut selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
                if word.last() == Some(&b')') {
                    all.push(Zeroizing::new(selector));
                    None
                } else {
                    Some((first, selector))
                }
            }
            None if word.first() == Some(&b'(') && word.last() != Some(&b')') => Some((word, word.to_vec())),
            None => {
                all.push(Zeroizing::new(word.to_vec()));
                None
            }
        };
    }
    match open {
        Some((first, _)) => Err(Refused::Unmatched(first.to_vec())),
        None => Ok(all),
    }
}

/// Returns whether the word says if a user may log in.
fn says_who_logs_in(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"on") || word.eq_ignore_ascii_case(b"off")
}

impl User {
    /// A new user. It may not log in, and may do nothing but use all channels, if `all_channels`.
    pub fn new(id: u64, name: &str, all_channels: bool) -> User {
        let mut user = User {
            id,
            name: name.into(),
            name_digest: name.into(),
            enabled: false,
            no_password: false,
            skips_sanitizing: false,
            is_unnamed: false,
            awaits_password: false,
            passwords: Vec::new(),
            root: Rules::none(all_channels),
            selectors: Vec::new(),
            ahead: Ahead::General,
            held_bytes: 0,
        };
        user.held_bytes = user.count_bytes();
        user
    }

    /// A user that may do everything, and logs in by one of these passwords.
    pub fn open(id: u64, name: &str, passwords: Vec<Digest>) -> User {
        let mut user = User { enabled: true, passwords, root: Rules::all(), ..User::new(id, name, true) };
        user.ahead = Ahead::of(&user.root, 0);
        user.held_bytes = user.count_bytes();
        user
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name, to be held without a copy.
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Digests of its passwords, in the order in which they were added.
    pub fn passwords(&self) -> &[Digest] {
        &self.passwords
    }

    /// Sets its only password, or none. Without one no client can log in as this user, unless `no_password`.
    pub fn set_password(&mut self, password: Option<Digest>, no_password: bool) {
        self.passwords = password.into_iter().collect();
        self.no_password = no_password;
    }

    /// Takes passwords away, and adds others. A user that needs no password goes on without one. A user that is off for want of
    /// a password, not by a rule, is on as soon as it has one. Passwords are looked up in sets: a file may have thousands for
    /// one user, and logins wait meanwhile.
    pub fn change_passwords(&mut self, gone: &[Digest], new: &[Digest]) {
        let gone: BTreeSet<&[u8; 32]> = gone.iter().map(Digest::bytes).collect();
        self.passwords.retain(|known| !gone.contains(known.bytes()));
        if !self.no_password {
            let mut known: BTreeSet<[u8; 32]> = self.passwords.iter().map(|known| *known.bytes()).collect();
            self.passwords.extend(new.iter().filter(|digest| known.insert(*digest.bytes())).cloned());
        }
        if self.is_unnamed {
            self.enabled = !self.passwords.is_empty();
        } else if self.awaits_password && !new.is_empty() {
            self.enabled = true;
        }
        self.held_bytes = self.count_bytes();
    }

    /// Takes over how another user logs in, or how this one did before.
    pub fn log_in_as(&mut self, other: &User) {
        self.passwords.clone_from(&other.passwords);
        (self.enabled, self.no_password) = (other.enabled, other.no_password);
        self.is_unnamed = other.is_unnamed;
    }

    /// Takes over the passwords of another user, and whether it may log in if it has some.
    pub fn take_passwords(&mut self, other: &User) {
        self.passwords.clone_from(&other.passwords);
        self.enabled = other.enabled && !other.passwords.is_empty();
    }

    /// The root's rules, then those of the selectors.
    pub fn rules(&self) -> impl Iterator<Item = &Rules> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Its selectors.
    pub fn selectors(&self) -> &[Rules] {
        &self.selectors
    }

    /// Returns whether it may do everything, so that nothing need be checked.
    pub fn may_everything(&self) -> bool {
        self.root.allow_all()
    }

    /// Bytes of memory that it holds, as counted when its rules were applied.
    pub fn bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns whether it holds no more bytes than before, and a login compares no more of its passwords.
    pub fn takes_no_more_than(&self, before: &User) -> bool {
        self.held_bytes <= before.held_bytes && self.rows() <= before.rows()
    }

    fn count_bytes(&self) -> usize {
        let rules: usize = self.rules().map(Rules::bytes).sum();
        size_of::<User>() + self.name.len() + self.passwords.len() * size_of::<Digest>() + rules
    }

    /// Number of digests that a login compares.
    pub fn rows(&self) -> usize {
        self.passwords.len().max(1)
    }

    /// Returns whether this is its name, the password is right, and it may log in. It takes the same time whatever they are.
    pub fn is_logged_in_by(&self, user: &Digest, password: &Digest) -> Choice {
        let mut right = Choice::from(u8::from(self.no_password));
        for known in &self.passwords {
            right |= known.ct_eq(password);
        }
        right & self.name_digest.ct_eq(user) & Choice::from(u8::from(self.enabled))
    }

    /// The user that the words of `ACL SETUSER` make of this one.
    ///
    /// # Errors
    /// A word cannot be applied. Then none is.
    pub fn with<'a>(
        &self,
        catalog: &Catalog,
        words: impl Iterator<Item = &'a [u8]>,
        all_channels: bool,
    ) -> Result<User, Refused> {
        let mut user = self.clone();
        user.is_unnamed = false;
        let words = merged(words)?;
        user.awaits_password &= !words.iter().any(|word| says_who_logs_in(word));
        let mut rules_left = RULES_MAX;
        for (word, left) in words.iter().zip((0..words.len()).rev()) {
            let mut done = user.apply(catalog, word, all_channels, &mut rules_left);
            if left.is_multiple_of(LOOKS_EVERY) && done.is_ok() {
                user.held_bytes = user.count_bytes();
                if user.held_bytes > USER_BYTES_MAX {
                    done = Err(Fault::TooMany);
                }
            }
            if let Err(fault) = done {
                return Err(Refused::Word(word.to_vec(), fault));
            }
        }
        user.ahead = Ahead::of(&user.root, user.selectors.len());
        Ok(user)
    }

    fn apply(
        &mut self,
        catalog: &Catalog,
        word: &[u8],
        all_channels: bool,
        rules_left: &mut usize,
    ) -> Result<(), Fault> {
        let mut count = || {
            *rules_left = rules_left.checked_sub(1).ok_or(Fault::TooMany)?;
            Ok(())
        };
        count()?;
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match word {
            [] => {}
            _ if is("on") => self.enabled = true,
            _ if is("off") => self.enabled = false,
            _ if is("nopass") => self.set_password(None, true),
            _ if is("resetpass") => self.set_password(None, false),
            _ if is("skip-sanitize-payload") => self.skips_sanitizing = true,
            _ if is("sanitize-payload") => self.skips_sanitizing = false,
            [sign @ (b'>' | b'#'), secret @ ..] => {
                let digest = digest(*sign == b'>', secret)?;
                self.no_password = false;
                if self.place_of(&digest).is_none() {
                    if self.passwords.len() == PASSWORDS_MAX {
                        return Err(Fault::TooMany);
                    }
                    self.passwords.push(digest);
                }
            }
            [sign @ (b'<' | b'!'), secret @ ..] => {
                let digest = digest(*sign == b'<', secret)?;
                let at = self.place_of(&digest).ok_or(Fault::NoSuchPassword)?;
                self.passwords.remove(at);
            }
            [b'(', inner @ .., b')'] => {
                if self.selectors.len() == SELECTORS_MAX {
                    return Err(Fault::TooMany);
                }
                let mut rules = Rules::none(all_channels);
                // Where a quote is missing, so that words cannot be separated, Redis takes none of them.
                if let Some(words) = split(inner) {
                    words.args().try_for_each(|word| {
                        count()?;
                        if word.last() == Some(&b')') {
                            // Where it is printed it would end the selector, and what is behind it would be the root's.
                            return Err(Fault::Syntax);
                        }
                        rules.apply(catalog, word)
                    })?;
                }
                self.selectors.push(rules);
            }
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => *self = User::new(self.id, &self.name, all_channels),
            _ => self.root.apply(catalog, word)?,
        }
        Ok(())
    }

    fn place_of(&self, digest: &Digest) -> Option<usize> {
        self.passwords.iter().position(|known| known.ct_eq(digest).into())
    }

    /// Checks whether it may do what a request asks for. Adds the time to `ns`.
    ///
    /// # Errors
    /// Neither its root nor a selector allows all of it.
    pub fn check<'a>(&self, asked: &Asked<'_, 'a>, ns: &mut u64) -> Result<(), Denied<'a>> {
        if self.selectors.is_empty() {
            return self.root.check(asked, ns);
        }
        let mut all: SmallVec<[Checked<'_, 'a>; 8]> = self.rules().map(|rules| (rules, None)).collect();
        check_each(&mut all, asked, ns)
    }

    /// Returns whether [`User::may_ahead`] is worth a try for its requests of one key.
    #[inline]
    pub fn is_read_ahead(&self) -> bool {
        !matches!(self.ahead, Ahead::General)
    }

    /// Returns whether it may run this command, which names no channel and one key with this need. False: only [`User::check`]
    /// knows.
    #[inline]
    pub fn may_ahead(&self, command: CommandId, key: &[u8], need: Need) -> bool {
        self.may_run_ahead(command) && self.may_use_ahead(key, need)
    }

    /// The part of [`User::may_ahead`] that does not depend on the key: asked once for many keys.
    #[inline]
    pub fn may_run_ahead(&self, command: CommandId) -> bool {
        self.root.allow_command(command)
    }

    /// The part of [`User::may_ahead`] that depends on the key, for any command that may run.
    #[inline]
    pub fn may_use_ahead(&self, key: &[u8], need: Need) -> bool {
        match &self.ahead {
            Ahead::General => false,
            Ahead::AllKeys => true,
            Ahead::ShortPrefix(short) if short.allows(key, need) => true,
            Ahead::ShortPrefix(_) | Ahead::Prefixes => self.root.allow_by_prefix(key, need),
        }
    }

    /// Returns whether a root or selector that allows the request also allows this need for every key.
    pub fn may_with_every_key(&self, asked: &Asked<'_, '_>, need: Need, ns: &mut u64) -> bool {
        self.rules().any(|rules| rules.check(asked, ns).is_ok() && rules.allow_every_key(need))
    }

    /// Returns whether it may subscribe to a channel, or to a pattern. Adds the time to `ns`. False, too, if the check takes
    /// too long.
    pub fn may_hear(&self, channel: &[u8], is_pattern: bool, ns: &mut u64) -> bool {
        self.rules().any(|rules| rules.allows_channel(channel, is_pattern, ns))
    }

    /// Returns whether it is the same user with the same rules: what was allowed then is allowed now. It may log in in another
    /// way.
    pub fn may_as(&self, then: &User) -> bool {
        self.id == then.id && self.root == then.root && self.selectors == then.selectors
    }

    /// Returns whether it may receive every message that `before` may receive.
    pub fn hears_as_much(&self, before: &User) -> bool {
        before.rules().all(|old| self.rules().any(|new| old.hear_no_more_than(new)))
    }

    /// Its flags.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let sanitizes = if self.skips_sanitizing { "skip-sanitize-payload" } else { "sanitize-payload" };
        let passes = self.no_password.then_some("nopass");
        std::iter::once(if self.enabled { "on" } else { "off" }).chain(passes).chain([sanitizes])
    }

    /// A line of `ACL LIST`, and of a file of users.
    pub fn print(&self) -> Vec<u8> {
        let mut line = format!("user {}", self.name).into_bytes();
        let mut add = |word: &[u8]| {
            line.push(b' ');
            line.extend_from_slice(word);
        };
        self.flags().for_each(|flag| add(flag.as_bytes()));
        self.passwords.iter().for_each(|digest| add(format!("#{}", digest.hex()).as_bytes()));
        add(&self.root.print());
        self.selectors.iter().for_each(|rules| add(&[b"(", &rules.print()[..], b")"].concat()));
        line
    }
}

/// The digest of a password, or the digest that is given.
fn digest(is_password: bool, secret: &[u8]) -> Result<Digest, Fault> {
    if is_password { Ok(Digest::of(secret)) } else { Digest::from_hex(secret).ok_or(Fault::BadHash) }
}

/// Returns whether a user may have this name, by which it can log in.
pub(crate) fn is_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !has_blanks(name)
}
