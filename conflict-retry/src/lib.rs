//! Retry on Kubernetes write conflicts without losing a write: client-go's `RetryOnConflict` for Rust, plus what its
//! users need in addition.
//!
//! Two writers of one object will sooner or later get a 409 conflict. The right reaction is to read again, *decide*
//! again and write again, a bounded number of times. Common mistakes are to read from a stale cache, to repeat the old
//! decision, to retry conflicts that no retry resolves, and to report success when nothing was written. This crate
//! makes these mistakes hard.
//!
//! # Quick start
//!
//! Set the field manager once in the options, then write. The closure may be called several times, each time with a
//! fresh object:
//!
//! ```no_run
//! use conflict_retry::{UpdateDecision, Outcome, Source, WriteOptions, update};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::{Api, Client, Config};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = Config::infer().await?;
//! config.default_retry = false;
//! let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config)?);
//! let options = WriteOptions::new("colour-controller");
//!
//! let outcome = update(&maps, "settings", &options, Source::Live, |map| {
//!     map.data.get_or_insert_default().insert("colour".into(), "blue".into());
//!     UpdateDecision::Write
//! })
//! .await?;
//! match outcome {
//!     Outcome::Written(map) => println!("stored as version {:?}", map.metadata.resource_version),
//!     Outcome::Unchanged(_) | Outcome::AlreadyDone(_) => println!("it was blue already"),
//!     Outcome::Gone => println!("there is no such map"),
//!     // This closure never aborts, and `update` retries conflicts itself.
//!     Outcome::Aborted | Outcome::Conflict(_) => {}
//! }
//! # Ok(()) }
//! ```
//!
//! [`Source`] sets where the object comes from: `Live` reads it, `Copy` starts with an existing copy, `Watched` takes
//! it from a cache, also after a conflict, and reads live only when the watch is late.
//!
//! | you want to | use | conflicts with |
//! |---|---|---|
//! | own fields of a status or an object | [`apply_status`], [`apply`] | other *owners of the fields*; never retried |
//! | change a spec, independent of its status | [`patch_at_generation`] | other changes *of the spec* only |
//! | set a replica count | [`scale`] | other changes *of the count* only |
//! | change an object depending on its state | [`update`], [`update_status`] | every other write to the object |
//! | the same with a small body | [`merge_patch`], [`scale_merge`] | every other write to the object |
//! | try once, leave the rest to a work queue | [`put_once`], [`scale_put_once`] | returned as [`Outcome::Conflict`] |
//! | keep your own read-decide-write code | [`retry_on_conflict`] | whatever your error type reports as one |
//!
//! # Cargo features
//!
//! None is on by default. A queue per object and a retry budget ([`protect`]) need none.
//!
//! | feature | adds |
//! |---|---|
//! | `runtime` | `freshness::Watched`: a kube reflector as the source of writes; a conflict costs no read |
//! | `prometheus` | `metrics::RetryMetrics`: an observer that counts in a Prometheus registry |
//! | `rate-limiter` | `protect::RateLimiter`: a token bucket for requests |
//! | `circuit-breaker` | `protect::CircuitBreaker`: no requests while the API server does not answer |
//! | `workqueue` | `protect::workqueue`: the rate limiters of client-go's work queue; turns on `rate-limiter` |
//! | `finalizers` | `add_finalizer`, `remove_finalizer` |
//!
//! # Guarantees
//!
//! - `Ok` with an object means that the server acknowledged the write, or that the object already had the wanted state.
//! - A retry decides from a live read. An old decision is never sent twice, except by server-side apply, which states
//!   its whole goal.
//! - A 409 can mean several things ([`Class`]): a field manager conflict, a recreated object, a deleted object and an
//!   existing object are distinguished from a stale version, and only the stale version is retried.
//! - When an answer is lost (timeout, 504, broken connection) the object is read before anything is repeated, so that
//!   the caller's own write is recognised ([`Outcome::AlreadyDone`]).
//! - A run always ends: by its number of attempts, by its deadline, or at once by cancellation ([`RetryPolicy`]).
//!   Giving up is an error that contains the last conflict and states whether a write may have been executed.
//!
//! # Requirements
//!
//! - A closure sets a goal; it does not count. `replicas = 5` survives a lost answer, `replicas += 1` does not.
//! - Build the client with `kube::Config::default_retry = false`. Otherwise kube repeats every write on 429, 503 and
//!   504 underneath this crate, up to 15 times and without reading the object: a repeated PUT conflicts with itself,
//!   and a blocked eviction stalls for minutes.
//! - Avoid the retry where possible. If a value does not depend on what others wrote, use server-side apply: the server
//!   merges, and no retry is needed.

// On docs.rs, every item behind a feature says so.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backoff;
pub mod classify;
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
    PatchDecision, ScaleDecision, ScaleView, UpdateDecision, Writable, apply, apply_status, create, delete,
    evict, json_patch, merge_patch, patch_at_generation, put_once, scale, scale_merge, scale_put,
    scale_put_once, update, update_status,
};
#[cfg(feature = "finalizers")]
pub use writes::{add_finalizer, remove_finalizer};

/// The README's examples are compiled with the doc tests, if the features that they use are on.
#[cfg(all(doctest, feature = "circuit-breaker", feature = "rate-limiter"))]
#[doc = include_str!("../README.md")]
struct Readme;
