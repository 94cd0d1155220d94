//! The planner: computes from the objects of a cluster how many nodes each pool should have, and why. Pure: the same
//! [`Observed`] always gives the same [`ScalingPlan`], in whatever order the objects come, without a client, a clock,
//! randomness or a log. [`plan`] returns what the Autoscaler would do.
//!
//! The modules, each of which uses only earlier ones: `index` (types of indexes), [`steps`] (how much is done), `numbers`,
//! `time`, `reasons`, `resources`, `requirements` (what one pod requires of a node), [`input`] (the cluster as the caches
//! hold it), `limits` (how far replicas may change, and how fast), `pools`, `demand` (the pending pods and all
//! requirements), `snapshot` (the cluster in which pods are placed), `scale_up`, `scale_down`, `decision`. `pass` calls them.

mod decision;
mod demand;
#[cfg(any(test, feature = "fixtures"))]
#[expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test says what is wrong by panicking")]
pub mod fixtures;
mod index;
pub mod input;
mod limits;
mod numbers;
mod pass;
mod pools;
mod reasons;
mod requirements;
mod resources;
mod scale_down;
mod scale_up;
mod snapshot;
pub mod steps;
mod time;

pub use decision::{NodeDecision, PodDecision, PoolDecision, PoolRejection, ScalingPlan, SchedulingResult};
pub use demand::daemons::BUILT_IN_PRIORITIES;
pub use demand::nominations::Nominations;
pub use input::observed::{Observed, PlanOptions, Recommendations, ScheduleClamp};
pub use limits::bounds::BoundsConflict;
pub use limits::contested::{Contest, ContestResponse};
pub use limits::schedules::Schedules;
pub use numbers::replicas;
pub use pass::{MAX_NAMED_NODES, Planner, plan, plan_for_cluster};
pub use reasons::{NodeReason, PoolReason};
