//! The tests that mostly wait: for nodes to come and go, for leases, for timeouts. Cargo runs one test binary after the
//! other, so they are one binary, and wait at the same time ([`e2e::places`]).
//!
//! What keeps the processors busy by itself, and what is about processes of the harness, is in binaries of its own.

mod admission;
mod conflicts;
mod demo;
mod hpa;
mod install;
mod late;
mod lifecycle;
mod start;
mod validation;
mod versions;
