//! Tests of the decisions of a pass.

mod extras;
mod growth;
mod growth_properties;
mod mixes;
mod oscillation;
mod pass;
mod properties;
mod together;
