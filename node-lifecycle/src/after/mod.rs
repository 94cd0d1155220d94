//! What was done of a plan, and what there is after it. Nothing is decided here.
//!
//! | file | contains |
//! |---|---|
//! | `outcome` | what was done |
//! | `facts` | the counts after it |
//! | `rollout` | how far a rollout has come |
//! | `remembered` | what of them the status records about the provider |

pub mod facts;
pub mod outcome;
mod remembered;
mod rollout;
