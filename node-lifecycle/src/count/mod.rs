//! How many nodes there should be, and which go where there are too many.
//!
//! | file | contains |
//! |---|---|
//! | `disruption_account` | which nodes count as disrupted, and why |
//! | `cancelled_drains` | which drains end because the node is wanted again, or has recovered |
//! | `deletion` | how many nodes of a pool that is deleted leave at a time |
//! | `rollout` | how many of the nodes that are out of date may go |
//! | `rollout_bounds` | how far the numbers of nodes may be from what is wanted meanwhile |
//! | `rollout_waits` | why none of them may go now |
//! | `machines_without_node` | which machines are waited for, given up, or withdrawn |
//! | `removal_order` | the order in which nodes go |
//! | `unasked` | which machines the provider was not asked for |
//! | `sizing` | how many nodes are missing or in excess, and what is done about it |
//! | `victim_selection` | which nodes go now |

pub(crate) mod cancelled_drains;
pub(crate) mod deletion;
pub(crate) mod disruption_account;
pub(crate) mod machines_without_node;
pub(crate) mod removal_order;
pub(crate) mod rollout;
pub(crate) mod rollout_bounds;
pub(crate) mod rollout_waits;
pub(crate) mod sizing;
pub(crate) mod unasked;
pub(crate) mod victim_selection;
