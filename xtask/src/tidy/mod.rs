//! `cargo xtask tidy`: what no compiler checks, about the tree as it is.

pub fn tidy(_write: bool) -> crate::run::Outcome {
    Ok(())
}
