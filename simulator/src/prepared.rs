//! The input of a plan after the what-if changes, and what is printed besides the answer.

use std::io::{self, Write as _};

use planner::Observed;

use crate::edits::{self, EditArgs, EditError};
use crate::input::Input;
use crate::{priorities, warnings};

/// Messages in addition to the answer, on standard error.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// The changes that were made.
    pub(crate) notes: Vec<String>,
    /// What was left out of the plan.
    pub(crate) warnings: Vec<String>,
}

impl Messages {
    pub(crate) fn print(&self) {
        self.notes.iter().for_each(|note| eprintln!("note: {note}"));
        self.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    }
}

/// The input of the plan, after the changes.
pub(crate) fn prepared(input: Input, edits: &EditArgs) -> Result<(Observed, Messages), EditError> {
    let Input { mut observed, priority_classes, mut warnings } = input;
    let notes = edits::apply(edits, &mut observed)?;
    warnings.extend(priorities::resolve(&mut observed.pods, &priority_classes));
    priorities::resolve_templates(&mut observed.daemon_sets, &priority_classes);
    warnings.extend(warnings::about_pods(&observed));
    Ok((observed, Messages { notes, warnings }))
}

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has closed the pipe.
        Err(broken) if broken.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
