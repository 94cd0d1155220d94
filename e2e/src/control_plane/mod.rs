//! The control plane that tests and demos run on: where it comes from, how its programs are built and started, and
//! when it is ready.
//!
//! Nothing here knows Tandem. [`crate::cluster`] puts the pieces together.

pub mod components;
pub mod go;
pub mod layout;
pub mod locate;
pub mod pki;
pub mod ports;
pub mod ready;
pub mod toolbox;
