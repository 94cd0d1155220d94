//! How far the replicas of a pool may change, and how fast: its bounds, schedules, the policies of `spec.behavior`, and
//! another writer.

pub mod behavior;
pub mod bounds;
pub mod contested;
pub mod schedules;
