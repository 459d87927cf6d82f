//! A key in doubt: what it may hold after unanswered operations, and what a reply shows it to hold.

use super::{Entry, Fault, Item, Token};
use crate::dialect::Dialect;
use crate::op::{Seen, Verb, short};
use crate::world::Span;

/// The state that a reply shows a key in doubt to have; `None` if the reply does not show it.
pub(super) fn resolve(
    options: Option<&[Option<Vec<u8>>]>,
    verb: &Verb,
    seen: &Seen,
    span: Span,
) -> Result<Option<Entry>, Fault> {
    match (verb, seen) {
        (Verb::Get, Seen::Value(value, _)) => {
            let mut options = options.into_iter().flatten().flatten().peekable();
            let known: Vec<String> = options.clone().map(|option| short(option)).collect();
            if options.peek().is_some() && !options.any(|option| option == value) {
                return Err(Fault::Wrong(format!("it was to hold one of {}", known.join(", "))));
            }
            let value = value.clone();
            let item = Item { value, flags: None, expires: None, token: Token::Unknown, span, loose: true };
            Ok(Some(Entry::Item(item)))
        }
        (Verb::Get, Seen::Nothing) => Ok(Some(Entry::Absent)),
        (Verb::Get, Seen::Strange(_)) => Err(Fault::Wrong("this is no answer to it".into())),
        _ => Ok(None),
    }
}

/// The value after an operation; `None` if there is none then.
pub(super) fn done(dialect: Dialect, verb: &Verb, value: Option<&[u8]>) -> Option<Vec<u8>> {
    let text = dialect != Dialect::Resp;
    match (verb, value) {
        (Verb::Set(new, _) | Verb::Swap(new), _) => Some(new.clone()),
        (Verb::Add(new, _), None) | (Verb::Replace(new, _) | Verb::Cas(new, _), Some(_)) => Some(new.clone()),
        (Verb::Append(more), None) if !text => Some(more.clone()),
        (Verb::Append(more), Some(value)) => Some([value, more].concat()),
        (Verb::Prepend(more), Some(value)) => Some([more, value].concat()),
        (Verb::Plus(by), None) if !text => Some(by.to_string().into_bytes()),
        (Verb::Plus(_) | Verb::Minus(_), Some(value)) => counted(value, verb, text),
        (Verb::Take | Verb::Delete, _) => None,
        (_, value) => value.map(<[u8]>::to_vec),
    }
}

/// A number after an addition or subtraction; memcached pads a number that gets shorter with spaces.
pub(super) fn counted(value: &[u8], verb: &Verb, text: bool) -> Option<Vec<u8>> {
    let number: u64 = std::str::from_utf8(value).ok()?.trim_end().parse().ok()?;
    let number = match verb {
        Verb::Plus(by) => number.wrapping_add(*by),
        Verb::Minus(by) => number.saturating_sub(*by),
        _ => return None,
    };
    let mut new = number.to_string().into_bytes();
    if text && new.len() < value.len() {
        new.resize(value.len(), b' ');
    }
    Some(new)
}

/// Describes where two values differ.
pub(super) fn differs(ours: &[u8], theirs: &[u8]) -> String {
    let at = ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
    let end = theirs.len().min(at + 40);
    format!("from byte {at} on it is {}", short(&theirs[at..end]))
}
