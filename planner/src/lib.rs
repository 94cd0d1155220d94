//! The planner: from the objects of a cluster to how many nodes each pool should have, and why.
//!
//! Pure. The same [`Observed`] always gives the same [`ScalingPlan`], in whatever order the objects come: there is no client in
//! here, no clock, no randomness and no log. Whoever wants to know what the Autoscaler would do can ask [`plan`].
//!
//! The rooms, in the order of a pass: [`input`] (the cluster as the caches have it), [`requirements`] (what one pod asks of
//! a node), [`limits`] (how far replicas may go, and how fast), [`pools`], [`demand`] (the pods that wait, and all that is
//! asked for), [`snapshot`] (the cluster in which pods are placed), [`scale_up`], [`scale_down`], [`decision`]. [`pass`]
//! leads through them; none uses one that comes after it.

pub mod decision;
pub mod demand;
#[cfg(any(test, feature = "fixtures"))]
#[expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test says what is wrong by panicking")]
pub mod fixtures;
pub mod input;
pub mod limits;
pub mod numbers;
pub mod pass;
pub mod pools;
pub mod reasons;
pub mod requirements;
pub mod resources;
pub mod scale_down;
pub mod scale_up;
pub mod snapshot;
pub mod time;

pub use decision::{NodeDecision, PodDecision, PoolDecision, PoolRejection, ScalingPlan, SchedulingResult};
pub use input::observed::{Observed, PlanOptions, Recommendations, ScheduledBounds};
pub use pass::{MAX_NAMED_NODES, Planner, plan, plan_for_cluster};
