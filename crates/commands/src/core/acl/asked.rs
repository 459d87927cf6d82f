//! A request, in the form that rules are compared with.
//!
//! Keys come in one of few forms, so that the usual ones are compared in a loop: a call through `dyn` for each key of an `MGET`,
//! one behind the other through three closures, took 216 instructions a key.

use larder_protocol::resp::Args;

use super::catalog::CommandId;
use super::pattern::Need;

/// Calls its argument with each of some names, and something about it.
pub(crate) type EachOf<'v, 'a, T> = dyn Fn(&mut dyn FnMut(&'a [u8], T)) + 'v;

/// A request, as rules see it.
pub(crate) struct Asked<'v, 'a> {
    pub command: CommandId,
    /// Whether every client may send the command, logged in or not.
    pub is_free: bool,
    /// The word behind the command's name.
    pub first: Option<&'a [u8]>,
    pub keys: AskedKeys<'v, 'a>,
    /// Calls its argument with each channel, and whether that is a pattern; none: the command has no channels.
    pub channels: Option<&'v EachOf<'v, 'a, bool>>,
}

/// The keys that a request names, and what is done with each.
#[derive(Clone, Copy)]
pub(crate) enum AskedKeys<'v, 'a> {
    /// None.
    None,
    /// One.
    One(&'a [u8], Need),
    /// Each `step`-th of these words, from the first on. `step` is at least 1.
    Words { words: Args<'a>, step: usize, need: Need },
    /// A function calls its argument with each of them.
    Each(&'v EachOf<'v, 'a, Need>),
}

impl<'a> AskedKeys<'_, 'a> {
    /// Finds the first key of which `is_so` is true. It looks at no key behind that.
    #[inline]
    pub fn find(&self, mut is_so: impl FnMut(&'a [u8], Need) -> bool) -> Option<&'a [u8]> {
        match *self {
            AskedKeys::None => None,
            AskedKeys::One(key, need) => is_so(key, need).then_some(key),
            AskedKeys::Words { words, step, need } => find_word(words, step, |key| is_so(key, need)),
            AskedKeys::Each(each) => {
                let mut found = None;
                each(&mut |key, need| {
                    if found.is_none() && is_so(key, need) {
                        found = Some(key);
                    }
                });
                found
            }
        }
    }
}

/// Finds the first word of which `is_so` is true, among each `step`-th of these.
#[inline(always)]
pub(super) fn find_word<'a>(
    mut words: Args<'a>,
    step: usize,
    mut is_so: impl FnMut(&'a [u8]) -> bool,
) -> Option<&'a [u8]> {
    while let Some(word) = words.next() {
        if is_so(word) {
            return Some(word);
        }
        if step > 1 {
            words.nth(step - 2);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_protocol::resp::Encoder;

    #[test]
    fn each_form_of_keys_has_the_same_first_one() {
        let mut words = Encoder::default();
        ["a", "1", "b", "2", "c"].iter().for_each(|word| words.push(word.as_bytes()));
        let each = |visit: &mut dyn FnMut(&'static [u8], Need)| {
            for key in [&b"a"[..], b"b", b"c"] {
                visit(key, Need::READ);
            }
        };
        let pairs = AskedKeys::Words { words: words.args(), step: 2, need: Need::READ };
        for (wanted, looks) in [(&b"a"[..], 1), (b"b", 2), (b"c", 3), (b"1", 3)] {
            let expected = (wanted != b"1").then_some(wanted);
            let mut looked = 0;
            let mut is = |key: &[u8], need: Need| {
                looked += 1;
                assert_eq!(need, Need::READ);
                key == wanted
            };
            assert_eq!(AskedKeys::Each(&each).find(&mut is), expected);
            assert_eq!(pairs.find(&mut is), expected);
            assert_eq!(looked, 2 * looks, "none behind it is looked at");
        }
        let all = AskedKeys::Words { words: words.args(), step: 1, need: Need::READ };
        assert_eq!(all.find(|key, _| key == b"2"), Some(&b"2"[..]));
        assert_eq!(AskedKeys::One(b"a", Need::WRITE).find(|_, need| need == Need::WRITE), Some(&b"a"[..]));
        assert_eq!(AskedKeys::None.find(|_, _| true), None);
    }
}
