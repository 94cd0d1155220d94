//! The next step of a leaving node.
//!
//! | file | contains |
//! |---|---|
//! | `step`, `blocker` | nothing: the possible steps, and what keeps a node |
//! | `attached` | whether volumes keep it |
//! | `leave` | what its pods allow |

pub(crate) mod attached;
pub(crate) mod blocker;
pub(crate) mod leave;
pub(crate) mod step;

pub(crate) use self::leave::{leave, let_go_at, margin_end, without_volumes};
