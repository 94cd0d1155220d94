//! The public write functions, and the only module that calls kube's write verbs.
//!
//! `wire` sends single requests; `write_loop` is the loop of read, decide, write and read again; the other modules define
//! what is read, decided and sent. Nothing here depends on a user's types.

mod answer;
mod apply;
mod decide;
mod difference;
#[cfg(feature = "finalizers")]
mod finalizers;
mod generation;
mod guard;
mod kind;
mod list;
mod merge;
pub mod once;
mod operation_state;
mod overwrite;
mod scale;
mod sent_status;
mod snapshot;
mod target;
mod update;
mod view;
mod wire;
mod write;
mod write_loop;

use std::fmt::Debug;

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::apply::{Apply, apply, apply_status};
pub use self::decide::{IntoDecision, PatchDecision, ScaleDecision, UpdateDecision};
#[cfg(feature = "finalizers")]
pub use self::finalizers::{Finalizer, add_finalizer, remove_finalizer};
pub use self::generation::{PatchAtGeneration, patch_at_generation};
pub use self::kind::{PatchesAPart, ReadsFirst, WriteKind};
pub use self::merge::{MergePatch, merge_patch};
pub use self::scale::{ScaleGuard, Scaling, scale};
pub use self::update::{Update, create_or_update, update, update_status};
pub use self::view::ScaleView;
pub use self::write::Write;

/// What an object type must implement to be written by this crate. Every Kubernetes type does; there is nothing to
/// implement.
pub trait Writable: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static {}

impl<K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static> Writable for K {}

#[cfg(test)]
mod bad_input_tests;
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
mod scale_and_once_tests;
#[cfg(test)]
mod short_tests;
#[cfg(test)]
mod tests;
