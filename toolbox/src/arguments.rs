//! The arguments of a task, as Cargo's aliases hand them on.

use std::ffi::OsString;

/// The arguments without the `--` that `cargo demo -- --flag` leaves between the task and its flags.
pub fn of_task(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = given.collect();
    if arguments.get(2).is_some_and(|argument| argument == "--") {
        arguments.remove(2);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_may_stand_behind_two_dashes_or_not() {
        for line in [&["xtask", "demo", "--", "--json"][..], &["xtask", "demo", "--json"]] {
            assert_eq!(of_task(line.iter().map(OsString::from)), ["xtask", "demo", "--json"]);
        }
    }
}
