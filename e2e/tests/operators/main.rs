//! Tests that mostly wait: for nodes to be created and removed, for leases, for timeouts. Cargo runs one test binary
//! after the other, so they are one binary, and wait in parallel ([`testbed::places`]).
//!
//! CPU-bound tests, and tests of the harness's processes, are in separate binaries.

mod admission;
mod adopted;
mod clients_that_wait;
mod cluster_settings;
mod conflicts;
mod demo;
mod firewall;
mod firewall_nodes;
mod hpa;
mod install;
mod late;
mod lifecycle;
mod membership;
mod memory;
mod pages;
mod pod_security;
mod pool_limits;
mod rehearsals;
mod rendered;
mod soak;
mod start;
mod third_controller;
mod validation;
mod versions;
mod watched;
