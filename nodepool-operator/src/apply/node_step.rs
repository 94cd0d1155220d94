//! Carries out the plan's step for one node. Nothing is decided here.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::runtime::reflector::ObjectRef;
use serde_json::Value;
use shared_crds::names;
use shared_runtime::error::chain;
use shared_runtime::write::{DeleteOutcome, EvictOutcome, Outcome, WriterError};

use crate::context::Context;
use crate::error::Error;
use crate::memory::drains::{PodRemoval, RemovalResult};
use crate::outcome::{Applied, Blocked, Extent};
use crate::plan::{NodeAction, NodeStep, PodName, PoolKey, patches};
use crate::provider::{Deletion, ProviderError};

/// Carries out `step`. A node may have many pods: what has not started when the clock's monotonic time reaches
/// `deadline` is left for the next pass.
pub(crate) async fn carry_out(ctx: &Context, step: &NodeStep, deadline: Duration) -> Result<Applied, Error> {
    let node = &*step.member.node;
    let name = || node.metadata.name.clone().unwrap_or_default();
    let mut applied = Applied::default();
    match &step.action {
        NodeAction::Keep | NodeAction::Wait => {}
        NodeAction::Adopt => {
            patch(ctx, node, patches::add_node_finalizer(node), &mut applied).await?;
        }
        NodeAction::MarkReady => {
            patch(ctx, node, patches::mark_ready(node, ctx.clock.now()), &mut applied).await?;
        }
        NodeAction::Cordon => {
            // The time of the patch, not of the decision: pods that were created in between did not choose a cordoned
            // node.
            let now = ctx.clock.now();
            ctx.drains.drop_list(&name());
            if patch(ctx, node, patches::cordon(node, now), &mut applied).await? {
                applied.cordoned.push(name());
            }
        }
        NodeAction::Uncordon => {
            if patch(ctx, node, patches::uncordon(node), &mut applied).await? {
                applied.uncordoned.push(name());
            }
        }
        NodeAction::Drain { evict, delete, overdue: _ } => {
            let work = [(PodRemoval::Evict, evict), (PodRemoval::Delete, delete)];
            for (method, pod) in
                work.into_iter().flat_map(|(method, pods)| in_order_of_attempts(ctx, method, pods))
            {
                if is_over(ctx, deadline, &mut applied) {
                    return Ok(applied);
                }
                remove_pod(ctx, (method, &name(), pod), &mut applied).await?;
            }
        }
        NodeAction::Replace => {
            if delete(ctx, node, &mut applied).await? {
                applied.replaced.push(name());
            }
        }
        NodeAction::ReplaceLost => {
            if delete(ctx, node, &mut applied).await? {
                applied.lost.push(name());
            }
        }
        NodeAction::Remove => remove(ctx, node, &mut applied).await?,
    }
    Ok(applied)
}

/// Whether the pass has run out of time, which is then recorded in `applied`.
fn is_over(ctx: &Context, deadline: Duration, applied: &mut Applied) -> bool {
    let over = ctx.clock.monotonic() >= deadline;
    if over {
        applied.extent = applied.extent.max(Extent::CutShort);
    }
    over
}

/// Adds to an error what the write was about.
pub(crate) fn written<T>(
    what: &'static str,
    result: Result<Outcome<T>, WriterError>,
) -> Result<Outcome<T>, Error> {
    result.map_err(|source| Error::Write { what, source })
}

/// Patches the node; `true` when it is now in the wanted state.
pub(super) async fn patch(
    ctx: &Context,
    node: &Node,
    patch: Value,
    applied: &mut Applied,
) -> Result<bool, Error> {
    let api: Api<Node> = Api::all(ctx.client.clone());
    match written("a node", ctx.writer.json_patch(&api, node, patch).await)? {
        Outcome::Written(_) | Outcome::AlreadyDone(_) | Outcome::Unchanged(_) => Ok(true),
        Outcome::Gone => Ok(false),
        Outcome::Conflict(_) | Outcome::Aborted => {
            applied.extent = Extent::Conflict;
            Ok(false)
        }
    }
}

/// Deletes the node in the version that was observed; `true` when this node is terminating or gone. A node that has
/// changed may have been uncordoned: the next pass decides again from its current state. The same happens when the
/// kubelet has just updated the node status, which costs a pass. Heartbeats are leases and do not change the node.
pub(super) async fn delete(ctx: &Context, node: &Node, applied: &mut Applied) -> Result<bool, Error> {
    let api: Api<Node> = Api::all(ctx.client.clone());
    let deleted = ctx
        .writer
        .delete_unchanged(&api, node)
        .await
        .map_err(|source| Error::Write { what: "a node", source })?;
    match deleted {
        DeleteOutcome::Deleted | DeleteOutcome::Terminating(_) | DeleteOutcome::Gone => Ok(true),
        DeleteOutcome::Conflict(_) => {
            applied.extent = Extent::Conflict;
            Ok(false)
        }
    }
}

/// Deletes the node unless it is already being deleted, then its machine, and removes its finalizer. Once the Node is
/// being deleted, nothing brings it back, so the machine goes only then, and again after a restart.
async fn remove(ctx: &Context, node: &Node, applied: &mut Applied) -> Result<(), Error> {
    if node.metadata.deletion_timestamp.is_none() && !delete(ctx, node, applied).await? {
        return Ok(());
    }
    let Some(patch) = patches::remove_node_finalizer(node) else {
        return Ok(());
    };
    match provided("the machine of a node", delete_machine(ctx, node).await, applied)? {
        Some(Deletion::Gone | Deletion::HandedOver) => {}
        // Its kubelet would register the Node again.
        Some(Deletion::Started) => {
            applied.machines_ending += 1;
            return Ok(());
        }
        None => return Ok(()),
    }
    let api: Api<Node> = Api::all(ctx.client.clone());
    match written("a node's finalizer", ctx.writer.json_patch(&api, node, patch).await)? {
        Outcome::Written(_) | Outcome::AlreadyDone(_) | Outcome::Unchanged(_) | Outcome::Gone => {
            applied.removed.push(node.metadata.name.clone().unwrap_or_default());
        }
        Outcome::Conflict(_) | Outcome::Aborted => applied.extent = Extent::Conflict,
    }
    Ok(())
}

/// Deletes the machine of a node of a pool.
async fn delete_machine(ctx: &Context, node: &Node) -> Result<Deletion, ProviderError> {
    let (Some(key), Some(name)) = (PoolKey::of_node(node), names::machine_of(&node.metadata)) else {
        return Ok(Deletion::Gone);
    };
    let pool = ctx.pools.get(&ObjectRef::new(&key.name).within(&key.namespace));
    let made_by = node.metadata.labels.as_ref().and_then(|labels| labels.get(names::PROVIDER_LABEL));
    ctx.provisioner.delete(&key, pool.as_deref(), made_by.map(String::as_str), name).await
}

/// The answer of a provider; `None` where another writer changed its objects first, so that the pass is repeated.
pub(super) fn provided<T>(
    what: &'static str,
    answer: Result<T, ProviderError>,
    applied: &mut Applied,
) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ProviderError::Conflict) => {
            applied.extent = Extent::Conflict;
            Ok(None)
        }
        Err(source) => Err(Error::Provider { what, source }),
    }
}

fn pods(ctx: &Context, pod: &Pod) -> Api<Pod> {
    Api::namespaced(ctx.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
}

fn in_order_of_attempts<'a>(
    ctx: &Context,
    method: PodRemoval,
    pods: &'a [Pod],
) -> Vec<(PodRemoval, &'a Pod)> {
    ctx.drains.in_order_of_attempts(method, pods).into_iter().map(|pod| (method, pod)).collect()
}

/// Evicts or deletes a pod of `node`, unless that was attempted a moment ago.
async fn remove_pod(
    ctx: &Context,
    (method, node, pod): (PodRemoval, &str, &Pod),
    applied: &mut Applied,
) -> Result<(), Error> {
    let result = if let Some(result) = ctx.drains.recent_result(method, pod) {
        result
    } else {
        let attempt = match method {
            PodRemoval::Evict => evict(ctx, node, pod, applied).await,
            PodRemoval::Delete => delete_pod(ctx, node, pod, applied).await,
        };
        // A failure counts as an attempt too: otherwise the same pod would come first again and fail the next pass too.
        ctx.drains.record_result(
            method,
            pod,
            attempt.as_ref().map_or(RemovalResult::Unknown, RemovalResult::clone),
        );
        attempt?
    };
    if let RemovalResult::Refused(blocked) = result {
        applied.blocked.push(blocked);
    }
    Ok(())
}

fn refused(node: &str, pod: &Pod, message: String) -> RemovalResult {
    RemovalResult::Refused(Blocked { node: node.to_owned(), pod: PodName::of(pod), message })
}

async fn evict(ctx: &Context, node: &str, pod: &Pod, applied: &mut Applied) -> Result<RemovalResult, Error> {
    let result = match ctx.writer.evict(&pods(ctx, pod), pod).await {
        Ok(EvictOutcome::Evicted) => {
            applied.evicted += 1;
            RemovalResult::Terminating
        }
        Ok(EvictOutcome::Gone | EvictOutcome::Conflict(_)) => RemovalResult::Terminating,
        Ok(EvictOutcome::Blocked { message, .. }) => refused(node, pod, message),
        Err(source) if source.is_refusal() => refused(node, pod, chain(&source)),
        Err(source) => return Err(Error::Write { what: "an eviction", source }),
    };
    if matches!(result, RemovalResult::Refused(_)) {
        applied.refused += 1;
    }
    Ok(result)
}

/// Deletes the pod with its own grace period. A refusal is about this one pod, as with evictions.
async fn delete_pod(
    ctx: &Context,
    node: &str,
    pod: &Pod,
    applied: &mut Applied,
) -> Result<RemovalResult, Error> {
    match ctx.writer.delete(&pods(ctx, pod), pod).await {
        Ok(DeleteOutcome::Deleted | DeleteOutcome::Terminating(_)) => {
            applied.deleted_pods += 1;
            Ok(RemovalResult::Terminating)
        }
        Ok(DeleteOutcome::Gone | DeleteOutcome::Conflict(_)) => Ok(RemovalResult::Terminating),
        Err(source) if source.is_refusal() => Ok(refused(node, pod, chain(&source))),
        Err(source) => Err(Error::Write { what: "a pod", source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{annotate, draining, node, pod, step};
    use crate::testing::{TestContext, failure, success};

    /// A deadline that never comes.
    const ENDLESS: Duration = Duration::MAX;

    fn drain(pods: &[&str]) -> NodeStep {
        let evict = pods.iter().map(|name| pod(name)).collect();
        step(draining(0, 5), NodeAction::Drain { evict, delete: vec![], overdue: None })
    }

    fn forced(pods: &[&str]) -> NodeStep {
        let delete = pods.iter().map(|name| pod(name)).collect();
        step(draining(0, 5), NodeAction::Drain { evict: vec![], delete, overdue: None })
    }

    #[tokio::test]
    async fn a_refused_eviction_does_not_stop_the_eviction_of_the_next_pod() {
        let test = TestContext::new(|path, _| match path {
            path if path.contains("/two-budgets/") => {
                failure(500, "InternalError", "This pod has more than one PodDisruptionBudget")
            }
            path if path.contains("/ending-namespace/") => {
                failure(403, "Forbidden", "it is being terminated")
            }
            _ => success(),
        });
        let step = drain(&["two-budgets", "ending-namespace", "web"]);
        let applied = carry_out(&test.ctx, &step, ENDLESS).await.unwrap();
        assert_eq!(applied.evicted, 1);
        let blocked: Vec<_> = applied.blocked.iter().map(|blocked| blocked.pod.name.as_str()).collect();
        assert_eq!(blocked, ["two-budgets", "ending-namespace"]);
        assert!(applied.blocked[0].message.contains("more than one PodDisruptionBudget"), "{applied:?}");
        assert!(applied.complete(), "a blocked drain is no failure");
    }

    #[tokio::test]
    async fn pods_that_stay_do_not_stop_the_removal_of_others_in_a_later_pass() {
        for (code, forced) in [(403, false), (403, true), (504, false), (504, true)] {
            let test = TestContext::new(move |path, clock| {
                clock.advance(Duration::from_secs(3));
                if path.contains("/stuck") {
                    failure(code, "Stuck", "denied by a webhook")
                } else {
                    success()
                }
            });
            let step = if forced { self::forced } else { drain }(&["stuck-1", "stuck-2", "free"]);
            // Refusals take two passes, failures one each.
            for _ in 0..3 {
                let deadline = test.ctx.clock.monotonic() + Duration::from_secs(5);
                let _ = carry_out(&test.ctx, &step, deadline).await;
                test.time.advance(Duration::from_secs(5));
            }
            let requests = test.requests();
            assert!(
                requests.iter().any(|line| line.contains("/free")),
                "{code}, forced: {forced}: {requests:?}"
            );
        }
    }

    #[tokio::test]
    async fn an_eviction_without_an_answer_fails_the_pass() {
        let test = TestContext::new(|_, _| failure(504, "Timeout", "the request did not complete"));
        let error = carry_out(&test.ctx, &drain(&["a", "b"]), ENDLESS).await.unwrap_err();
        assert!(matches!(error, Error::Write { what: "an eviction", .. }), "{error:?}");
        assert!(test.requests().iter().all(|line| !line.contains("/pods/b/")), "{:?}", test.requests());
    }

    #[tokio::test]
    async fn no_pod_is_evicted_or_deleted_after_the_deadline() {
        let test = TestContext::new(|_, clock| {
            clock.advance(Duration::from_secs(3));
            success()
        });
        let deadline = test.ctx.clock.monotonic() + Duration::from_secs(5);
        let applied = carry_out(&test.ctx, &drain(&["a", "b", "c"]), deadline).await.unwrap();
        assert_eq!((applied.evicted, applied.extent), (2, Extent::CutShort));
        let applied = carry_out(&test.ctx, &forced(&["d"]), deadline).await.unwrap();
        assert_eq!((applied.deleted_pods, applied.extent), (0, Extent::CutShort));
        assert_eq!(test.requests().len(), 2);
    }

    #[tokio::test]
    async fn a_drain_that_ran_out_of_time_deletes_pods_with_their_own_grace_and_not_the_node() {
        let test = TestContext::new(|path, _| match path {
            path if path.contains("/pods/denied") => failure(403, "Forbidden", "denied by a webhook"),
            _ => success(),
        });
        let applied = carry_out(&test.ctx, &forced(&["denied", "web"]), ENDLESS).await.unwrap();
        assert_eq!((applied.deleted_pods, applied.blocked.len()), (1, 1), "{applied:?}");
        let requests = test.requests();
        assert_eq!(requests.len(), 2, "{requests:?}");
        let own_grace = |line: &String| line.contains("/pods/") && !line.contains("gracePeriodSeconds");
        assert!(requests.iter().all(own_grace), "{requests:?}");
    }

    #[tokio::test]
    async fn a_node_that_changed_since_its_removal_was_decided_is_not_deleted_and_is_a_conflict() {
        for action in [NodeAction::Remove, NodeAction::Replace] {
            let test =
                TestContext::new(|_, _| failure(409, "Conflict", "the ResourceVersion in the precondition"));
            let mut node = draining(0, 5);
            node.metadata.resource_version = Some("7".into());
            let applied = carry_out(&test.ctx, &step(node, action), ENDLESS).await.unwrap();
            assert_eq!(applied, Applied { extent: Extent::Conflict, ..Applied::default() });
            let requests = test.requests();
            assert_eq!(
                requests.len(),
                1,
                "no finalizer is removed, and no second attempt in this pass: {requests:?}"
            );
            assert!(
                requests[0].contains(r#""resourceVersion":"7""#) && requests[0].contains(r#""uid":"#),
                "{requests:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_drain_starts_when_the_node_is_cordoned_not_when_that_was_decided() {
        let test = TestContext::new(|_, _| success());
        test.time.advance(Duration::from_millis(40_100));
        let mut marked = node(0);
        annotate(&mut marked, "x", "y");
        let _ = carry_out(&test.ctx, &step(marked, NodeAction::Cordon), ENDLESS).await;
        let requests = test.requests();
        assert!(requests[0].contains("1970-01-01T00:00:41Z"), "{requests:?}");
    }
}
