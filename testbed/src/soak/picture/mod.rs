//! Nodes over time as self-contained SVGs: the whole life of a pool by the states of its nodes, and its rollout with the bounds that
//! it kept. Each has its own background, dark where the reader's is.

mod life;
mod plot;
mod rollout;

pub use self::life::svg as life;
pub use self::rollout::svg as rollout;
