//! The conflict lab: every claim about write conflicts in Kubernetes, shown on a real API server.
//!
//! A [`scenario`] demonstrates one thing. It runs in a [`context`], where actors send requests that are recorded, and
//! claims are checked. The result is a list of [`event`]s, from which the narration in the terminal, the page in
//! `docs/conflicts/` and the JSON are made, and which `cargo test` checks.

pub mod bill;
pub mod cache;
pub mod checklist;
pub mod cli;
pub mod cluster_pool;
pub mod context;
pub mod cost;
pub mod cures;
pub mod event;
pub mod forgetting;
pub mod guide;
pub mod index;
pub mod narrate;
pub mod page;
pub mod page_notes;
pub mod picture;
pub mod pool;
pub mod redact;
pub mod request_recorder;
mod rights;
pub mod run;
pub mod scenario;
pub mod scenarios;
