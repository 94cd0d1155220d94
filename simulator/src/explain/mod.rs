//! `explain`: why a pod is pending, why a node stays or is removed, why a pool has its number of nodes; as text and as
//! JSON.
//!
//! The answers are read from plans of the current cluster, and from plans of the cluster with the one change that the
//! question is about. What the `NodePool` operator does with a node is quoted from what it has written. Nothing is decided here and
//! nothing is written.

mod advice;
mod lifecycle;
mod node;
mod picture;
mod pod;
mod pool;

#[cfg(test)]
mod tests;

use std::io;

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use self::picture::Picture;
use crate::edits::{EditArgs, EditError};
use crate::input::Input;
use crate::input::source::{SourceArgs, SourceError};
use crate::prepared::{Messages, prepared, print};

/// The arguments of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// What kind of object
    #[arg(value_enum, value_name = "KIND")]
    kind: Kind,

    /// Which one: NAME, or NAMESPACE/NAME of pods and pools
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    source: SourceArgs,

    /// How to print
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    output: Format,
}

/// The kinds that can be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Why it waits, and the answer of each pool
    #[value(aliases = ["pods", "po"])]
    Pod,
    /// Whether it could be removed, and where its pods would go
    #[value(aliases = ["nodes", "no"])]
    Node,
    /// Why it has as many nodes as it has
    #[value(aliases = ["pools", "nodepool", "nodepools", "npool"])]
    Pool,
}

/// The format of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Sentences and tables
    Text,
    /// One JSON object
    Json,
}

/// Why nothing could be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The objects cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The change that the question is about cannot be made.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// No object has the name.
    #[error("there is no {kind} {name}{hint}")]
    NoSuch {
        /// Kind of the object.
        kind: &'static str,
        /// The name in the question.
        name: String,
        /// The nearest known name; empty when none is near.
        hint: String,
    },
    /// Objects of several namespaces have the name.
    #[error("there are several: {known}; name the namespace too")]
    Several {
        /// All of them.
        known: String,
    },
    /// The explanation cannot be written as JSON.
    #[error("cannot write the explanation as JSON")]
    Json(#[from] serde_json::Error),
    /// Standard output is full or closed.
    #[error("cannot write the explanation")]
    Output(#[source] io::Error),
}

/// Explains and prints. `now` is the time to use where the flags name none.
pub async fn run(args: &ExplainArgs, now: Timestamp) -> Result<(), ExplainError> {
    let mut source = args.source.clone();
    source.live |= source.files.is_empty();
    let input = source.read(now).await?;
    let (text, messages) = explained(input, args.kind, &args.name, args.output)?;
    messages.print();
    print(&text).map_err(ExplainError::Output)
}

fn explained(
    input: Input,
    kind: Kind,
    name: &str,
    format: Format,
) -> Result<(String, Messages), ExplainError> {
    let (observed, mut messages) = prepared(input, &EditArgs::default())?;
    let picture = Picture::of(&observed);
    messages.warnings.extend(picture.plan.warnings.iter().cloned());
    let text = match kind {
        Kind::Pod => {
            let facts = pod::explain(&picture, name)?;
            written(&facts, format, pod::text)?
        }
        Kind::Node => {
            let facts = node::explain(&picture, name)?;
            written(&facts, format, node::text)?
        }
        Kind::Pool => {
            let facts = pool::explain(&picture, name)?;
            written(&facts, format, pool::text)?
        }
    };
    Ok((text, messages))
}

fn written<F: Serialize>(
    facts: &F,
    format: Format,
    text: impl Fn(&F) -> String,
) -> Result<String, ExplainError> {
    Ok(match format {
        Format::Text => text(facts),
        Format::Json => serde_json::to_string_pretty(facts)? + "\n",
    })
}
