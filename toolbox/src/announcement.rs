//! What a test tells the runner of all tests (`cargo suites`): when it waits for its share of the machine, when a long one has
//! done another part, and that it ends without having tested anything. The runner ends a test that takes too long, the time that it
//! waits for others is not its own, a test that gets on does not hang, and one that tested nothing has not passed.
//!
//! The lines go to standard error itself: what a test prints is kept back by its harness until it ends.

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The variable that asks for these lines; without it there are none.
pub const ANNOUNCE: &str = "TANDEM_ANNOUNCE_WAITS";

/// What each of these lines begins with.
const MARK: &str = "[tandem-wait] ";

/// What a test does, with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Announcement {
    /// It waits for its share of the machine from now on.
    Waits(String),
    /// It has what it waited for, or waits no longer.
    GoesOn(String),
    /// A part of its work is done, of which it has many.
    GetsOn(String),
    /// It works on the control plane whose files, logs among them, are in this directory.
    Uses(String, PathBuf),
    /// It passes without having tested anything, for this reason: this machine lacks what it needs.
    DoesNotRun(String, String),
}

impl Announcement {
    /// The test that it is about.
    pub fn test(&self) -> &str {
        let (Self::Waits(test)
        | Self::GoesOn(test)
        | Self::GetsOn(test)
        | Self::Uses(test, _)
        | Self::DoesNotRun(test, _)) = self;
        test
    }

    /// The announcement that `line` ends with, and what stands before it: another thread may have begun a line.
    pub fn split(line: &str) -> Option<(&str, Self)> {
        let (before, announcement) = line.split_once(MARK)?;
        Some((before, serde_json::from_str(announcement).ok()?))
    }

    /// Says it, if the runner asked for it. A thread that has not the name of a test has nothing to say.
    pub fn say(announce: impl FnOnce(String) -> Self) {
        if std::env::var_os(ANNOUNCE).is_none() {
            return;
        }
        if let Some(test) = std::thread::current().name() {
            let line = format!("{}\n", announce(test.to_owned()));
            // In one piece, so that no other line gets into it. A runner that is gone needs none.
            std::io::stderr().write_all(line.as_bytes()).ok();
        }
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        write!(formatter, "{MARK}{json}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_read_as_it_was_written_also_behind_the_begin_of_another_line() {
        for announcement in [
            Announcement::Waits("a::b".to_owned()),
            Announcement::GoesOn("src/lib.rs - a (line 3)".to_owned()),
            Announcement::GetsOn("a".to_owned()),
            Announcement::Uses("a\n\"b\"".to_owned(), PathBuf::from("/tmp/with space")),
            Announcement::DoesNotRun("a".to_owned(), "this is not root".to_owned()),
        ] {
            let line = announcement.to_string();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(Announcement::split(&line), Some(("", announcement.clone())));
            let behind = format!("test c ... {line}");
            assert_eq!(Announcement::split(&behind), Some(("test c ... ", announcement)));
        }
        assert_eq!(Announcement::split("test a ... ok"), None);
        assert_eq!(Announcement::split("[tandem-wait] hello"), None);
    }
}
