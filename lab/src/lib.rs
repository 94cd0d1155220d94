//! The conflict lab: every claim about write conflicts in Kubernetes, shown on a real API server.
//!
//! A [`scenario`] is one thing to see. It is played in a [`context`], where actors send requests that are recorded as they
//! go and claims are checked; what happened is a list of [`event`]s. From that one list come the narration in the terminal,
//! the generated page in `docs/conflicts/` and the JSON, and `cargo test` asserts it.

pub mod cache;
pub mod checklist;
pub mod cli;
pub mod cluster_pool;
pub mod context;
pub mod event;
pub mod index;
pub mod narrate;
pub mod page;
pub mod pool;
pub mod redact;
pub mod request_recorder;
mod rights;
pub mod run;
pub mod scenario;
pub mod scenarios;
