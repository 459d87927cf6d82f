//! What the root of a user, or one of its selectors, allows: commands, keys, channels.
//!
//! A rule is one word. Rules are applied in order, each to what those before it made; what comes of them is a bit for
//! each command, and lists of patterns. Words of commands are kept besides, for they are printed as they were written:
//! a later word takes the place of those that it overrides.

use super::asked::{Asked, AskedKeys};
use super::catalog::{Catalog, CommandId, Commands, is_absent};
use super::pattern::{COMPARE_NS, Glob, Head, Need};
use super::sieve::{GLOBS_MAX, Sieve, WORDS_MIN};

/// Most patterns of keys, and most of channels: each is compared with each key.
pub(crate) const PATTERNS_MAX: usize = 1024;
/// Most first arguments that are allowed.
pub(crate) const FIRST_ARGS_MAX: usize = 128;
/// Most bytes of a key, and of a channel: no pattern has a longer one.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;
pub(crate) const CHANNEL_BYTES_MAX: usize = 2 * KEY_BYTES_MAX;

/// Why a rule cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Unknown,
    Syntax,
    /// It adds a pattern of keys where all keys are allowed.
    AfterAllKeys,
    /// It adds a pattern of channels where all channels are allowed.
    AfterAllChannels,
    NoSuchPassword,
    BadHash,
    /// It allows a first argument of a subcommand.
    FirstArgOfSubcommand,
    /// A user would have more rules than one may have.
    TooMany,
}

impl Fault {
    /// The text of its error.
    pub fn text(self) -> &'static str {
        match self {
            Fault::Unknown => "Unknown command or category name in ACL",
            Fault::Syntax => "Syntax error",
            Fault::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Fault::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Fault::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            Fault::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Fault::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            Fault::TooMany => "The user has as many rules as one may have",
        }
    }
}

/// Most nanoseconds that the check of a request may take. A million keys against one prefix take less.
pub(crate) const CHECK_NS_MAX: u64 = 8_000_000;

/// Why a request is refused. Of several reasons the greatest is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied<'a> {
    Command,
    Key(&'a [u8]),
    Channel(&'a [u8]),
    /// The comparison of its keys and channels with the patterns takes longer than [`CHECK_NS_MAX`].
    TooMuch,
}

impl Denied<'_> {
    /// Returns whether it is reported rather than `other`: a channel before a key before a command, and of two keys or channels
    /// the one further behind in the request.
    pub fn outweighs(&self, other: &Denied<'_>) -> bool {
        let weight = |denied: &Denied<'_>| match denied {
            Denied::Command => (0, 0),
            Denied::Key(key) => (1, key.as_ptr() as usize),
            Denied::Channel(channel) => (2, channel.as_ptr() as usize),
            Denied::TooMuch => (3, 0),
        };
        weight(self) > weight(other)
    }
}

/// The reason to report: [`Denied::TooMuch`] if comparisons have taken too long, else `denied`.
fn why(ns: u64, denied: Denied<'_>) -> Denied<'_> {
    if ns > CHECK_NS_MAX { Denied::TooMuch } else { denied }
}

/// Rules, and the reason why they refuse a request, if they do.
pub(crate) type Checked<'r, 'a> = (&'r Rules, Option<Denied<'a>>);

/// Checks whether one of several rules allows all that a request asks for. Each key is read once, for all of them. A single one
/// is asked by [`Rules::check`].
///
/// # Errors
/// None of them does. The error is the reason that outweighs the others.
pub(crate) fn check_each<'a>(
    all: &mut [Checked<'_, 'a>],
    asked: &Asked<'_, 'a>,
    ns: &mut u64,
) -> Result<(), Denied<'a>> {
    for (rules, denied) in all.iter_mut() {
        if !asked.is_free && !rules.all_commands && !rules.allows(asked) {
            *denied = Some(Denied::Command);
        }
    }
    let mut left = all.iter().filter(|(rules, denied)| denied.is_none() && !rules.all_keys).count();
    if left > 0 {
        asked.keys.find(|key, need| {
            for (rules, denied) in all.iter_mut().filter(|(_, denied)| denied.is_none()) {
                if !rules.all_keys && !rules.allows_key(key, need, ns) {
                    *denied = Some(why(*ns, Denied::Key(key)));
                    left -= 1;
                }
            }
            left == 0
        });
    }
    left = all.iter().filter(|(rules, denied)| denied.is_none() && !rules.all_channels).count();
    if let (Some(channels), true) = (asked.channels, left > 0) {
        channels(&mut |channel, is_pattern| {
            if left == 0 {
                return;
            }
            for (rules, denied) in all.iter_mut().filter(|(_, denied)| denied.is_none()) {
                if !rules.allows_channel(channel, is_pattern, ns) {
                    *denied = Some(why(*ns, Denied::Channel(channel)));
                    left -= 1;
                }
            }
        });
    }
    let mut told: Option<Denied<'a>> = None;
    for (_, denied) in all.iter() {
        let Some(denied) = *denied else { return Ok(()) };
        if told.is_none_or(|told| denied.outweighs(&told)) {
            told = Some(denied);
        }
    }
    told.map_or(Ok(()), Err)
}

/// A pattern of keys, and what may be done with those that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Keys {
    glob: Glob,
    may: Need,
}

/// The rules of a root, or of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    commands: Commands,
    /// Whether no command was taken away since all were allowed: then no bit need be looked at.
    all_commands: bool,
    /// Whether the last rule on all commands allowed them.
    begins_with_all: bool,
    /// Commands, each with a first argument that it is allowed with.
    first_args: Vec<(CommandId, Box<[u8]>)>,
    /// Words on commands, behind the last word on all of them.
    words: Vec<Box<[u8]>>,
    all_keys: bool,
    keys: Vec<Keys>,
    all_channels: bool,
    channels: Vec<Glob>,
}

/// Reads what is in front of the pattern in a rule: returns its bytes, and what may be done with the keys.
fn permission(rule: &[u8]) -> Result<(usize, Need), Fault> {
    if rule[0] == b'~' {
        return Ok((1, Need::BOTH));
    }
    let mut may = Need::NOTHING;
    for (at, byte) in rule.iter().enumerate().skip(1) {
        let adds = match byte.to_ascii_uppercase() {
            b'R' if !may.covers(Need::READ) => Need::READ,
            b'W' if !may.covers(Need::WRITE) => Need::WRITE,
            b'~' if may != Need::NOTHING => return Ok((at + 1, may)),
            _ => return Err(Fault::Syntax),
        };
        may = may.and(adds);
    }
    // Redis takes a rule that ends without its `~` for one on the empty name.
    if may == Need::NOTHING { Err(Fault::Syntax) } else { Ok((rule.len(), may)) }
}

/// Returns whether a word has a blank, a zero byte or a quote. Printed, such a word could not be read again.
pub(crate) fn has_blanks(word: &[u8]) -> bool {
    let splits = |byte| matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' | 0 | b'"' | b'\'');
    word.iter().copied().any(splits)
}

/// Makes a pattern of its text.
fn glob(text: &[u8]) -> Result<Glob, Fault> {
    if has_blanks(text) {
        return Err(Fault::Syntax);
    }
    Glob::new(text).ok_or(Fault::TooMany)
}

impl Rules {
    /// Rules that allow nothing, but all channels if `all_channels`.
    pub fn none(all_channels: bool) -> Rules {
        Rules {
            commands: Commands::NONE,
            all_commands: false,
            begins_with_all: false,
            first_args: Vec::new(),
            words: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    /// Rules that allow everything.
    pub fn all() -> Rules {
        let mut rules = Rules::none(true);
        rules.set_all_commands(true);
        rules.all_keys = true;
        rules
    }

    /// Returns whether they allow everything.
    pub fn allow_all(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    /// Bytes of memory that they hold.
    pub fn bytes(&self) -> usize {
        let globs = self.keys.iter().map(|keys| &keys.glob).chain(&self.channels);
        let patterns: usize = globs.map(|glob| glob.text().len() + size_of::<Keys>()).sum();
        let words = self.words.iter().chain(self.first_args.iter().map(|(_, word)| word));
        size_of::<Rules>() + patterns + words.map(|word| word.len() + 32).sum::<usize>()
    }

    fn set_all_commands(&mut self, allowed: bool) {
        self.commands = if allowed { Commands::ALL } else { Commands::NONE };
        (self.all_commands, self.begins_with_all) = (allowed, allowed);
        self.first_args.clear();
        self.words.clear();
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// It is no rule, or may not come here. Rules that were applied before stay.
    pub fn apply(&mut self, catalog: &Catalog, rule: &[u8]) -> Result<(), Fault> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || is("~*") => {
                self.all_keys = true;
                self.keys.clear();
            }
            _ if is("resetkeys") => {
                self.all_keys = false;
                self.keys.clear();
            }
            _ if is("allchannels") || is("&*") => {
                self.all_channels = true;
                self.channels.clear();
            }
            _ if is("resetchannels") => {
                self.all_channels = false;
                self.channels.clear();
            }
            _ if is("allcommands") || is("+@all") => self.set_all_commands(true),
            _ if is("nocommands") || is("-@all") => self.set_all_commands(false),
            [b'~' | b'%', ..] => self.add_keys(rule)?,
            [b'&', channel @ ..] => self.add_channel(channel)?,
            [sign @ (b'+' | b'-'), b'@', category @ ..] => {
                let commands = catalog.category(category).ok_or(Fault::Unknown)?;
                self.change(commands, *sign == b'+');
                self.note(&rule[1..], *sign);
            }
            [sign @ (b'+' | b'-'), name @ ..] if is_absent(name) => self.note(name, *sign),
            [b'+', name @ ..] if name.contains(&b'|') => self.allow_part(catalog, name)?,
            [sign @ (b'+' | b'-'), name @ ..] => {
                let id = catalog.find(name).ok_or(Fault::Unknown)?;
                self.change_one(catalog, id, *sign == b'+');
                self.note(name, *sign);
            }
            _ => return Err(Fault::Syntax),
        }
        Ok(())
    }

    /// `~pattern`, `%R~pattern`
    fn add_keys(&mut self, rule: &[u8]) -> Result<(), Fault> {
        if self.all_keys {
            return Err(Fault::AfterAllKeys);
        }
        let (from, may) = permission(rule)?;
        let glob = glob(&rule[from..])?;
        if let Some(known) = self.keys.iter_mut().find(|keys| keys.glob == glob) {
            known.may = known.may.and(may);
            return Ok(());
        }
        if self.keys.len() == PATTERNS_MAX {
            return Err(Fault::TooMany);
        }
        self.keys.push(Keys { glob, may });
        Ok(())
    }

    /// `&pattern`
    fn add_channel(&mut self, channel: &[u8]) -> Result<(), Fault> {
        if self.all_channels {
            return Err(Fault::AfterAllChannels);
        }
        let glob = glob(channel)?;
        if self.channels.contains(&glob) {
            return Ok(());
        }
        if self.channels.len() == PATTERNS_MAX {
            return Err(Fault::TooMany);
        }
        self.channels.push(glob);
        Ok(())
    }

    /// `+container|subcommand`, or `+command|first-argument`
    fn allow_part(&mut self, catalog: &Catalog, name: &[u8]) -> Result<(), Fault> {
        let at = name.iter().rposition(|&byte| byte == b'|').unwrap_or(name.len());
        let (command, part) = (&name[..at], &name[(at + 1).min(name.len())..]);
        let id = catalog.find(command).ok_or(Fault::Unknown)?;
        let entry = catalog.entry(id);
        if entry.is_subcommand() {
            return Err(Fault::FirstArgOfSubcommand);
        }
        if part.is_empty() {
            return Err(Fault::Syntax);
        }
        if entry.subcommands.is_empty() {
            // Redis takes blanks, and prints what it cannot read again.
            if has_blanks(part) {
                return Err(Fault::Syntax);
            }
            let known =
                |(known, word): &(CommandId, Box<[u8]>)| *known == id && word.eq_ignore_ascii_case(part);
            if !self.first_args.iter().any(known) {
                if self.first_args.len() == FIRST_ARGS_MAX {
                    return Err(Fault::TooMany);
                }
                self.first_args.push((id, part.into()));
            }
        } else {
            let id = catalog.find(name).ok_or(Fault::Unknown)?;
            self.change_one(catalog, id, true);
        }
        self.note(name, b'+');
        Ok(())
    }

    fn change_one(&mut self, catalog: &Catalog, id: CommandId, allowed: bool) {
        let mut commands = Commands::NONE;
        commands.set(id, true);
        catalog.entry(id).subcommands.clone().for_each(|id| commands.set(id, true));
        self.change(&commands, allowed);
    }

    /// Allows commands as a whole, or forbids them.
    fn change(&mut self, commands: &Commands, allowed: bool) {
        self.commands.set_all(commands, allowed);
        self.all_commands &= allowed;
        self.first_args.retain(|(id, _)| !commands.has(*id));
    }

    /// Notes a word on commands in the place of those that it overrides: the same, and on parts of the same.
    fn note(&mut self, rule: &[u8], sign: u8) {
        let rule = rule.to_ascii_lowercase();
        let is_overridden = |word: &[u8]| {
            let rest = word.get(1..).and_then(|word| word.strip_prefix(&rule[..]));
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'|')
        };
        self.words.retain(|word| !is_overridden(word));
        self.words.push([&[sign], &rule[..]].concat().into());
    }

    /// Checks whether they allow all that a request asks for. Adds the time to `ns`.
    ///
    /// # Errors
    /// They do not. The error is the first reason, in Redis's order.
    pub fn check<'a>(&self, asked: &Asked<'_, 'a>, ns: &mut u64) -> Result<(), Denied<'a>> {
        if !asked.is_free && !self.all_commands && !self.allows(asked) {
            return Err(Denied::Command);
        }
        if !self.all_keys
            && let Some(key) = self.find_denied(&asked.keys, ns)
        {
            return Err(why(*ns, Denied::Key(key)));
        }
        let mut denied = None;
        if let (Some(channels), false) = (asked.channels, self.all_channels) {
            channels(&mut |channel, is_pattern| {
                if denied.is_none() && !self.allows_channel(channel, is_pattern, ns) {
                    denied = Some(why(*ns, Denied::Channel(channel)));
                }
            });
        }
        denied.map_or(Ok(()), Err)
    }

    /// Returns whether the command is allowed whatever its arguments are.
    #[inline]
    pub fn allow_command(&self, command: CommandId) -> bool {
        self.commands.has(command)
    }

    /// Returns whether the command is allowed, by itself or with this first argument.
    fn allows(&self, asked: &Asked<'_, '_>) -> bool {
        self.allow_command(asked.command)
            || asked.first.is_some_and(|first| {
                let mut allowed = self.first_args.iter().filter(|(id, _)| *id == asked.command);
                allowed.any(|(_, word)| word.eq_ignore_ascii_case(first))
            })
    }

    /// Finds the first key that may not be used so. Adds the time to `ns`.
    fn find_denied<'a>(&self, keys: &AskedKeys<'_, 'a>, ns: &mut u64) -> Option<&'a [u8]> {
        if let AskedKeys::Words { words, step, need } = *keys
            && let Some(sieve) = self.sieve(need, words.len(), *ns)
        {
            return sieve.find_other(words, step, ns);
        }
        keys.find(|key, need| !self.allows_key(key, need, ns))
    }

    /// A sieve for so many words with this need. `None` if it does not pay, or if the comparisons might take too long after
    /// `ns`.
    pub(super) fn sieve(&self, need: Need, words: usize, ns: u64) -> Option<Sieve<'_>> {
        let globs = self.keys.len();
        let most_ns = words as u64 * globs as u64 * COMPARE_NS;
        if words < WORDS_MIN || globs > GLOBS_MAX || ns.saturating_add(most_ns) > CHECK_NS_MAX {
            return None;
        }
        Sieve::of(self.keys.iter().filter(|keys| keys.may.covers(need)).map(|keys| &keys.glob))
    }

    /// Returns whether a key may be used so. False, too, once `ns` says that comparisons have taken too long.
    #[inline]
    pub fn allows_key(&self, key: &[u8], need: Need, ns: &mut u64) -> bool {
        key.len() <= KEY_BYTES_MAX
            && self.keys.iter().any(|keys| {
                keys.may.covers(need) && {
                    *ns += keys.glob.cost_ns(key.len());
                    *ns <= CHECK_NS_MAX && keys.glob.matches(key)
                }
            })
    }

    /// Returns whether every key may be used, whatever is done with it.
    pub fn allow_all_keys(&self) -> bool {
        self.all_keys
    }

    /// Number of patterns of keys; `None` if one is no prefix.
    pub fn prefixes(&self) -> Option<usize> {
        self.keys.iter().all(|keys| keys.glob.is_prefix()).then_some(self.keys.len())
    }

    /// The first prefix of no more than eight bytes, and what may be done with its keys.
    pub fn short_prefix(&self) -> Option<(Head, Need)> {
        self.keys.iter().find_map(|keys| Some((keys.glob.head()?, keys.may)))
    }

    /// Returns whether a prefix allows a key to be used so. It says what [`Rules::allows_key`] says, for patterns that are few
    /// and all prefixes.
    #[inline(never)]
    pub fn allow_by_prefix(&self, key: &[u8], need: Need) -> bool {
        key.len() <= KEY_BYTES_MAX
            && self.keys.iter().any(|keys| keys.may.covers(need) && keys.glob.is_prefix_of(key))
    }

    /// Returns whether a channel may be published to and subscribed to. A pattern has to be one of theirs, letter by letter.
    /// False, too, once `ns` says that comparisons have taken too long.
    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool, ns: &mut u64) -> bool {
        self.all_channels
            || channel.len() <= CHANNEL_BYTES_MAX
                && self.channels.iter().any(|glob| {
                    *ns += if is_pattern { COMPARE_NS } else { glob.cost_ns(channel.len()) };
                    *ns <= CHECK_NS_MAX
                        && if is_pattern { glob.text() == channel } else { glob.matches(channel) }
                })
    }

    /// Returns whether the others allow all channels, or the same patterns as these: then every channel of these is one of
    /// theirs.
    pub fn hear_no_more_than(&self, others: &Rules) -> bool {
        others.all_channels || !self.all_channels && self.channels == others.channels
    }

    /// Returns whether every key may be used so.
    pub fn allow_every_key(&self, need: Need) -> bool {
        self.all_keys || self.keys.iter().any(|keys| keys.may.covers(need) && keys.glob.is_star())
    }

    /// The words on commands, as they are printed.
    pub fn print_commands(&self) -> Vec<u8> {
        let all: &[u8] = if self.begins_with_all { b"+@all" } else { b"-@all" };
        let words = std::iter::once(all).chain(self.words.iter().map(|word| &**word));
        words.collect::<Vec<_>>().join(&b' ')
    }

    /// The words on keys, as they are printed.
    pub fn print_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let word = |keys: &Keys| {
            let before: &[u8] = match keys.may {
                Need::READ => b"%R~",
                Need::WRITE => b"%W~",
                _ => b"~",
            };
            [before, keys.glob.text()].concat()
        };
        self.keys.iter().map(word).collect::<Vec<_>>().join(&b' ')
    }

    /// The words on channels, as they are printed.
    pub fn print_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let words = self.channels.iter().map(|glob| [b"&", glob.text()].concat());
        words.collect::<Vec<_>>().join(&b' ')
    }

    /// All rules, as words that make the same rules.
    pub fn print(&self) -> Vec<u8> {
        let reset: &[u8] = if self.all_channels { b"" } else { b"resetchannels" };
        let (keys, channels, commands) = (self.print_keys(), self.print_channels(), self.print_commands());
        let words = [&keys[..], reset, &channels, &commands];
        words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(&b' ')
    }
}
