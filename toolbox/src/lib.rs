//! What the task runner (`xtask`) and the testbed share: where the workspace is and how Cargo is called, the programs of the
//! control plane and the Go that builds them, process groups, and what a test says to the runner of all tests.
//!
//! It knows no resource of Kubernetes and has no client, so that the task runner is built in seconds.

pub mod announcement;
pub mod arguments;
pub mod executable;
pub mod go;
pub mod messages;
pub mod process_group;
pub mod programs;
pub mod tools;
pub mod workspace;
