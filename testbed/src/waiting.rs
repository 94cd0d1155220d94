//! Says when a test waits for its share of the machine, when a long one has done another part, and that one does not run: see
//! [`Announcement`].

use std::path::Path;

use toolbox::announcement::Announcement;
use toolbox::messages::inform;

/// The current test waits for others until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(());

impl Waiting {
    pub(crate) fn begin() -> Self {
        Announcement::say(Announcement::Waits);
        Self(())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        Announcement::say(Announcement::GoesOn);
    }
}

/// Waits for `turn`, which the current test shares with others, and announces that it waits meanwhile.
pub async fn for_others<T>(turn: impl Future<Output = T>) -> T {
    let _waiting = Waiting::begin();
    turn.await
}

/// The current test has done one of the many parts of its work, each of which is short against the limit of a test.
pub fn gets_on() {
    Announcement::say(Announcement::GetsOn);
}

/// The current test ends without having tested anything, because of `why`: `cargo suites` counts it among those that did not run.
pub fn does_not_run(why: &str) {
    let thread = std::thread::current();
    inform(&format!("NOT RUN: {}: {why}", thread.name().unwrap_or("a test")));
    Announcement::say(|test| Announcement::DoesNotRun(test, why.to_owned()));
}

/// The current test works on the control plane with its files in `directory`.
pub(crate) fn uses(directory: &Path) {
    Announcement::say(|test| Announcement::Uses(test, directory.to_owned()));
}
