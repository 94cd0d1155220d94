//! What was done of a plan, and what there is after it. Nothing is decided here.
//!
//! | file | contains |
//! |---|---|
//! | `action` | what a step writes, what was done to one node or machine, and how that is counted and told |
//! | `event_reason` | what an event on a pool may be about |
//! | `outcome` | what was done in a pass |
//! | `facts` | the counts after it |
//! | `rollout` | how far a rollout has come |
//! | `remembered` | what of them the status records about the provider |

mod action;
mod event_reason;
pub mod facts;
pub mod outcome;
mod remembered;
mod rollout;
