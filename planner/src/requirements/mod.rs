//! What one pod asks of a node, and whether a node has it.

pub mod constraints;
pub mod kinds;
pub mod predicates;
pub mod profile;
pub mod requests;
pub mod selectors;
