//! The snapshot: the existing, upcoming and planned nodes, each with its free capacity, and the counts of pods that
//! constraints need. Pods are placed on it as the scheduler's filters would allow; all changes can be reverted.
//!
//! `nominations` decides which nominated pods have their places. Other modules decide in which order pods are placed and
//! which pool opens a node. See `docs/adr/0012`.

mod bits;
pub(crate) mod capacity;
mod change;
mod creation;
mod domain_counts;
mod filters;
pub(crate) mod index;
mod journal;
mod model;
mod node_class;
mod node_index;
pub(crate) mod nominations;
mod place;
mod rules;
pub(crate) mod setup;
mod supplies;
mod topology_spread;

#[cfg(test)]
pub(crate) mod naive;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use change::Fork;
pub(crate) use filters::{NodeOrTemplate, PlacementError};
pub(crate) use model::ClusterSnapshot;
pub(crate) use node_index::{NodeIndex, Place};
pub(crate) use place::Scope;
