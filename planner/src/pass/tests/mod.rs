//! Tests of the decisions of a pass.

mod extras;
mod gpus;
mod mixes;
mod oscillation;
mod owed;
mod pass;
mod properties;
mod scale_up;
mod scale_up_properties;
mod shared_taints;
mod startup_taints;
mod steps;
mod supplies;
mod together;
