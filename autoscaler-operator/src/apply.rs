//! Carries out decisions: writes `spec.replicas` of every pool whose decision changes it, and before a scale-down the
//! names of the nodes to remove. A failure on one pool does not delay the others.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use planner::{Observed, PoolDecision, ScalingPlan};
use shared_crds::v1alpha1::ScaleDownPlan;
use shared_crds::{NodePool, QualifiedName};
use shared_runtime::error::chain;
use shared_runtime::write::{self, ScaleDecision, WriterError};
use tracing::info;

use crate::context::Context;
use crate::error::Error;
use crate::memory::write_backoff::{Refusal, Waiting, Write};
use crate::outcome::PoolOutcome;
use crate::status::pool_status;

/// Number of pools that are written concurrently.
const PARALLEL_WRITES: usize = 8;

/// Writes every decision that needs a write. The outcomes are in the order of the plan's pools.
pub(crate) async fn apply(
    ctx: &Context,
    observed: &Observed,
    plan: &ScalingPlan,
    waiting: &Waiting,
) -> Vec<PoolOutcome> {
    let scaled = async |decision| {
        let outcome = scale(ctx, decision, &observed.nodes, waiting).await;
        remember(ctx, decision, &outcome);
        outcome
    };
    let work: Vec<_> = plan.pools.iter().map(scaled).collect();
    stream::iter(work).buffered(PARALLEL_WRITES).collect().await
}

/// Records the result of a pool's write, so that a failed write, and only it, waits for its backoff.
fn remember(ctx: &Context, decision: &PoolDecision, outcome: &PoolOutcome) {
    let (pool, write) = (&decision.object.metadata, Write::of(decision));
    match outcome {
        PoolOutcome::Failed(error) if !error.is_fenced() => {
            let decision = Some(Box::new(decision.clone()));
            let refusal = Refusal { problem: chain(error), is_denied: error.is_denial(), decision };
            ctx.refused(pool, write, refusal, error);
        }
        PoolOutcome::Scaled | PoolOutcome::Gone => ctx.backoff().over(pool, write),
        PoolOutcome::Failed(_)
        | PoolOutcome::Settled
        | PoolOutcome::Outdated
        | PoolOutcome::Unobserved
        | PoolOutcome::Waiting(_) => {}
    }
}

async fn scale(
    ctx: &Context,
    decision: &PoolDecision,
    nodes: &[Arc<Node>],
    waiting: &Waiting,
) -> PoolOutcome {
    if !decision.acts || !decision.changes_replicas() {
        return PoolOutcome::Settled;
    }
    // A precondition that there is no status would fail with the first one, which the NodePool operator writes about
    // now.
    if decision.object.status.is_none() {
        return PoolOutcome::Unobserved;
    }
    if let Some(refusal) = waiting.refusal(&decision.object.metadata, Write::of(decision)) {
        return PoolOutcome::Waiting(refusal.problem.clone());
    }
    let written = match announce(ctx, decision, nodes).await {
        Ok(Announced::Ready(pool)) => write(ctx, decision, &pool).await,
        Ok(Announced::Not(outcome)) => return outcome,
        Err(error) => return PoolOutcome::Failed(error),
    };
    match written {
        Ok(write::Outcome::Written(_) | write::Outcome::AlreadyDone(_) | write::Outcome::Unchanged(_)) => {
            let (namespace, name) = planner::input::key(&decision.object.metadata);
            let from = decision.object.spec.replicas;
            let (reason, id) = (decision.reason.as_str(), &decision.id);
            info!(namespace, name, from, to = decision.desired, reason, decision = %id, "{}", decision.message);
            ctx.metrics.decided(decision);
            PoolOutcome::Scaled
        }
        Ok(write::Outcome::Conflict(_) | write::Outcome::Aborted) => PoolOutcome::Outdated,
        Ok(write::Outcome::Gone) => PoolOutcome::Gone,
        Err(source) => PoolOutcome::Failed(failed("spec.replicas", decision, source)),
    }
}

/// Whether the replicas may be written now, and to which object.
enum Announced {
    Ready(Box<NodePool>),
    Not(PoolOutcome),
}

/// Names the victims in the status, bound to the number of nodes that remain, before the replicas are written: the
/// `NodePool` operator must never see one without the other. A scale-up has nothing to announce; the list of an earlier
/// decision is removed first, so that a count is never combined with the nodes of another one.
async fn announce(ctx: &Context, decision: &PoolDecision, nodes: &[Arc<Node>]) -> Result<Announced, Error> {
    let pool = &decision.object;
    let plan = pool_status::victims(decision, nodes);
    if plan.is_none() && announced_list(pool).is_none() {
        return Ok(Announced::Ready(Box::new(NodePool::clone(pool))));
    }
    let mut outdated = false;
    let written = ctx.writer.node_pool_status(pool, |fresh| {
        outdated = fresh.spec.replicas != pool.spec.replicas
            || fresh.metadata.generation != pool.metadata.generation
            || fresh.metadata.uid != pool.metadata.uid;
        if outdated {
            // The decision is no longer valid; leave the status as it is.
            return pool_status::untouched(fresh);
        }
        pool_status::announcing(fresh, plan.as_ref())
    });
    let written = written.await.map_err(|source| failed("the scale-down plan", decision, source))?;
    Ok(if outdated && written.is_met() {
        Announced::Not(PoolOutcome::Outdated)
    } else {
        announced(written, plan.as_ref())
    })
}

/// The result of the announcement of `plan`.
fn announced(written: write::Outcome<NodePool>, plan: Option<&ScaleDownPlan>) -> Announced {
    match written {
        // Possibly read live after a conflict: the decision has looked at its generation, its replicas and its UID.
        write::Outcome::Unchanged(pool) => Announced::Ready(Box::new(pool)),
        write::Outcome::Written(pool) | write::Outcome::AlreadyDone(pool) if carries(&pool, plan) => {
            Announced::Ready(Box::new(pool))
        }
        // Another list is in the status: another writer was faster.
        write::Outcome::Written(_)
        | write::Outcome::AlreadyDone(_)
        | write::Outcome::Conflict(_)
        | write::Outcome::Aborted => Announced::Not(PoolOutcome::Outdated),
        write::Outcome::Gone => Announced::Not(PoolOutcome::Gone),
    }
}

/// Whether the list in the status of `pool` is that of `plan`, or absent if there is none.
fn carries(pool: &NodePool, plan: Option<&ScaleDownPlan>) -> bool {
    announced_list(pool).map(|list| &list.decision_id) == plan.map(|plan| &plan.decision_id)
}

/// The list that is in the status now.
fn announced_list(pool: &NodePool) -> Option<&ScaleDownPlan> {
    pool.status.as_ref()?.autoscaling.as_ref()?.scale_down.as_ref()
}

/// Writes the replicas if they are still what the decision was made from.
async fn write(
    ctx: &Context,
    decision: &PoolDecision,
    pool: &NodePool,
) -> Result<write::Outcome<Option<i32>>, WriterError> {
    let from = decision.object.spec.replicas;
    let decide = |current: Option<i32>| {
        if current == Some(decision.desired) {
            ScaleDecision::Keep
        } else if current == from {
            ScaleDecision::Set(decision.desired)
        } else {
            ScaleDecision::Abort
        }
    };
    ctx.writer.replicas(pool, decide).await
}

fn failed(what: &'static str, decision: &PoolDecision, source: WriterError) -> Error {
    let name = QualifiedName::of(&decision.object.metadata).to_string();
    Error::Write { what, kind: "NodePool", name, source }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_count_is_written_only_after_its_own_list() {
        let list = |id: &str| ScaleDownPlan { decision_id: id.to_owned(), ..ScaleDownPlan::default() };
        let pool = |current: Option<&str>| {
            let spec = json!({
                "maxReplicas": 5,
                "template": { "spec": { "capacity": { "cpu": "4", "memory": "8Gi" } } },
                "provider": { "simulated": {} },
            });
            let mut pool = NodePool::new("p", serde_json::from_value(spec).unwrap());
            let autoscaling = pool.status.get_or_insert_default().autoscaling.get_or_insert_default();
            autoscaling.scale_down = current.map(list);
            pool
        };
        for (own, current, ready) in [
            (Some("own"), Some("own"), true),
            (Some("own"), Some("another"), false),
            (Some("own"), None, false),
            (None, None, true),
            (None, Some("another"), false),
        ] {
            for written in [write::Outcome::Written, write::Outcome::AlreadyDone] {
                let answer = announced(written(pool(current)), own.map(list).as_ref());
                assert_eq!(
                    matches!(answer, Announced::Ready(_)),
                    ready,
                    "{own:?}, {current:?} is in the status"
                );
            }
        }
        // Unchanged is what the decision made of this very object, so that its list is the right one.
        let mut fresh = pool(Some("own"));
        fresh.metadata.resource_version = Some("7".to_owned());
        let answer = announced(write::Outcome::Unchanged(fresh.clone()), Some(&list("own")));
        assert!(matches!(answer, Announced::Ready(pool) if *pool == fresh));
        for (ended, gone) in [(write::Outcome::Aborted, false), (write::Outcome::Gone, true)] {
            let answer = announced(ended, Some(&list("own")));
            assert!(matches!(answer, Announced::Not(of) if matches!(of, PoolOutcome::Gone) == gone));
        }
    }
}
