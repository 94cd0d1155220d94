//! How far the replicas of a pool may change, and how fast: its bounds, schedules, the policies of `spec.behavior`, and
//! another writer.

pub(crate) mod behavior;
pub(crate) mod bounds;
pub(crate) mod contested;
pub(crate) mod schedules;
