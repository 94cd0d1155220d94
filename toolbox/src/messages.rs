//! Messages for people who wait.

use std::io::Write as _;

/// Prints a message immediately, also from inside a test, whose `println!` would be held back until it fails.
pub fn inform(message: &str) {
    // A closed standard error cannot be handled.
    writeln!(std::io::stderr(), "{message}").ok();
}
