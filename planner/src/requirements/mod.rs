//! What one pod requires of a node, and whether a node satisfies it.

pub mod constraints;
pub mod node_profile;
pub mod places;
pub mod pod_class;
pub mod predicates;
pub mod requests;
#[cfg(test)]
mod requests_tests;
pub mod selectors;
