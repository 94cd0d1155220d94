//! Kills an operator with `kill -9` while it works on a pool: what it has not written is lost, and what it has written is not
//! answered. The work ends as if it had not been killed, or something that decides stands in its memory alone.
//!
//! `crashable` starts the operators so that one can be killed, `maker` says who makes their nodes, `work` is what they do meanwhile,
//! and `kill` kills. The tests kill after `every` write of one run, which has to be one of the expected `writes`; `each`, which is
//! `cargo xtask crashes`, kills once in each of many runs, and `point` says where.

mod crashable;
mod each;
mod every;
mod kill;
mod lane;
mod maker;
mod point;
mod work;
mod writes;

pub use self::crashable::Crashable;
pub use self::each::{CrashOptions, CrashReport, run};
pub use self::every::ends_as_if_undisturbed;
pub use self::kill::{CrashPoints, Life, Lives, crashing};
pub use self::maker::NodeMaker;
pub use self::work::Work;
