//! What one pod asks of a node, and whether a node has it.

pub mod constraints;
pub mod node_profile;
pub mod pod_class;
pub mod predicates;
pub mod requests;
pub mod selectors;
