//! Options whose values have names.

/// The one of `all` that has this name.
///
/// # Errors
/// There is none: the names that there are.
pub(crate) fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|&one| name(one) == text);
    found.ok_or_else(|| {
        format!("expected one of {}", all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(", "))
    })
}
