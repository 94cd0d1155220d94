//! One pass over one pool: observe, read pods, plan, apply, report, and when to come back.

use std::sync::Arc;
use std::time::Duration;

use node_lifecycle::outcome::Extent;
use node_lifecycle::{Classified, Observed, ObservedPods, Plan, PoolKey};
use shared_runtime::controller::Step;
use tracing::warn;

use crate::apply::{PassResult, apply};
use crate::attachments;
use crate::context::Context;
use crate::error::Error;
use crate::observe::{Seen, observe, unreadable, with_machines_of_now};
use crate::pod_reads::{self, ReadsEnd};
use crate::report::{self, Reported, report};

/// Interval of the passes of a pool whose pods are listed a few at a time.
const DEFERRED_RETRY: Duration = Duration::from_secs(2);

/// Brings the pool one step closer to its wanted state.
pub(crate) async fn reconcile(ctx: Arc<Context>, key: PoolKey) -> Result<Step, Error> {
    if let Some(pool) = unreadable(&ctx, &key) {
        return report::unreadable(&ctx, &pool).await;
    }
    let Some(seen) = observe(&ctx, &key).await? else { return Ok(Step::Stale) };
    let (classified, pods) = read_pods(&ctx, &seen.observed).await;
    let (seen, plan) = plan(&ctx, seen, classified, &pods).await;
    let result = apply(&ctx, &seen, &plan).await;
    let reported = report(&ctx, &seen, &plan, &result).await;
    next(&ctx, &seen, &pods, &plan, result, reported)
}

/// What the plan needs beside what was observed: the nodes' states, their pods as far as they may be listed now, and the volumes of
/// those without pods.
async fn read_pods(ctx: &Context, observed: &Observed) -> (Classified, ObservedPods) {
    let mut classified = node_lifecycle::classify(observed);
    pod_reads::choose(ctx, observed, &mut classified);
    let end = ReadsEnd::from_now(ctx);
    let mut pods = pod_reads::pods(ctx, observed, &classified.reads, end).await;
    let emptied = classified.emptied(observed, &pods);
    pods.attached = attachments::attached(ctx, &observed.key, &emptied, &pods, end).await;
    (classified, pods)
}

/// The plan, and what it was made from. It is made again from the machines of now if it was made from a list of a moment ago and changes
/// anything. The pods stay those that were read: listed again so soon, they would come from memory, which is never enough to remove a
/// node.
async fn plan(ctx: &Context, seen: Seen, classified: Classified, pods: &ObservedPods) -> (Seen, Plan) {
    let plan = node_lifecycle::plan(&seen.observed, classified, pods);
    if !seen.findings.is_recent || plan.only_waits() {
        return (seen, plan);
    }
    let seen = with_machines_of_now(ctx, seen).await;
    let classified = node_lifecycle::classify(&seen.observed);
    let plan = node_lifecycle::plan(&seen.observed, classified, pods);
    (seen, plan)
}

/// When to come back, or what failed.
fn next(
    ctx: &Context,
    seen: &Seen,
    pods: &ObservedPods,
    plan: &Plan,
    result: PassResult,
    reported: Result<Reported, Error>,
) -> Result<Step, Error> {
    let Observed { key, pool, .. } = &seen.observed;
    if pool.is_none() && plan.nodes.is_empty() && is_over(ctx, &seen.observed, &result) {
        ctx.forget(key);
        return Ok(Step::Done);
    }
    let PassResult { applied, error, .. } = result;
    if let Some(error) = error {
        return Err(error);
    }
    // Checked first: a status that cannot be written is an error, whatever else happened.
    let reported = reported?;
    if applied.extent == Extent::Conflict || reported.is_conflict() {
        return Ok(Step::Conflict);
    }
    if applied.finalizer_removed {
        ctx.forget(key);
        return Ok(Step::Done);
    }
    let due = if applied.extent == Extent::CutShort {
        Some(Duration::ZERO)
    } else {
        // That pods could not be listed is not a failure of the pool: the rest of it continues at its own pace.
        let again = ctx.unread_pools.retry(key, pods.is_incomplete);
        let again = again.or((!pods.deferred.is_empty()).then_some(DEFERRED_RETRY));
        let due = applied.next_visit(plan, ctx.clock.now()).into_iter().chain(seen.findings.again_at).min();
        due.map(|at| ctx.clock.until(at)).into_iter().chain(again).min()
    };
    // What was found out about nodes lets the next pass look at others.
    let has_learned = !plan.protected.is_empty() || !plan.unprotected.is_empty();
    let has_progressed = applied.changed || has_learned;
    let again = if has_progressed { Step::ContinueAfter } else { Step::RequeueAfter };
    Ok(due.map_or(Step::Done, again))
}

/// Whether nothing can be left of the pool, which is gone and has no node. What could not be found out or ended in all the time that
/// [`GonePools`](crate::memory::gone_pools::GonePools) allows is given up.
fn is_over(ctx: &Context, observed: &Observed, result: &PassResult) -> bool {
    let is_complete = result.error.is_none() && result.applied.extent == Extent::Complete;
    if is_complete && !observed.may_have_machines_left() {
        return true;
    }
    let is_given_up = ctx.gone_pools.is_given_up(&observed.key);
    if is_given_up {
        let (listed, unlisted) = (observed.supply.machines.len(), &observed.supply.unlisted);
        let advice = "look for them at the pool's provider; a new NodePool of this name takes them up again";
        warn!(
            listed,
            ?unlisted,
            advice,
            "the NodePool is gone, and machines of it may be left: they are looked for no more"
        );
    }
    is_given_up
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use machine_providers::provisioner::{ListFindings, Provisioner};
    use machine_providers::testing::{Scripted, ScriptedAnswer, answer, running};
    use machine_providers::{Deletion, ListedMachine, MachineRequest, ProviderError};
    use node_lifecycle::testing::{at, cluster, facts, key, node, observed, plan, pool, slot};
    use serde_json::json;
    use shared_crds::conditions::Reason;
    use shared_crds::names;

    use super::*;
    use crate::error::Write;
    use crate::testing::{TestContext, failure, success};

    /// A provider that answers nothing any more after its first list, and how often it was asked.
    #[derive(Default)]
    struct Outage {
        asked: Arc<AtomicUsize>,
    }

    impl Outage {
        fn first<T: Send + 'static>(&self, first: T) -> ScriptedAnswer<'_, T> {
            let is_first = self.asked.fetch_add(1, Ordering::Relaxed) == 0;
            let down = || ProviderError::Unreachable("it is down".to_owned());
            answer(is_first.then_some(first).ok_or_else(down))
        }
    }

    impl Scripted for Outage {
        fn on_create(&self, _: MachineRequest<'_>) -> ScriptedAnswer<'_, Option<Timestamp>> {
            self.first(None)
        }

        fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
            self.first(Vec::new())
        }

        fn on_delete(&self, _: &str) -> ScriptedAnswer<'_, Deletion> {
            self.first(Deletion::Gone)
        }
    }

    #[tokio::test]
    async fn a_provider_that_is_down_after_a_lost_creation_is_asked_less_often_and_not_more_often() {
        let mut written = pool(1);
        written.metadata.resource_version = Some("2".to_owned());
        let mut test = TestContext::new(move |path, _| match path {
            path if path.starts_with("/api/v1/nodes?") => {
                (200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [] }))
            }
            _ => (200, serde_json::to_value(&written).unwrap()),
        })
        .with_pool(pool(1));
        let asked = Arc::<AtomicUsize>::default();
        let provider = Outage { asked: Arc::clone(&asked) };
        test.ctx.provisioner = Arc::new(Provisioner::with(cluster(), vec![Box::new(provider)]));
        let (time, (ctx, _)) = (test.time.clone(), test.into_parts());
        let minute = Duration::from_secs(60);
        let mut by_minute = [0; 10];
        let (mut now, mut passes) = (Duration::ZERO, 0);
        while now < minute * 10 && passes < 1000 {
            let before = asked.load(Ordering::Relaxed);
            let step = reconcile(Arc::clone(&ctx), key()).await.unwrap();
            let asked = asked.load(Ordering::Relaxed) - before;
            by_minute[usize::try_from(now.as_secs() / 60).unwrap()] += asked;
            let (Step::RequeueAfter(wait) | Step::ContinueAfter(wait)) = step else { panic!("{step:?}") };
            time.advance(wait);
            now += wait;
            passes += 1;
        }
        assert!(by_minute.iter().all(|calls| *calls <= 16), "{by_minute:?}");
        assert!(by_minute[3..].iter().all(|calls| (1..=4).contains(calls)), "{by_minute:?}");
    }

    #[tokio::test]
    async fn a_status_that_cannot_be_written_is_an_error_even_beside_a_conflict() {
        let test = TestContext::new(|path, _| match path {
            path if path.starts_with("/api/v1/nodes?") => {
                (200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [node(0)] }))
            }
            path if path.starts_with("/api/v1/pods?") => {
                (200, json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [] }))
            }
            path if path.starts_with("/api/v1/nodes/") => failure(409, "Conflict", "it has changed"),
            _ => failure(403, "Forbidden", "no right to write the status"),
        });
        let (ctx, requests) = test.with_pool(pool(0)).into_parts();
        let ended = reconcile(ctx, key()).await;
        assert!(requests().iter().any(|line| line.starts_with("PATCH /api/v1/nodes/")), "{:?}", requests());
        assert!(matches!(ended, Err(Error::Write { what: Write::PoolStatus, .. })), "{ended:?}");
    }

    #[tokio::test]
    async fn a_pool_that_leaves_its_nodes_goes_although_its_provider_is_down_and_is_remembered() {
        let mut leaves = pool(1);
        leaves.metadata.deletion_timestamp = Some(Time(at(90)));
        leaves.metadata.annotations =
            Some([(names::ON_DELETE_ANNOTATION.to_owned(), "Orphan".to_owned())].into());
        let mut written = leaves.clone();
        written.metadata.resource_version = Some("2".to_owned());
        let mut test = TestContext::new(move |path, _| match path {
            path if path.starts_with("/api/v1/nodes?") => {
                (200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [] }))
            }
            _ => (200, serde_json::to_value(&written).unwrap()),
        })
        .with_pool(leaves);
        let provider = Outage { asked: Arc::new(AtomicUsize::new(1)) };
        test.ctx.provisioner = Arc::new(Provisioner::with(cluster(), vec![Box::new(provider)]));
        let (ctx, requests) = test.into_parts();
        let step = reconcile(Arc::clone(&ctx), key()).await.unwrap();
        assert!(matches!(step, Step::Done), "{step:?}");
        let is_release = |line: &String| line.starts_with("PATCH /apis/") && line.contains("/finalizers/0");
        assert!(requests().iter().any(is_release), "{:?}", requests());
        assert!(ctx.orphans.look(&key(), None));
    }

    /// A context without pools, and with these nodes on the server.
    fn without_pools(nodes: Vec<Node>) -> TestContext {
        let mut patched = serde_json::to_value(&nodes[0]).unwrap();
        patched["metadata"]["resourceVersion"] = json!("2");
        let mut test = TestContext::new(move |path, _| match path {
            path if path.starts_with("/api/v1/nodes?") => {
                (200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": nodes }))
            }
            // The answer to a patch.
            path if path.contains("fieldManager=") => (200, patched.clone()),
            _ => success(),
        });
        let provider = Outage::default();
        test.ctx.provisioner = Arc::new(Provisioner::with(cluster(), vec![Box::new(provider)]));
        test
    }

    fn writes(requests: &[String]) -> Vec<&str> {
        let writes = requests.iter().filter(|line| !line.starts_with("GET "));
        writes.map(|line| line.split(['?', '{']).next().unwrap_or_default().trim()).collect()
    }

    #[tokio::test]
    async fn nodes_of_a_pool_that_is_gone_are_left_alone_and_it_is_said_once() {
        let (ctx, requests) = without_pools(vec![node(0), node(1)]).into_parts();
        reconcile(Arc::clone(&ctx), key()).await.unwrap();
        assert!(writes(&requests()).is_empty(), "{:?}", requests());
        let names: BTreeSet<String> = ["n-000", "n-001"].map(str::to_owned).into();
        assert!(!ctx.gone_pools.is_news(&key(), names), "it was said");
    }

    /// For how long a pool that is gone, without nodes, is visited.
    async fn visited_for(provider: impl Scripted + 'static) -> Duration {
        let mut test = TestContext::new(|path, _| match path {
            path if path.starts_with("/api/v1/nodes?") => {
                (200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [] }))
            }
            _ => success(),
        });
        test.ctx.provisioner = Arc::new(Provisioner::with(cluster(), vec![Box::new(provider)]));
        let (time, (ctx, _)) = (test.time.clone(), test.into_parts());
        let mut waited = Duration::ZERO;
        for _ in 0..10_000 {
            let step = reconcile(Arc::clone(&ctx), key()).await.unwrap();
            let (Step::RequeueAfter(wait) | Step::ContinueAfter(wait)) = step else {
                assert_eq!(step, Step::Done);
                return waited;
            };
            time.advance(wait);
            waited += wait;
        }
        panic!("it is visited for ever, {waited:?} by now");
    }

    /// A provider whose first list fails, and that then has a machine until it is deleted.
    struct Recovers {
        lists: AtomicUsize,
        deletions: Arc<AtomicUsize>,
    }

    impl Scripted for Recovers {
        fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
            if self.lists.fetch_add(1, Ordering::Relaxed) == 0 {
                return answer(Err(ProviderError::Unreachable("it is down".to_owned())));
            }
            let machine = || ListedMachine { cluster: Some(cluster().to_string()), ..running(&slot(0)) };
            let is_there = self.deletions.load(Ordering::Relaxed) == 0;
            answer(Ok(is_there.then(machine).into_iter().collect()))
        }

        fn on_delete(&self, _: &str) -> ScriptedAnswer<'_, Deletion> {
            self.deletions.fetch_add(1, Ordering::Relaxed);
            answer(Ok(Deletion::Started))
        }
    }

    #[tokio::test]
    async fn a_machine_of_a_pool_that_is_gone_is_ended_although_it_could_not_be_listed_at_first() {
        let deletions = Arc::<AtomicUsize>::default();
        let provider = Recovers { lists: AtomicUsize::new(0), deletions: Arc::clone(&deletions) };
        let waited = visited_for(provider).await;
        assert_eq!(deletions.load(Ordering::Relaxed), 1);
        assert!(waited < Duration::from_secs(60), "{waited:?}");
    }

    #[tokio::test]
    async fn a_pool_that_is_gone_is_not_visited_for_ever_where_its_machines_cannot_be_listed() {
        let waited = visited_for(Outage { asked: Arc::new(AtomicUsize::new(1)) }).await;
        let (hour, limit) = (Duration::from_secs(3600), Duration::from_secs(4000));
        assert!(waited >= hour && waited < limit, "{waited:?}");
        assert_eq!(visited_for(Outage::default()).await, Duration::ZERO, "it has no machine");
    }

    #[tokio::test]
    async fn a_node_that_is_created_after_the_deletion_of_its_pool_has_ended_is_deleted() {
        let (ctx, requests) = without_pools(vec![node(0)]).into_parts();
        ctx.gone_pools.ended(key());
        reconcile(Arc::clone(&ctx), key()).await.unwrap();
        assert_eq!(writes(&requests()), ["PATCH /api/v1/nodes/n-000", "DELETE /api/v1/nodes/n-000"]);
    }

    #[tokio::test]
    async fn a_pool_has_ended_when_its_finalizer_went_and_not_when_it_leaves_its_nodes() {
        for (on_delete, has_ended) in [("Drain", true), ("Orphan", false)] {
            let mut going = pool(0);
            going.metadata.deletion_timestamp = Some(Time(at(90)));
            going.metadata.annotations =
                Some([(names::ON_DELETE_ANNOTATION.to_owned(), on_delete.to_owned())].into());
            let mut written = going.clone();
            written.metadata.resource_version = Some("2".to_owned());
            let mut test = TestContext::new(move |path, _| match path {
                path if path.starts_with("/api/v1/nodes?") => {
                    (200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [] }))
                }
                _ => (200, serde_json::to_value(&written).unwrap()),
            })
            .with_pool(going);
            let provider = Outage::default();
            test.ctx.provisioner = Arc::new(Provisioner::with(cluster(), vec![Box::new(provider)]));
            let (ctx, requests) = test.into_parts();
            let step = reconcile(Arc::clone(&ctx), key()).await.unwrap();
            assert_eq!(step, Step::Done, "{on_delete}: {:?}", requests());
            assert_eq!(ctx.gone_pools.just_ended(&key(), None).is_some(), has_ended, "{on_delete}");
        }
    }

    #[tokio::test]
    async fn a_pool_whose_excess_could_not_be_removed_is_not_complete() {
        let test = TestContext::new(|_, _| failure(500, "InternalError", "no"));
        let provisioner = &test.ctx.provisioner;
        provisioner.record_failure(&key(), Some(1), Reason::ProvisioningTimedOut, String::new(), at(0));
        let seen =
            Seen { observed: observed(pool(1), [node(0), node(1)]), findings: ListFindings::default() };
        assert!(facts(&seen.observed).all_ready(), "that is what is planned");
        let plan = plan(&seen.observed);
        let result = apply(&test.ctx, &seen, &plan).await;
        assert!(result.error.is_some() && result.applied.entries.is_empty());
        let facts = result.facts.unwrap();
        assert!(!facts.all_ready() && facts.failure.is_some());
        assert!(provisioner.last_failure(&key()).is_some(), "the backoff must not end");
    }
}
