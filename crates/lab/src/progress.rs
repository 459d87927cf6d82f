//! The bar that says how far an experiment is. It goes to stderr, and nowhere if that is no terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Progress of an experiment in steps that take about the same time each.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of `steps`.
    pub fn new(steps: u64) -> Progress {
        let bar = ProgressBar::new(steps);
        let form = "{msg:<40!} {bar:30} {pos}/{len}, {eta} left";
        bar.set_style(ProgressStyle::with_template(form).expect("the form is right"));
        Progress(bar)
    }

    /// What is being done.
    pub fn say(&self, what: impl Into<String>) {
        let what: String = what.into();
        self.0.set_message(what);
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
