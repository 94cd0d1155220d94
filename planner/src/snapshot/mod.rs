//! The cluster in which pods are placed, with nodes that are there, that are on their way and that are planned.

pub mod capacity;
pub mod index;
pub mod world;
