//! Conversions between numbers of nodes here and in the API.

/// Maximum number of nodes of a pool: the schema's `maximum` of `spec.replicas`. Objects from files were not validated
/// against the schema.
const MOST_NODES: usize = 100_000;

/// A number of nodes; negative ones become zero, and those above the schema's maximum become the maximum.
pub(crate) fn count(replicas: i32) -> usize {
    usize::try_from(replicas).unwrap_or(0).min(MOST_NODES)
}

/// A number of nodes in the API's type.
pub fn replicas(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
