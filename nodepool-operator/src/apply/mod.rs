//! Carries out a plan. The writes are ordered so that the pass can stop after any of them. Nothing is decided here: a
//! write that fails with a conflict is a result, and the next pass plans from the state of the cluster at that time.
//!
//! Order: delete machines that will never run; add the pool's finalizer; take nodes out of the replica count; then uncordon nodes and
//! create new ones, fewer by those that should have made room and did not go. A pass that stops half-way therefore leaves too few
//! nodes, never too many.

mod drain_step;
mod failed_machines;
mod growth;
mod node_step;
pub(crate) mod node_write;
mod request;
mod withdraw;

use std::future::Future;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, CustomResourceExt as _};
use machine_providers::ProviderError;
use node_lifecycle::facts::Facts;
use node_lifecycle::on_delete::is_orphaning;
use node_lifecycle::outcome::{ActionOutcome, Applied, AppliedAction, Extent};
use node_lifecycle::supply::ProvisioningFailure;
use node_lifecycle::{JoinStep, NodeAction, NodeStep, Plan, PoolKey, PoolStep, patches};
use shared_crds::NodePool;
use shared_runtime::write::{self, Created};
use tracing::info;

use self::node_step::carry_out;
use self::node_write::written;
use self::request::request;
use self::withdraw::{withdraw, withdraw_all};
use crate::context::Context;
use crate::error::{Error, Read, Write};
use crate::observe::Seen;

/// No further write starts after this time. A decision about many nodes should not be carried out long after it was
/// made, and an operator that is told to stop must finish within the Pod's termination grace period.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Number of concurrent writes.
const PARALLEL_WRITES: usize = 16;

/// The result of a pass: what was done, and what went wrong.
#[derive(Debug, Default)]
pub(crate) struct PassResult {
    /// What was done.
    pub applied: Applied,
    /// What failed of the provider's machines, as its list and the deletion of failed ones show.
    pub failures: Vec<ProviderError>,
    /// A provider failure that was detected in this pass.
    pub failure: Option<ProvisioningFailure>,
    /// The counts after the writes; `None` without a pool.
    pub facts: Option<Facts>,
    /// The first error. Everything in the plan that did not depend on it was still carried out.
    pub error: Option<Error>,
}

impl PassResult {
    /// Merges the result of another part of the plan.
    pub(crate) fn absorb(&mut self, part: Result<Applied, Error>) {
        match part {
            Ok(applied) => self.applied.absorb(applied),
            Err(error) => {
                let rejected = error.rejection();
                self.applied.absorb(Applied { rejected, extent: Extent::Failed, ..Applied::default() });
                self.error.get_or_insert(error);
            }
        }
    }
}

/// Carries out `plan` against the API server and the provider, and counts what there is after it.
pub(crate) async fn apply(ctx: &Context, seen: &Seen, plan: &Plan) -> PassResult {
    ctx.protections.record(&seen.observed.key, plan.protected.iter().cloned());
    ctx.protections.record_unprotected(&seen.observed.key, plan.unprotected.iter().cloned());
    ctx.protections.record_unread(&seen.observed.key, plan.unread.iter().cloned());
    let mut result = PassResult::default();
    let found = failed_machines::end(ctx, seen, plan, &mut result).await;
    carry_out_plan(ctx, seen, plan, &mut result).await;
    record_provisioning(ctx, seen, found, &mut result);
    result.facts = count(ctx, seen, plan, &result);
    result
}

/// The writes in their order.
async fn carry_out_plan(ctx: &Context, seen: &Seen, plan: &Plan, result: &mut PassResult) {
    if let Some(pool) = seen.observed.pool.as_deref() {
        result.absorb(change_pool_finalizer(ctx, pool, plan.pool).await);
        if !result.applied.complete() || result.applied.finalizer_removed {
            return;
        }
    }
    let deadline = ctx.clock.monotonic().saturating_add(TIME_LIMIT);
    // Before anything else: until its taints are there, every pod may come to a Node that has just registered.
    all(ctx, deadline, plan.join.iter().map(|step| join(ctx, step)), result).await;
    all(ctx, deadline, plan.left_over.iter().map(|node| delete_left_over(ctx, node)), result).await;
    let removals: Vec<&NodeStep> = plan.nodes.iter().filter(|step| is_removal(step)).collect();
    let mut removed = PassResult::default();
    all(ctx, deadline, removals.into_iter().map(|step| carry_out(ctx, step, deadline)), &mut removed).await;
    // A Node that cannot join counts all the same, so it keeps no other one from coming.
    let reduced = growth::reduced(plan, &removed.applied);
    let plan = reduced.as_ref().unwrap_or(plan);
    result.applied.absorb(removed.applied);
    result.error = result.error.take().or(removed.error);
    let others: Vec<&NodeStep> = plan.nodes.iter().filter(|step| !is_removal(step)).collect();
    let others =
        others.into_iter().filter(|step| !matches!(step.action, NodeAction::Keep | NodeAction::Wait));
    all(ctx, deadline, others.map(|step| carry_out(ctx, step, deadline)), result).await;
    withdraw_all(ctx, seen, plan, deadline, result).await;
    // Their machines count already.
    all(ctx, deadline, plan.register.iter().map(|node| create(ctx, seen, node)), result).await;
    request(ctx, plan, seen, deadline, result).await;
    result.absorb(fill(ctx, seen, plan).await);
}

/// Whether the step takes a node out of the replica count. One that already leaves is no replica: what fails for it leaves the count as
/// it was planned.
fn is_removal(step: &NodeStep) -> bool {
    step.action.removes_replica() && step.member.stays()
}

/// Counts nodes and requests after the writes, and records that the pool has every node it wants.
fn count(ctx: &Context, seen: &Seen, plan: &Plan, result: &PassResult) -> Option<Facts> {
    let observed = &seen.observed;
    let facts = Facts::count(observed, observed.pool.as_deref()?, plan, &result.applied);
    let backs_off = ctx.provisioner.backs_off(&observed.key, observed.now);
    // What the provider refuses to a rollout for lack of room it may refuse again: its backoff is kept.
    let is_complete =
        if facts.is_rolling() { facts.is_between_steps() && !backs_off } else { facts.all_ready() };
    let has_failed = !result.failures.is_empty() || matches!(result.error, Some(Error::Provider { .. }));
    if is_complete && !has_failed {
        ctx.provisioner.pool_complete(&observed.key);
    }
    let (failure, provisioning) =
        (ctx.provisioner.last_failure(&observed.key), ctx.provisioner.remembered(&observed.key));
    let outdated_crd = ctx.served.statement(NodePool::crd_name());
    Some(facts.with_failure(failure, provisioning).with_outdated_crd(outdated_crd))
}

/// Runs all of `work` with limited concurrency. What has not started at `deadline` is left for the next pass.
async fn all<F>(
    ctx: &Context,
    deadline: Duration,
    work: impl Iterator<Item = F> + Send,
    result: &mut PassResult,
) where
    F: Future<Output = Result<Applied, Error>> + Send,
{
    at_most(PARALLEL_WRITES, ctx, deadline, work, result).await;
}

/// The same with so many of them at a time.
async fn at_most<F>(
    parallel: usize,
    ctx: &Context,
    deadline: Duration,
    work: impl Iterator<Item = F> + Send,
    result: &mut PassResult,
) where
    F: Future<Output = Result<Applied, Error>> + Send,
{
    let in_time = |work: F| async move {
        if ctx.clock.monotonic() < deadline {
            work.await
        } else {
            Ok(Applied { extent: Extent::CutShort, ..Applied::default() })
        }
    };
    // Each is made when its turn comes: a creation takes 6 KiB, and a pass may have thousands of them.
    let (mut work, mut running) = (work.map(in_time), FuturesUnordered::new());
    loop {
        running.extend(work.by_ref().take(parallel - running.len()));
        let Some(part) = running.next().await else { return };
        result.absorb(part);
    }
}

/// Records whether the provider succeeded or failed in this pass, however far that came. `found` is the pool's failure with what the
/// pass has found.
fn record_provisioning(
    ctx: &Context,
    seen: &Seen,
    found: Option<ProvisioningFailure>,
    result: &mut PassResult,
) {
    let observed = &seen.observed;
    // A list that was not repeated stands at the end: it failed, and was counted and told, in an earlier pass.
    let new = result.failures.len().saturating_sub(seen.findings.repeated.len());
    for error in &result.failures[..new] {
        ctx.metrics.failed(error.reason());
    }
    if new > 0 {
        result.failure = found;
    }
    let is_new = |action: AppliedAction| matches!(action, AppliedAction::Create | AppliedAction::Join);
    let has_new = result.applied.names(is_new).next().is_some();
    if has_new && result.failures.is_empty() {
        ctx.provisioner.node_created(&observed.key, observed.now);
    }
}

async fn change_pool_finalizer(ctx: &Context, pool: &NodePool, step: PoolStep) -> Result<Applied, Error> {
    let patch = match step {
        PoolStep::Keep => None,
        PoolStep::AddFinalizer => Some(patches::add_pool_finalizer(pool)),
        PoolStep::RemoveFinalizer => patches::remove_pool_finalizer(pool),
    };
    let Some(patch) = patch else {
        return Ok(Applied::default());
    };
    let api = Api::namespaced(ctx.client.clone(), pool.metadata.namespace.as_deref().unwrap_or_default());
    let result = ctx.writer.json_patch(&api, pool, patch).await;
    let mut applied = Applied::default();
    let patched = written(Write::PoolFinalizer, result)?;
    applied.changed = matches!(patched, write::Outcome::Written(_));
    match patched {
        write::Outcome::Written(_) | write::Outcome::AlreadyDone(_) | write::Outcome::Unchanged(_) => {
            applied.finalizer_removed = step == PoolStep::RemoveFinalizer;
        }
        write::Outcome::Gone => applied.finalizer_removed = true,
        write::Outcome::Conflict(_) | write::Outcome::Aborted => applied.extent = Extent::Conflict,
    }
    if applied.finalizer_removed && step == PoolStep::RemoveFinalizer && !is_orphaning(pool) {
        ctx.gone_pools.ended(PoolKey::of_pool(pool));
    }
    Ok(applied)
}

/// Sets `spec.replicas` where it is unset, so that readers of `/scale` (which answers 500 until then) can start. The
/// first writer wins: the patch succeeds only while the field is unset and the spec is the one that was observed.
async fn fill(ctx: &Context, seen: &Seen, plan: &Plan) -> Result<Applied, Error> {
    let mut applied = Applied::default();
    let (Some(pool), Some(replicas)) = (seen.observed.pool.as_deref(), plan.fill) else {
        return Ok(applied);
    };
    let api = Api::namespaced(ctx.client.clone(), pool.metadata.namespace.as_deref().unwrap_or_default());
    let filled = ctx.writer.json_patch(&api, pool, patches::fill_replicas(pool, replicas)).await;
    let patched = written(Write::PoolReplicas, filled)?;
    applied.changed = matches!(patched, write::Outcome::Written(_));
    match patched {
        write::Outcome::Written(_)
        | write::Outcome::AlreadyDone(_)
        | write::Outcome::Unchanged(_)
        | write::Outcome::Gone => {}
        write::Outcome::Conflict(_) | write::Outcome::Aborted => applied.extent = Extent::Conflict,
    }
    Ok(applied)
}

/// Makes a Node that registered itself a node of the pool.
async fn join(ctx: &Context, step: &JoinStep) -> Result<Applied, Error> {
    let mut applied = Applied::default();
    if node_write::patch(ctx, &step.node, step.patch.clone(), &mut applied).await? {
        applied.absorb(Applied::done(AppliedAction::Join, step.node.metadata.name.clone()));
    }
    Ok(applied)
}

/// Deletes a Node whose machine is gone and that never was a node of the pool, or one that came when the pool was gone. It is annotated
/// first: the chart's admission policy lets the operator delete no Node that does not show to be its own.
async fn delete_left_over(ctx: &Context, node: &Node) -> Result<Applied, Error> {
    let mut applied = Applied::default();
    let marked = node_write::patched(ctx, node, patches::mark_left_over(node), &mut applied).await?;
    if let Some(node) = marked
        && node_write::delete(ctx, &node, &mut applied).await?
    {
        info!(
            node = node.metadata.name,
            "deleted the Node of a machine that was withdrawn, or that came after its pool had gone"
        );
    }
    Ok(applied)
}

async fn create(ctx: &Context, seen: &Seen, node: &Node) -> Result<Applied, Error> {
    let api: Api<Node> = Api::all(ctx.client.clone());
    let name = node.metadata.name.clone().unwrap_or_default();
    let mut applied = Applied::default();
    match ctx
        .writer
        .create(&api, node)
        .await
        .map_err(|source| Error::Write { what: Write::CreateNode, source })?
    {
        Created::Created(_) => {
            applied.record(name, AppliedAction::Create, ActionOutcome::Done);
            applied.changed = true;
        }
        Created::AlreadyExists => {
            // Either this is our own creation from before a restart, which a live read will show, or a foreign node has
            // the name of one of the pool's slots.
            if is_foreign(&api, seen, &name).await? {
                ctx.provisioner.slot_taken(&seen.observed.key, &name);
                withdraw(ctx, seen, &name).await?;
            }
            ctx.invalidate(&seen.observed.key);
            applied.extent = Extent::Conflict;
        }
    }
    Ok(applied)
}

async fn is_foreign(api: &Api<Node>, seen: &Seen, name: &str) -> Result<bool, Error> {
    let what = Read::Node;
    // The labels tell which pool the node belongs to. The rest of the object may be the part that cannot be read.
    let existing = tokio::time::timeout(TIME_LIMIT, api.get_metadata_opt(name))
        .await
        .map_err(|_elapsed| Error::ReadTimeout { what, limit: TIME_LIMIT })?
        .map_err(|source| Error::Read { what, source })?;
    Ok(existing.is_some_and(|node| PoolKey::of_labelled(&node.metadata).as_ref() != Some(&seen.observed.key)))
}

#[cfg(test)]
mod provider_tests;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::jiff::Timestamp;
    use kube::Client;
    use kube::client::Body;
    use machine_providers::provisioner::{ListFindings, Lists};
    use node_lifecycle::outcome::RejectedWrite;
    use node_lifecycle::testing::{draining, key, node, observed, plan, pool, prefix, step};
    use serde_json::json;
    use shared_crds::conditions::Reason;
    use shared_crds::names;
    use shared_crds::v1alpha1::{KarpenterProvider, ProviderSpec};

    use super::*;
    use crate::testing::{TestContext, failure};

    fn seen() -> Seen {
        Seen { observed: observed(pool(1), []), findings: ListFindings::default() }
    }

    #[tokio::test]
    async fn no_more_work_is_prepared_than_is_under_way() {
        let test = TestContext::new(|_, _| failure(500, "InternalError", "not requested"));
        let (under_way, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = (0..100).map(|_| {
            most.fetch_max(under_way.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            async {
                tokio::task::yield_now().await;
                under_way.fetch_sub(1, Ordering::Relaxed);
                Ok(Applied::done(AppliedAction::Create, ["n"]))
            }
        });
        let mut result = PassResult::default();
        at_most(3, &test.ctx, Duration::MAX, work, &mut result).await;
        assert_eq!((result.applied.count(AppliedAction::Create), most.into_inner()), (100, 3));
    }

    #[tokio::test]
    async fn the_pool_of_a_node_is_known_although_the_rest_of_it_is_unreadable() {
        for (owner, is_foreign_node) in [(Some(key()), false), (None, true)] {
            let labels = owner.map(
                |key| json!({ names::MEMBER_LABEL: key.name, names::MEMBER_NAMESPACE_LABEL: key.namespace }),
            );
            let test = TestContext::new(move |_, _| {
                (
                    200,
                    json!({ "metadata": { "name": "n", "labels": labels }, "status": { "conditions": "what is this?" } }),
                )
            });
            let api = Api::all(test.ctx.client.clone());
            assert_eq!(is_foreign(&api, &seen(), "n").await.unwrap(), is_foreign_node);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_of_a_node_that_is_never_answered_times_out() {
        let silent = tower::service_fn(|_: http::Request<Body>| async {
            std::future::pending::<Result<http::Response<Body>, tower::BoxError>>().await
        });
        let api = Api::all(Client::new(silent, "default"));
        let seen = seen();
        let read = tokio::time::timeout(TIME_LIMIT * 2, is_foreign(&api, &seen, "n")).await;
        assert!(matches!(read, Ok(Err(Error::ReadTimeout { .. }))), "{read:?}");
    }

    #[tokio::test]
    async fn a_node_that_is_left_over_is_annotated_before_it_is_deleted() {
        let marked = || {
            let mut node = node(0);
            node.metadata.resource_version = Some("8".to_owned());
            serde_json::to_value(node).unwrap()
        };
        for (conflicts, deleted) in [(false, true), (true, false)] {
            let test = TestContext::new(move |_, _| {
                if conflicts { failure(409, "Conflict", "it has been modified") } else { (200, marked()) }
            });
            let _ = delete_left_over(&test.ctx, &node(0)).await;
            let requests = test.requests();
            assert!(requests[0].starts_with("PATCH /api/v1/nodes/"), "{requests:?}");
            assert!(requests[0].contains("tandem.dev~1left-over"), "{requests:?}");
            // In the version that the annotation has made.
            let is_deletion =
                |line: &String| line.starts_with("DELETE ") && line.contains(r#""resourceVersion":"8""#);
            assert_eq!(requests.iter().any(is_deletion), deleted, "{requests:?}");
        }
    }

    #[tokio::test]
    async fn a_deletion_that_fails_stops_the_pool_from_growing_only_if_the_node_counted() {
        let leaving = || draining(0, -100);
        for (node, action, grows) in [
            (leaving(), NodeAction::Remove, 1),
            (leaving(), NodeAction::ReplaceLost, 1),
            (node(0), NodeAction::ReplaceLost, 0),
            (node(0), NodeAction::Replace, 0),
        ] {
            let test = TestContext::new(|path, _| match path {
                path if path.contains("/nodes/") => {
                    failure(409, "Conflict", "the ResourceVersion in the precondition")
                }
                _ => failure(500, "InternalError", "not requested"),
            });
            let seen = seen();
            let mut plan = plan(&seen.observed);
            plan.nodes = vec![step(node, action.clone())];
            let result = apply(&test.ctx, &seen, &plan).await;
            assert_eq!(result.applied.extent, Extent::Conflict, "{action:?}: the pass is repeated");
            assert_eq!(result.applied.count(AppliedAction::Request), grows, "{action:?}");
        }
    }

    #[tokio::test]
    async fn a_machine_that_did_not_come_in_time_is_explained_in_its_makers_words() {
        let name = format!("{}0", prefix());
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": name, "uid": "u", "resourceVersion": "1",
                "labels": { names::NODEPOOL_LABEL: key().name, names::NODEPOOL_NAMESPACE_LABEL: key().namespace },
            },
            "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "n" } },
            "status": { "conditions": [{
                "type": "Launched", "status": "Unknown", "reason": "LaunchFailed", "message": "no such subnet",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }] },
        });
        let test = TestContext::new(move |path, _| match path {
            path if path.contains("/nodeclaims?") => (
                200,
                json!({ "kind": "NodeClaimList", "apiVersion": "karpenter.sh/v1", "metadata": {}, "items": [claim] }),
            ),
            path if path.contains("/nodeclaims/") => (200, claim.clone()),
            _ => failure(500, "InternalError", "not requested"),
        });
        let mut pool = pool(1);
        let karpenter = Some(KarpenterProvider::default());
        pool.spec.provider = ProviderSpec { karpenter, ..ProviderSpec::default() };
        let (supply, _) = test
            .ctx
            .provisioner
            .supply(&key(), Some(&pool), None, |_| false, Lists::Now, Timestamp::UNIX_EPOCH)
            .await;
        let mut seen = Seen { observed: observed(pool, []), findings: ListFindings::default() };
        seen.observed.supply = supply;
        let mut plan = plan(&seen.observed);
        plan.timed_out = vec![name.clone()];
        let result = apply(&test.ctx, &seen, &plan).await;
        let late: Vec<&str> = result.applied.names(|action| action == AppliedAction::TimeOut).collect();
        assert_eq!(late, [name.as_str()]);
        let said = test.ctx.provisioner.last_failure(&key()).unwrap().message;
        let expected = format!(
            "1 of the machines did not register a Node within spec.provisioningTimeoutSeconds: NodeClaim {name}: Launched \
             is Unknown, LaunchFailed: no such subnet"
        );
        assert_eq!(said, expected);
    }

    #[tokio::test]
    async fn a_forbidden_creation_is_reported_as_rejected() {
        let test = TestContext::new(|_, _| failure(403, "Forbidden", "no right to create nodes"));
        let seen = Seen { observed: observed(pool(1), []), findings: ListFindings::default() };
        let mut plan = plan(&seen.observed);
        plan.register = vec![node(0)];
        let result = apply(&test.ctx, &seen, &plan).await;
        let rejected = result.applied.rejected.unwrap();
        assert_eq!((rejected.write, rejected.reason), (RejectedWrite::Creation, Reason::WriteForbidden));
        assert!(
            rejected.message.contains("a new node") && rejected.message.contains("no right"),
            "{rejected:?}"
        );
        assert_eq!(result.applied.extent, Extent::Failed);
    }
}
