//! Which nodes are replaced whatever their number.
//!
//! | file | contains |
//! |---|---|
//! | `repair` | those that are unhealthy or have lost their machines |

pub(crate) mod repair;
