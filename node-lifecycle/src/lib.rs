//! **What should happen to a pool and its nodes**, decided from what was observed and from nothing else: no client, no clock,
//! no randomness. The same input always gives the same [`Plan`].
//!
//! What a provider says of a pool comes in as [`Supply`]; who asks it is the crate `machine-providers`. What has become of a
//! plan is an [`outcome::Applied`], and [`facts::Facts`] counts the nodes after it.
//!
//! There are two steps, because pods are not watched: [`classify()`] derives the state of each node and names the nodes
//! whose pods have to be read, and [`plan()`] decides once they have been read.
//!
//! The rooms, in the order of a pass; each uses only earlier ones. What a file of a room is for, its `mod.rs` says.
//!
//! | room | answers |
//! |---|---|
//! | `input` | what was observed? |
//! | `template` | what should a node look like? |
//! | `assess` | in which state is each node? |
//! | `remove` | which nodes go, and why? |
//! | `count` | how many should there be, and which are too many? |
//! | `drain` | what is the next step of a leaving node? |
//! | `plan` | what happens to the pool, to each node and machine, and when to look again? |
//! | `after` | what was done, and what is there then? |

mod after;
mod assess;
mod count;
mod drain;
mod input;
mod plan;
mod remove;
mod template;
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test says what is wrong by panicking")]
pub mod testing;
#[cfg(test)]
mod tests;

pub use self::after::{facts, outcome};
pub use self::assess::{contested, health, membership, node_in_another_cluster, node_states, on_delete};
pub use self::count::rollout_waits::RolloutWait;
pub use self::drain::blocker::Blocker;
pub use self::drain::possible_actions::{DrainStep, NodeAction, NodeStep, PoolStep};
pub use self::input::keys::{ClusterId, PoolKey};
pub use self::input::observed::{AttachedVolumes, Observed, ObservedPods, PodReads, Pods};
pub use self::input::outage::ClusterReadiness;
pub use self::input::pod_name::PodName;
pub use self::input::supply::{Absence, Supply};
pub use self::input::{hash, keys, numbers, observed_time, pods, ready, slots, supply};
pub use self::plan::classify::{Classified, classify};
pub use self::plan::decision::{JoinStep, Plan, Stall};
pub use self::plan::{patches, plan};
pub use self::remove::waits::RepairWait;
pub use self::template::{allocatable, applied_template};
