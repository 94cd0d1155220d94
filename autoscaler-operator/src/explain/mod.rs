//! `explain`: why a pod waits, why a node stays or goes, why a pool has as many nodes as it has; for people and as JSON.
//!
//! The answers are read off plans of the cluster as it is, and off plans of the cluster with the one thing changed that the
//! question is about. Nothing is decided here and nothing is written.

mod advice;
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
use crate::simulate::edits::EditArgs;
use crate::simulate::input::Input;
use crate::simulate::source::SourceArgs;
use crate::simulate::{self, EditError, Said, SourceError};

/// What `explain` takes.
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

/// What can be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Why it waits, and what each pool says to it
    #[value(aliases = ["pods", "po"])]
    Pod,
    /// Whether it could go, and where its pods would
    #[value(aliases = ["nodes", "no"])]
    Node,
    /// Why it has as many nodes as it has
    #[value(aliases = ["pools", "nodepool", "nodepools", "npool"])]
    Pool,
}

/// How an explanation is printed.
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
    /// The objects cannot be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The change that the question is about cannot be made.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// Nothing has the name.
    #[error("there is no {kind} {name}{hint}")]
    NoSuch {
        /// Kind of object.
        kind: &'static str,
        /// The name.
        name: String,
        /// What was probably meant.
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
    /// Standard output is full or gone.
    #[error("cannot write the explanation")]
    Output(#[source] io::Error),
}

/// Explains and prints. `now` is the time to use where the flags name none.
pub async fn run(args: &ExplainArgs, now: Timestamp) -> Result<(), ExplainError> {
    let mut source = args.source.clone();
    source.live |= source.files.is_empty();
    let input = source.read(now).await?;
    let (text, said) = explained(input, args.kind, &args.name, args.output)?;
    said.print();
    simulate::print(&text).map_err(ExplainError::Output)
}

fn explained(input: Input, kind: Kind, name: &str, format: Format) -> Result<(String, Said), ExplainError> {
    let (observed, mut said) = simulate::prepared(input, &EditArgs::default())?;
    let picture = Picture::of(&observed);
    said.warnings.extend(picture.plan.warnings.iter().cloned());
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
    Ok((text, said))
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
