//! `simulate`: what the Autoscaler would decide about the objects of some files or of a live cluster, also after
//! what-if changes.
//!
//! Reads and prints; the decision is [`planner`]'s, the same that runs in the cluster.

mod output;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};

use clap::{ArgGroup, Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use planner::plan;
use serde_json::Error as JsonError;

use crate::edits::{EditArgs, EditError};
use crate::input::Input;
use crate::input::source::{SourceArgs, SourceError};
use crate::prepared::{Messages, prepared, print};

/// The arguments of `simulate`.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("source").args(["files", "live"]).required(true).multiple(true)))]
pub struct SimulateArgs {
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
pub(crate) enum Format {
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
pub async fn run(args: &SimulateArgs, now: Timestamp) -> Result<(), SimulateError> {
    let input = args.source.read(now).await?;
    let format = args.output.unwrap_or(if io::stdout().is_terminal() { Format::Table } else { Format::Json });
    let (printed, messages) = simulated(input, &args.edits, format)?;
    // Before the plan, so that a pager or a `head` on the plan does not hide them.
    messages.print();
    print(&printed).map_err(SimulateError::Output)
}

pub(crate) fn simulated(
    input: Input,
    edits: &EditArgs,
    format: Format,
) -> Result<(String, Messages), SimulateError> {
    let (observed, mut messages) = prepared(input, edits)?;
    let plan = plan(&observed);
    messages.warnings.extend(plan.warnings.iter().cloned());
    let printed = match format {
        Format::Json => serde_json::to_string_pretty(&output::Report::of(&plan))? + "\n",
        Format::Table => output::table(&plan),
    };
    Ok((printed, messages))
}
