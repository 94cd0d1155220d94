//! The oracle for "no write is lost": in the history of one object, every write that named its base version must follow
//! exactly that version.

use std::fmt;

use anyhow::{Result, bail};

use crate::audit::{Event, ObjectKey};
use crate::history;
use crate::history::{Effect, LoggedWrite};

/// A break in the chain of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Break {
    /// A write was granted although another one had been stored since its base version: the other write is lost.
    Fork {
        /// The writer and the subresource it wrote through.
        writer: String,
        /// The version the write was based on.
        base: u64,
        /// The version that really came before.
        predecessor: u64,
        /// The version it created.
        version: u64,
    },
    /// A write is based on a version that no write in the log created: the log is incomplete.
    Missing {
        /// The version that no write in the log created.
        base: u64,
        /// The last version in the log before it.
        predecessor: u64,
    },
}

impl fmt::Display for Break {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fork { writer, base, predecessor, version } => write!(
                formatter,
                "{writer} made version {version} from {base}, which loses what made {predecessor}"
            ),
            Self::Missing { base, predecessor } => {
                write!(formatter, "the log has no write that made version {base} after {predecessor}")
            }
        }
    }
}

/// The chain of versions of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostUpdateCheck {
    /// Number of writes that created a version.
    pub versions: usize,
    /// Number of those writes that named their base version, and were checked.
    pub checked: usize,
    /// Whole-object writes without a base version: the last one wins, whatever it overwrites.
    pub unconditional: Vec<String>,
    /// The breaks of the chain.
    pub breaks: Vec<Break>,
}

impl LostUpdateCheck {
    /// Checks the writes to `object` in `events`, which must contain all of them.
    pub fn of(events: &[Event], object: &ObjectKey) -> Self {
        let mut chain = Self { versions: 0, checked: 0, unconditional: Vec::new(), breaks: Vec::new() };
        let mut predecessor = None;
        for LoggedWrite { event, version, effect } in history::of_object(events, object) {
            let Effect::Moved { .. } = effect else { continue };
            let base = event.base_version().and_then(|base| base.parse::<u64>().ok());
            chain.versions += 1;
            match (base, predecessor) {
                (None, _) if event.verb == "update" => {
                    chain.unconditional.push(format!("{} made version {version}", name(event)));
                }
                (Some(base), Some(predecessor)) => {
                    chain.checked += 1;
                    if base < predecessor {
                        chain.breaks.push(Break::Fork { writer: name(event), base, predecessor, version });
                    } else if base > predecessor {
                        chain.breaks.push(Break::Missing { base, predecessor });
                    }
                }
                (None | Some(_), _) => {}
            }
            predecessor = Some(version);
        }
        chain
    }

    /// Checks that no write was lost, and that there was something to check.
    ///
    /// # Errors
    /// Names every break and every unconditional write, or reports that there was nothing to check.
    pub fn check_unbroken(&self) -> Result<()> {
        if self.versions == 0 {
            bail!("the log holds no write to the object, so nothing was checked");
        }
        let faults: Vec<String> =
            self.breaks.iter().map(ToString::to_string).chain(self.unconditional.iter().cloned()).collect();
        if !faults.is_empty() {
            bail!("{} of {} versions are suspect:\n{}", faults.len(), self.versions, faults.join("\n"));
        }
        Ok(())
    }
}

fn name(event: &Event) -> String {
    match event.subresource.as_str() {
        "" => event.writer().to_owned(),
        subresource => format!("{} (/{subresource})", event.writer()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::audit::tests::Wrote;

    fn put(user: &str, base: &str, version: &str, at: i64) -> Event {
        let request = json!({"metadata": {"resourceVersion": base}});
        let response = json!({"metadata": {"resourceVersion": version, "generation": 1}});
        Wrote { user, verb: "update", subresource: "status", request, code: 200, response, at }.event()
    }

    fn create(version: &str) -> Event {
        let response = json!({"metadata": {"resourceVersion": version, "generation": 1}});
        Wrote {
            user: "admin",
            verb: "create",
            subresource: "",
            request: Value::Null,
            code: 201,
            response,
            at: 0,
        }
        .event()
    }

    fn chain(events: &[Event]) -> LostUpdateCheck {
        LostUpdateCheck::of(events, &ObjectKey::node_pool("default", "pool"))
    }

    #[test]
    fn an_unbroken_chain_passes_whatever_order_it_was_logged_in() {
        let found = chain(&[put("b", "12", "15", 2), create("10"), put("a", "10", "12", 1)]);
        assert_eq!((found.versions, found.checked), (3, 2));
        found.check_unbroken().unwrap();
    }

    #[test]
    fn a_forged_fork_is_reported_with_the_write_that_is_lost() {
        let found = chain(&[create("10"), put("a", "10", "12", 1), put("b", "10", "15", 2)]);
        let error = found.check_unbroken().unwrap_err().to_string();
        assert!(error.contains("b (/status) made version 15 from 10, which loses what made 12"), "{error}");
    }

    #[test]
    fn a_write_that_the_log_lacks_is_reported() {
        let found = chain(&[create("10"), put("a", "11", "12", 1)]);
        assert_eq!(found.breaks, [Break::Missing { base: 11, predecessor: 10 }]);
    }

    #[test]
    fn a_whole_object_write_without_a_base_is_reported() {
        let found = chain(&[create("10"), put("a", "", "12", 1)]);
        assert!(found.check_unbroken().unwrap_err().to_string().contains("a (/status) made version 12"));
    }

    #[test]
    fn a_write_that_changed_nothing_is_no_link_of_the_chain() {
        let found =
            chain(&[create("10"), put("a", "10", "12", 1), put("b", "12", "12", 2), put("a", "12", "13", 3)]);
        assert_eq!(found.versions, 3);
        found.check_unbroken().unwrap();
    }

    #[test]
    fn nothing_to_check_is_not_a_pass() {
        assert!(chain(&[]).check_unbroken().is_err());
    }
}
