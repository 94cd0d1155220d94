//! The control plane for tests and demos: where it comes from, how its programs are built and started, and when it is
//! ready.
//!
//! Nothing here depends on Tandem. [`crate::cluster`] combines the parts.

pub mod components;
pub mod go;
pub mod go_program;
pub mod layout;
pub mod locate;
pub mod pki;
pub mod ports;
pub mod ready;
pub mod toolbox;
