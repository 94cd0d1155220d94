//! What was observed, as data. Nothing is decided here.
//!
//! | file | contains |
//! |---|---|
//! | `observed` | everything a decision about one pool is made from |
//! | `supply` | what a provider says about a pool and its machines |
//! | `observed_time` | whether this process itself has measured that a time has passed |
//! | `ready` | what a Node's condition `Ready` says |
//! | `outage` | whether too many nodes of all pools have failed for the nodes to be the cause |
//! | `pods`, `pod_name` | which pods keep a node, and the name of a pod |
//! | `keys`, `slots`, `hash` | the names of pools and nodes |
//! | `numbers` | numbers of nodes as text |

pub mod hash;
pub mod keys;
pub mod numbers;
pub(crate) mod observed;
pub mod observed_time;
pub(crate) mod outage;
pub(crate) mod pod_name;
pub mod pods;
pub mod ready;
pub mod slots;
pub mod supply;
