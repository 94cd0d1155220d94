//! What a pass decides, seen from outside.

mod extras;
mod growth;
mod growth_properties;
mod mixes;
mod oscillation;
mod pass;
mod properties;
mod together;
