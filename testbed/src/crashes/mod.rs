//! Kills an operator with `kill -9` while it works on a pool: what it has not written is lost, and what it has written is not
//! answered. The work ends as if it had not been killed, or something that decides stands in its memory alone.
//!
//! `crashable` starts the operators so that one can be killed, `work` is what they do meanwhile, and `kill` kills. The tests kill
//! after every write of one run; `each`, which is `cargo xtask crashes`, kills once in each of many runs, and `point` says where.

mod crashable;
mod each;
mod kill;
mod lane;
mod point;
mod work;

pub use self::crashable::{Crashable, NodeMaker};
pub use self::each::{CrashOptions, CrashReport, run};
pub use self::kill::{CrashPoints, Life, Lives, crashing};
pub use self::work::Work;
