//! What-if changes to the objects before planning, as flags and as functions. A change reports what it did.

mod nodes;
mod pods;
mod pools;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

pub(crate) use nodes::{keep_without, remove_node};
pub(crate) use pools::find_pool;

use planner::Observed;

use crate::input::InputError;

/// Maximum number of pods that one flag adds: more than the clusters that Kubernetes is tested with have room for in a
/// pass.
const MOST_PODS: u32 = 100_000;

/// The what-if flags.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "What if")]
pub(crate) struct EditArgs {
    /// As if this node were gone: pods with a controller become pending. Can be repeated
    #[arg(long, value_name = "NODE")]
    pub(super) remove_node: Vec<String>,

    /// As if these pods were pending: a Pod, or anything with a pod template (a Deployment, a Job, …)
    #[arg(long, value_name = "FILE")]
    pub(super) add_pods: Vec<PathBuf>,

    /// How many pods of each that --add-pods names; without it, as many as it has replicas
    #[arg(long, value_name = "N", requires = "add_pods", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PODS)))]
    pub(super) count: Option<u32>,

    /// As if this pool had been scaled. Can be repeated
    #[arg(long, value_name = "[NAMESPACE/]POOL=REPLICAS")]
    pub(super) pool: Vec<PoolEdit>,
}

/// A pool and the replicas it is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolEdit {
    pub(super) pool: String,
    pub(super) replicas: i32,
}

impl FromStr for PoolEdit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = "write [namespace/]pool=replicas, such as demo/small=3";
        let (pool, replicas) = text.split_once('=').ok_or(form)?;
        if pool.is_empty() || pool.split('/').count() > 2 || pool.split('/').any(str::is_empty) {
            return Err(form.to_owned());
        }
        let replicas: i32 =
            replicas.parse().map_err(|_| format!("{replicas:?} is not a number of nodes; {form}"))?;
        if replicas < 0 {
            return Err(format!("replicas cannot be below zero, and {replicas} is"));
        }
        Ok(Self { pool: pool.to_owned(), replicas })
    }
}

/// A change that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// No node has the name.
    #[error("--remove-node {name}: there is no such node{hint}")]
    NoNode {
        /// The name in the flag.
        name: String,
        /// The nearest known name; empty when none is near.
        hint: String,
    },
    /// No pool has the name.
    #[error("--pool {name}: there is no such NodePool{hint}")]
    NoPool {
        /// The name in the flag.
        name: String,
        /// The nearest known name; empty when none is near.
        hint: String,
    },
    /// Pools of several namespaces have the name.
    #[error("--pool {name}: there are several: {known}; name the namespace too")]
    ManyPools {
        /// The name in the flag.
        name: String,
        /// All of them.
        known: String,
    },
    /// The API server would refuse the replicas.
    #[error("--pool {pool}={replicas}: the API server would refuse it, {bound}")]
    OutOfBounds {
        /// The pool.
        pool: String,
        /// The requested replicas.
        replicas: i32,
        /// The violated bound.
        bound: String,
    },
    /// A file cannot be read.
    #[error("--add-pods {0}")]
    Input(#[source] InputError),
    /// A file has no object that makes pods.
    #[error("--add-pods {file}: {problem}")]
    NoPods {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// Makes all changes, nodes first and pods last, and returns what they did.
pub(crate) fn apply(edits: &EditArgs, observed: &mut Observed) -> Result<Vec<String>, EditError> {
    let mut notes = Vec::new();
    for name in &edits.remove_node {
        notes.extend(remove_node(observed, name)?.notes());
    }
    for edit in &edits.pool {
        notes.push(pools::set_replicas(observed, edit)?);
    }
    for file in &edits.add_pods {
        notes.extend(pods::add(observed, file, edits.count)?);
    }
    Ok(notes)
}
