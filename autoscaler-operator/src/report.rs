//! Reports decisions and their results: writes the Autoscaler's part of each pool's status and the status of each
//! autoscaler, and publishes events. The content comes from `status`.

use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::CustomResourceExt as _;
use planner::{Observed, PoolDecision, ScalingPlan};
use shared_crds::{NodePool, NodePoolAutoscaler, QualifiedName};
use shared_runtime::error::chain;
use shared_runtime::write::{self, WriterError};

use crate::context::Context;
use crate::error::Error;
use crate::memory::write_backoff::{Refusal, Waiting, Write};
use crate::outcome::PoolOutcome;
use crate::status::autoscaler_status;
use crate::status::events::{self, NewEvent};
use crate::status::pool_status::{self, DecisionState, Scaled};

/// Number of statuses that are written concurrently.
const PARALLEL_WRITES: usize = 8;

/// The result of reporting.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// Another writer was first, and the write strategy leaves the conflict to the next pass.
    pub conflict: bool,
    /// This replica is not the leader any more.
    pub error: Option<Error>,
}

/// Writes all statuses that differ from what they should be, and publishes events.
pub(crate) async fn report(
    ctx: &Context,
    observed: &Observed,
    plan: &ScalingPlan,
    waiting: &Waiting,
    outcomes: &[PoolOutcome],
) -> Reported {
    let now = Time(observed.now);
    let waits = |object: &ObjectMeta| waiting.refusal(object, Write::Status).is_some();
    publish(ctx, observed, plan, outcomes, waits);
    let mut reported = Reported::default();
    let states = plan.pools.iter().zip(outcomes).filter_map(|(decision, outcome)| {
        let state = state(ctx, decision, outcome, &now)?;
        (!waits(&decision.object.metadata)).then_some((decision, state))
    });
    let writes: Vec<_> = states
        .map(async |(decision, state)| (&decision.object.metadata, pool(ctx, decision, &state, &now).await))
        .collect();
    let mut writes = stream::iter(writes).buffer_unordered(PARALLEL_WRITES);
    while let Some((object, result)) = writes.next().await {
        reported.absorb(ctx, object, result);
    }
    let autoscalers = observed.autoscalers.iter().filter(|object| !waits(&object.metadata));
    let writes: Vec<_> = autoscalers
        .map(async |object| (&object.metadata, autoscaler(ctx, object, plan, outcomes, &now).await))
        .collect();
    // Side by side as well: where none is answered, each takes as long as a write may.
    let mut writes = stream::iter(writes).buffer_unordered(PARALLEL_WRITES);
    while let Some((object, result)) = writes.next().await {
        reported.absorb(ctx, object, result);
    }
    reported
}

/// Publishes the events about what has changed.
fn publish(
    ctx: &Context,
    observed: &Observed,
    plan: &ScalingPlan,
    outcomes: &[PoolOutcome],
    waits: impl Fn(&ObjectMeta) -> bool,
) {
    let pools = events::about_pools(observed, plan, outcomes, waits);
    let pods = ctx.published_events.new_events(observed, plan, outcomes);
    for NewEvent { regarding, kind, note } in pools.into_iter().chain(pods) {
        ctx.recorder.publish(&regarding, kind, note);
    }
}

impl Reported {
    /// Records the result of one write: whether it met a conflict, or failed.
    fn absorb(&mut self, ctx: &Context, object: &ObjectMeta, result: Result<bool, Error>) {
        match result {
            Ok(conflict) => {
                self.conflict |= conflict;
                ctx.backoff().over(object, Write::Status);
            }
            Err(error) if error.is_fenced() => {
                self.error.get_or_insert(error);
            }
            Err(error) => {
                let refusal =
                    Refusal { problem: chain(&error), is_denied: error.is_denial(), decision: None };
                ctx.refused(object, Write::Status, refusal, &error);
            }
        }
    }
}

/// How far the decision has come, if there is something to report about it; a written decision is kept until a status
/// reports it.
fn state(ctx: &Context, decision: &PoolDecision, outcome: &PoolOutcome, now: &Time) -> Option<DecisionState> {
    Some(match outcome {
        PoolOutcome::Scaled => ctx.pending_status.remember(decision, Scaled::of(decision, now)),
        PoolOutcome::Settled | PoolOutcome::Unobserved => {
            ctx.pending_status.recall(decision).map_or(DecisionState::Settled, DecisionState::Scaled)
        }
        PoolOutcome::Failed(error) => DecisionState::Failed(told(ctx, decision, chain(error))),
        PoolOutcome::Waiting(problem) => DecisionState::Failed(told(ctx, decision, problem.clone())),
        // There will be another decision in a moment, or the pool is gone.
        PoolOutcome::Outdated => return None,
        PoolOutcome::Gone => {
            ctx.pending_status.forget(decision);
            return None;
        }
    })
}

/// Why a decision could not be written, and whether its pods have been given up to other pools.
fn told(ctx: &Context, decision: &PoolDecision, problem: String) -> String {
    let elsewhere = Write::of(decision) == Write::Growth && ctx.backoff().closes(&decision.object.metadata);
    if elsewhere { format!("{problem}; other pools are used for now") } else { problem }
}

async fn pool(
    ctx: &Context,
    decision: &PoolDecision,
    state: &DecisionState,
    now: &Time,
) -> Result<bool, Error> {
    let decide = |fresh: &NodePool| pool_status::owned(fresh, decision, state, now);
    let written = ctx.writer.node_pool_status(&decision.object, decide).await;
    ctx.pending_status.reported(decision, state, &written);
    ended(written, "NodePool", &decision.object.metadata)
}

async fn autoscaler(
    ctx: &Context,
    object: &NodePoolAutoscaler,
    plan: &ScalingPlan,
    outcomes: &[PoolOutcome],
    now: &Time,
) -> Result<bool, Error> {
    let outdated_crd = ctx.served.statement(NodePoolAutoscaler::crd_name());
    let decide = |fresh: &NodePoolAutoscaler| {
        autoscaler_status::status(fresh, plan, outcomes, outdated_crd.as_ref(), now)
    };
    let written = ctx.writer.autoscaler_status(object, decide).await;
    ended(written, "NodePoolAutoscaler", &object.metadata)
}

/// Whether the write met a conflict that the next pass has to resolve.
fn ended<T>(
    written: Result<write::Outcome<T>, WriterError>,
    kind: &'static str,
    object: &ObjectMeta,
) -> Result<bool, Error> {
    match written {
        Ok(outcome) => Ok(outcome.is_conflict()),
        Err(source) => {
            Err(Error::Write { what: "status", kind, name: QualifiedName::of(object).to_string(), source })
        }
    }
}
