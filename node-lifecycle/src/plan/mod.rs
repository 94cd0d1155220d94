//! What happens to the pool, to each node and to each machine, and when to look again.
//!
//! | file | contains |
//! |---|---|
//! | `decision` | nothing: the plan as data |
//! | `classify` | the first step: the states of the nodes, and whose pods have to be read |
//! | `reads` | which of those are listed in this pass |
//! | `frozen` | why nothing may be changed |
//! | `orphaning_pool` | what happens to a pool that is deleted and leaves its nodes |
//! | `pool_gone` | what happens to the nodes and machines of a pool that no longer exists |
//! | `machines` | which machines go because they have failed, which Nodes join, which marks are taken back |
//! | `in_place` | what of a changed template reaches existing nodes |
//! | `pace` | how many nodes that is in a pass |
//! | `patches` | how a decision is written so that it cannot be applied to the wrong object |
//! | `pool_finalizer` | when the pool may go |
//! | `visits` | when to come back without an event |
//! | `choices` | which nodes go, and how many there should be |
//! | `actions` | the one step of each node |
//! | `pass` | the second step: all of it together |

mod actions;
mod choices;
pub(crate) mod classify;
pub(crate) mod decision;
mod frozen;
mod in_place;
mod machines;
mod orphaning_pool;
mod pace;
mod pass;
pub mod patches;
mod pool_finalizer;
mod pool_gone;
mod reads;
mod same_step;
mod visits;

pub use self::pass::plan;
