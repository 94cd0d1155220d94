//! What a node of a pool should look like.
//!
//! | file | contains |
//! |---|---|
//! | `blueprint` | the content of a new node, and why there can be none |
//! | `applied_template` | what of it a node has from the template, as its annotation notes it |
//! | `earlier` | which nodes are of the template although an earlier version hashed less of it |
//! | `allocatable` | what of a machine is there for pods |

pub mod allocatable;
pub mod applied_template;
pub(crate) mod blueprint;
pub(crate) mod earlier;

pub(crate) use self::blueprint::{Blueprint, Invalid, NodeMetadata};
