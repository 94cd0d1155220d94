//! **The simulator**: answers questions about the planner's decisions, on the objects of files or of a live cluster.
//! [`simulate`] prints what would be decided, also after what-if changes; [`explain`] prints why a pod waits, why a node
//! stays or goes, and why a pool has its number of nodes.
//!
//! Read-only: objects are read from files or listed from the API server (`input`), changed in memory (`edits`), planned
//! by [`planner`], and printed. Nothing is watched, and nothing is written to a cluster. Only `input::live` has a
//! client.

mod edits;
pub mod explain;
mod input;
mod nearest;
mod pod_state;
mod prepared;
mod priorities;
pub mod reports;
pub mod simulate;
mod text;
mod warnings;

pub use edits::EditError;
pub use input::InputError;
pub use input::live::LiveError;
pub use input::source::SourceError;
