//! The public write functions, and the only module that calls kube's write verbs.
//!
//! `wire` sends single requests; `write_loop` is the loop of read, decide, write and read again; the other modules define
//! what is read, decided and sent. Nothing here depends on a user's types.

mod apply;
#[cfg(feature = "finalizers")]
mod finalizers;
mod generation;
mod guard;
mod merge;
mod object;
mod operation_state;
mod overwrite;
mod scale;
mod single_attempt;
mod target;
mod update;
mod view;
mod wire;
mod write_loop;

use std::fmt::Debug;

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::apply::{apply, apply_status};
#[cfg(feature = "finalizers")]
pub use self::finalizers::{add_finalizer, remove_finalizer};
pub use self::generation::{PatchDecision, patch_at_generation};
pub use self::merge::merge_patch;
pub use self::scale::{ScaleDecision, scale, scale_merge, scale_put, scale_put_once};
pub use self::single_attempt::{create, delete, evict, json_patch};
pub use self::update::{UpdateDecision, put_once, update, update_status};
pub use self::view::ScaleView;

/// What an object type must implement to be written by this crate. Every Kubernetes type does; there is nothing to
/// implement.
pub trait Writable: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static {}

impl<K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static> Writable for K {}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod protected_tests;
#[cfg(test)]
mod report_tests;
#[cfg(test)]
#[cfg(all(feature = "circuit-breaker", feature = "rate-limiter"))]
mod request_protection_tests;
#[cfg(test)]
mod tests;
