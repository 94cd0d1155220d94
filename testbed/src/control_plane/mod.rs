//! The control plane for tests and demos: where it comes from, how it is started, and when it is ready. `toolbox` builds its
//! programs.
//!
//! Nothing here depends on Tandem. [`crate::cluster`] combines the parts.

pub mod components;
pub mod go_program;
pub mod layout;
pub mod locate;
pub mod pki;
pub mod ports;
pub mod ready;
