#![doc = include_str!("../README.md")]
// On docs.rs, every item behind a feature says so.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backoff;
pub mod classify;
#[cfg(feature = "runtime")]
pub mod controller;
pub mod freshness;
#[cfg(feature = "prometheus")]
pub mod metrics;
pub mod observe;
mod operation;
mod options;
mod outcome;
pub mod policy;
pub mod protect;
pub mod retry;
mod writes;

pub use backoff::Backoff;
pub use classify::{Class, FieldConflict, is_conflict};
pub use freshness::Source;
pub use observe::{AttemptEvent, FinishedEvent, Observer};
pub use operation::{Operation, ReadSource, Subresource, Verb};
pub use options::WriteOptions;
pub use outcome::{DeleteOutcome, EvictOutcome, Outcome, Refusal, RequestFailure, WriteError};
pub use policy::RetryPolicy;
pub use retry::{MaybeConflict, RetryError, retry_if, retry_on_conflict};
pub use writes::{
    Apply, IntoDecision, MergePatch, PatchAtGeneration, PatchDecision, PatchesAPart, ReadsFirst,
    ScaleDecision, ScaleGuard, ScaleView, Scaling, Update, UpdateDecision, Writable, Write, WriteKind, apply,
    apply_status, create_or_update, merge_patch, once, patch_at_generation, scale, update, update_status,
};
#[cfg(feature = "finalizers")]
pub use writes::{Finalizer, add_finalizer, remove_finalizer};
