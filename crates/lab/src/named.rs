//! Options whose values have names.

/// The one of `all` that has this name.
///
/// # Errors
/// The names that there are, if none is this.
pub(crate) fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|&one| name(one) == text);
    found.ok_or_else(|| {
        format!("expected one of {}", all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(", "))
    })
}
