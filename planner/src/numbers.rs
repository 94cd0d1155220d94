//! Numbers of nodes, here and as the API has them.

/// Most nodes a pool can have: the schema's `maximum` of `spec.replicas`. Objects from files have passed no schema.
const MOST_NODES: usize = 100_000;

/// A number of nodes; one below zero is none, and none is above what the schema lets through.
pub fn count(replicas: i32) -> usize {
    usize::try_from(replicas).unwrap_or(0).min(MOST_NODES)
}

/// A number of nodes as the API has it.
pub fn replicas(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
