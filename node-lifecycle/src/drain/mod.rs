//! The next step of a leaving node.
//!
//! | file | contains |
//! |---|---|
//! | `possible_actions`, `blocker` | nothing: the possible steps, and what keeps a node |
//! | `attached` | whether volumes keep it |
//! | `next_step` | what its pods allow, and the end of a drain that takes too long |

pub(crate) mod attached;
pub(crate) mod blocker;
pub(crate) mod next_step;
pub(crate) mod possible_actions;

pub(crate) use self::next_step::{leave, let_go_at, margin_end, without_volumes};
