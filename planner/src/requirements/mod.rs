//! What one pod requires of a node, and whether a node satisfies it.

pub(crate) mod constraints;
pub(crate) mod node_profile;
pub(crate) mod pod_class;
pub(crate) mod predicates;
pub(crate) mod requests;
#[cfg(test)]
mod requests_tests;
pub(crate) mod selectors;
