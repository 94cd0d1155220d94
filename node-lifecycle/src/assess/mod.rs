//! The state of each node, and of what a provider says. Nothing is decided about a node here.
//!
//! | file | contains |
//! |---|---|
//! | `membership` | what a Node says about itself: readiness, drain, machine |
//! | `node_states` | the states of a node, one enum for each question that has several answers |
//! | `health` | which nodes are unhealthy |
//! | `outdated` | which nodes are out of date |
//! | `removal_protection` | whether a node or its pods ask to be left alone |
//! | `drain_limits` | how long a drain may take, and what follows |
//! | `absence` | whether a machine that its provider does not have is gone |
//! | `node_in_another_cluster` | which machines without a Node here may have a live one, in another cluster or under another ID |
//! | `provider_duty` | what a provider does with a machine by itself |
//! | `on_delete` | what becomes of the nodes of a pool that is deleted |
//! | `contested` | whether another writer has set the number of machines |

pub(crate) mod absence;
pub mod contested;
pub(crate) mod drain_limits;
pub mod health;
pub mod membership;
pub mod node_in_another_cluster;
pub mod node_states;
pub mod on_delete;
pub(crate) mod outdated;
pub(crate) mod provider_duty;
pub(crate) mod removal_protection;
