//! The next step of a leaving node.
//!
//! | file | contains |
//! |---|---|
//! | `node_action`, `blocker` | nothing: the possible steps, and what keeps a node |
//! | `attached` | whether volumes keep it |
//! | `next_step` | what its pods allow |

pub(crate) mod attached;
pub(crate) mod blocker;
pub(crate) mod next_step;
pub(crate) mod node_action;

pub(crate) use self::next_step::{leave, let_go_at, margin_end, was_left_to_provider, without_volumes};
