//! The common runtime of Tandem's operators: one way to write ([`mod@write`]), one way to know that a cache has caught
//! up with the operator's own writes ([`freshness`]), one loop ([`controller`]), one leader ([`leader`]), one way to
//! start, report and stop ([`bootstrap`]).
//!
//! Nothing here decides how many nodes a pool has or which pods fit. The operators' planners do that, and they do not
//! depend on this crate.

pub mod admin;
pub mod bootstrap;
pub mod changes;
pub mod cli;
pub mod client;
pub mod clock;
pub mod controller;
pub mod crds;
pub mod credentials;
mod decision_gate;
pub mod error;
pub mod events;
pub mod fence;
pub mod freshness;
pub mod leader;
pub mod list;
pub mod liveness;
pub mod metrics;
pub mod other_cluster;
pub mod place;
pub mod proxy;
mod queue;
pub mod rate;
pub mod readiness;
pub mod reflect;
pub mod shutdown;
pub mod telemetry;
#[cfg(test)]
mod testing;
mod unreadable;
mod watch;
pub mod write;
