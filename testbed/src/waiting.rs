//! Says when a test waits for its share of the machine, and when a long one has done another part: see [`Announcement`].

use std::path::Path;

use toolbox::announcement::Announcement;

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

/// The current test works on the control plane with its files in `directory`.
pub(crate) fn uses(directory: &Path) {
    Announcement::say(|test| Announcement::Uses(test, directory.to_owned()));
}
