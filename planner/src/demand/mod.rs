//! The pods that wait for a place, and everything else that asks for one.

pub mod daemons;
pub mod headroom;
pub mod order;
pub mod workload;
