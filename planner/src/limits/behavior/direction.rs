//! The two directions of scaling, each with limits of its own.

/// The direction of scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Scale-up.
    Up,
    /// Scale-down.
    Down,
}
