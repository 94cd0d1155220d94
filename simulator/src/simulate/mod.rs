//! `simulate`: what the Autoscaler would decide about the objects of some files or of a live cluster, also after
//! what-if changes.
//!
//! Reads and prints; the decision is [`planner`]'s, the same that runs in the cluster.

pub(crate) mod edits;
pub(crate) mod input;
mod live;
pub(crate) mod nearest;
pub(crate) mod output;
mod priorities;
pub(crate) mod source;
pub(crate) mod standing;
mod warnings;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _, Write};

use clap::{ArgGroup, Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use serde_json::Error as JsonError;

pub(crate) use edits::EditError;
pub(crate) use source::SourceError;

use planner::{Observed, plan};

use self::edits::EditArgs;
use self::input::Input;
use self::source::SourceArgs;

/// Number of objects that a message names; the rest is counted.
const MOST_NAMED: usize = 10;

/// The arguments of `simulate`.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("source").args(["files", "live"]).required(true).multiple(true)))]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    edits: EditArgs,

    /// How to print; without it, a table on a terminal and JSON elsewhere
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

/// The format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One JSON object with `pools`, `pods` and `nodes`
    Json,
    /// Tables for people
    Table,
}

/// Why the simulation failed.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The objects cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A change cannot be made.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The plan cannot be written as JSON.
    #[error("cannot write the plan as JSON")]
    Json(#[from] JsonError),
    /// Standard output is full or closed.
    #[error("cannot write the plan")]
    Output(#[source] io::Error),
}

/// Plans and prints. `now` is the time to use where the flags name none.
pub(crate) async fn run(args: &SimulateArgs, now: Timestamp) -> Result<(), SimulateError> {
    let input = args.source.read(now).await?;
    let format = args.output.unwrap_or(if io::stdout().is_terminal() { Format::Table } else { Format::Json });
    let (printed, said) = simulated(input, &args.edits, format)?;
    // Before the plan, so that a pager or a `head` on the plan does not hide them.
    said.print();
    print(&printed).map_err(SimulateError::Output)
}

/// Messages in addition to the answer, on standard error.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The changes that were made.
    pub(crate) notes: Vec<String>,
    /// What was left out of the plan.
    pub(crate) warnings: Vec<String>,
}

impl Said {
    pub(crate) fn print(&self) {
        self.notes.iter().for_each(|note| eprintln!("note: {note}"));
        self.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    }
}

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has closed the pipe.
        Err(broken) if broken.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// The input of the plan, after the changes.
pub(crate) fn prepared(input: Input, edits: &EditArgs) -> Result<(Observed, Said), EditError> {
    let Input { mut observed, priority_classes, mut warnings } = input;
    let notes = edits::apply(edits, &mut observed)?;
    warnings.extend(priorities::resolve(&mut observed.pods, &priority_classes));
    warnings.extend(warnings::about_pods(&observed.pods));
    Ok((observed, Said { notes, warnings }))
}

fn simulated(input: Input, edits: &EditArgs, format: Format) -> Result<(String, Said), SimulateError> {
    let (observed, mut said) = prepared(input, edits)?;
    let plan = plan(&observed);
    said.warnings.extend(plan.warnings.iter().cloned());
    let printed = match format {
        Format::Json => serde_json::to_string_pretty(&output::Report::of(&plan))? + "\n",
        Format::Table => output::table(&plan),
    };
    Ok((printed, said))
}

/// The first names, and how many more there are.
pub(crate) fn named(names: &[String]) -> String {
    let first = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
