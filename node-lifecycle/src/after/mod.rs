//! What was done of a plan, and what there is after it. Nothing is decided here.
//!
//! | file | contains |
//! |---|---|
//! | `action` | what was done to one node or machine |
//! | `outcome` | what was done in a pass |
//! | `facts` | the counts after it |
//! | `rollout` | how far a rollout has come |
//! | `remembered` | what of them the status records about the provider |

mod action;
pub mod facts;
pub mod outcome;
mod remembered;
mod rollout;
