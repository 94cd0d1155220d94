//! `simulate`: what the Autoscaler would decide about the objects in some files, without a cluster.
//!
//! Reads files and prints; the decision is [`crate::plan`]'s, the same that runs in the cluster.

mod input;
mod output;

#[cfg(test)]
mod tests;

use std::{
    io::{self, IsTerminal as _, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use serde_json::Error as JsonError;

pub use input::InputError;
use input::Objects;

use crate::plan::{Recommendations, plan, pods, unplanned};

/// Pods that a warning names before it only counts.
const NAMED_PODS: usize = 10;

/// What `simulate` takes.
#[derive(Args, Clone, Debug)]
pub struct SimulateArgs {
    /// Objects to plan from: YAML or JSON, one or many documents, or a List as `kubectl get -o yaml` prints it; `-` is
    /// standard input. Give it as often as you like
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The time to plan at (RFC 3339); without it, the time it is
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,

    /// How to print; without it, a table on a terminal and JSON elsewhere
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

/// How a plan is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One JSON object with `pools`, `pods` and `nodes`
    Json,
    /// Tables for people
    Table,
}

/// Why nothing could be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A file cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The plan cannot be written as JSON.
    #[error("cannot write the plan as JSON")]
    Json(#[from] JsonError),
    /// Standard output is full or gone.
    #[error("cannot write the plan")]
    Output(#[source] io::Error),
}

/// Plans and prints. `now` is the time to use where the flags name none.
pub fn run(args: &SimulateArgs, now: Timestamp) -> Result<(), SimulateError> {
    let objects = input::read(&args.files)?;
    let format = args.output.unwrap_or(if io::stdout().is_terminal() { Format::Table } else { Format::Json });
    let mut printed = Vec::new();
    let warnings = print(objects, args.now.unwrap_or(now), format, &mut printed)?;
    // Before the plan, so that a pager or a `head` on the plan does not hide them.
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    match io::stdout().lock().write_all(&printed) {
        // Whoever reads has seen enough.
        Err(broken) if broken.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(SimulateError::Output),
    }
}

/// Writes the plan for `objects` to `out` and gives back what has to be said about it.
fn print(
    objects: Objects,
    now: Timestamp,
    format: Format,
    out: &mut impl Write,
) -> Result<Vec<String>, SimulateError> {
    let Objects { mut observed, mut warnings } = objects;
    observed.now = now;
    observed.recommendations = Recommendations::Include;
    warnings.extend(unplanned_constraints(&observed.pods));
    let plan = plan(&observed);
    warnings.extend(plan.warnings.iter().cloned());
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &output::Report::of(&plan))?;
            writeln!(out).map_err(SimulateError::Output)?;
        }
        Format::Table => out.write_all(output::table(&plan).as_bytes()).map_err(SimulateError::Output)?,
    }
    Ok(warnings)
}

/// One line for each constraint of pending pods that this version does not plan with.
fn unplanned_constraints(all_pods: &[std::sync::Arc<k8s_openapi::api::core::v1::Pod>]) -> Vec<String> {
    let mut pods_by_constraint = std::collections::BTreeMap::<&str, Vec<String>>::new();
    for pod in all_pods.iter().filter(|pod| pods::is_pending(pod)) {
        let (namespace, name) = crate::plan::observed::key(&pod.metadata);
        for constraint in unplanned::constraints(pod) {
            pods_by_constraint.entry(constraint).or_default().push(format!("{namespace}/{name}"));
        }
    }
    let line = |(constraint, pods): (&str, Vec<String>)| {
        let named = pods.iter().take(NAMED_PODS).cloned().collect::<Vec<_>>().join(", ");
        let more = pods.len().saturating_sub(NAMED_PODS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("this version does not plan with {constraint}; planned as if they had none: {named}{more}")
    };
    pods_by_constraint.into_iter().map(line).collect()
}
