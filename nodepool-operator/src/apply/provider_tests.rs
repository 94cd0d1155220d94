//! Passes over providers that fail for one machine, or are slow.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use machine_providers::provisioner::{ListFindings, Lists, Provisioner};
use machine_providers::testing::{Scripted, ScriptedAnswer, answer, running};
use machine_providers::{Deletion, ListedMachine, MachineRequest, Progress, ProviderError};
use node_lifecycle::Supply;
use node_lifecycle::supply::Size;
use node_lifecycle::testing::{at, cluster, key, node, observed, plan, pool, slot, step};
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::{
    ClusterApiProvider, DisruptionReason, MachineDeploymentReference, NodePoolStatus, ProviderSpec,
    ProvisioningStatus,
};

use super::*;
use crate::testing::{TestContext, failure};

/// What else happens.
type Then = Box<dyn FnOnce() + Send>;

/// A provider that has a number of broken slots, and whose deletions take long.
#[derive(Default)]
struct Rack {
    broken: BTreeSet<String>,
    error: Option<ProviderError>,
    deletion: Duration,
    machines: Mutex<BTreeSet<String>>,
    calls: Mutex<Vec<String>>,
    /// What happens when so many machines have been deleted.
    then: Mutex<Option<(usize, Then)>>,
}

/// The rack as a provider, while the test keeps it.
struct Shared(Arc<Rack>);

impl Scripted for Shared {
    fn on_create(&self, request: MachineRequest<'_>) -> ScriptedAnswer<'_, Option<Timestamp>> {
        self.0.calls.lock().unwrap().push(request.name.to_owned());
        let error = self.0.error.clone().filter(|_| self.0.broken.contains(request.name));
        if error.is_none() {
            self.0.machines.lock().unwrap().insert(request.name.to_owned());
        }
        answer(error.map_or(Ok(None), Err))
    }

    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
        let listed = |name: &String| ListedMachine {
            progress: Progress::Starting(None),
            cluster: Some(cluster().to_string()),
            ..running(name)
        };
        answer(Ok(self.0.machines.lock().unwrap().iter().map(listed).collect()))
    }

    fn on_delete(&self, name: &str) -> ScriptedAnswer<'_, Deletion> {
        let name = name.to_owned();
        async move {
            self.0.calls.lock().unwrap().push(name.clone());
            if let Some(error) = self.0.error.clone().filter(|_| self.0.broken.contains(&name)) {
                return Err(error);
            }
            tokio::time::sleep(self.0.deletion).await;
            self.0.machines.lock().unwrap().remove(&name);
            let deleted = self.0.calls.lock().unwrap().len();
            if let Some((_, then)) = self.0.then.lock().unwrap().take_if(|(count, _)| deleted >= *count) {
                then();
            }
            Ok(Deletion::Gone)
        }
        .boxed()
    }
}

fn slots_of(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(slot).collect()
}

fn context(rack: &Arc<Rack>) -> TestContext {
    let mut test = TestContext::new(|_, _| failure(500, "InternalError", "not requested"));
    test.ctx.provisioner = Arc::new(Provisioner::with(cluster(), vec![Box::new(Shared(Arc::clone(rack)))]));
    test
}

/// A pool that has asked its provider for twenty machines.
fn asked_for_twenty(replicas: i32) -> NodePool {
    let provisioning = ProvisioningStatus { machines: Some(20), ..ProvisioningStatus::default() };
    let status = NodePoolStatus { provisioning: Some(provisioning), ..NodePoolStatus::default() };
    NodePool { status: Some(status), ..pool(replicas) }
}

/// One pass over the pool with so many replicas at this second.
async fn pass(test: &TestContext, replicas: i32, second: i64) -> PassResult {
    pass_over(test, asked_for_twenty(replicas), second).await
}

/// One pass over this pool.
async fn pass_over(test: &TestContext, pool: NodePool, second: i64) -> PassResult {
    let (supply, findings) =
        test.ctx.provisioner.supply(&key(), Some(&pool), None, |_| false, Lists::Now, at(second)).await;
    let mut seen = Seen { observed: observed(pool, []), findings };
    (seen.observed.supply, seen.observed.now) = (supply, at(second));
    let plan = plan(&seen.observed);
    apply(&test.ctx, &seen, &plan).await
}

fn rack(broken: impl IntoIterator<Item = usize>, error: ProviderError) -> Arc<Rack> {
    Arc::new(Rack { broken: slots_of(broken).into_iter().collect(), error: Some(error), ..Rack::default() })
}

fn broken_host() -> ProviderError {
    ProviderError::Transient("no power".to_owned())
}

#[tokio::test]
async fn a_slot_that_fails_costs_the_pool_a_name_and_no_node() {
    for error in [broken_host(), ProviderError::Invalid("no such host".to_owned())] {
        let rack = rack([0], error);
        let test = context(&rack);
        let result = pass(&test, 2, 0).await;
        assert_eq!((result.applied.count(AppliedAction::Request), result.applied.retry_at), (2, None));
        let said = result.failure.unwrap().message;
        assert!(said.contains(&format!("machine {}: ", slot(0))), "{said}");
        assert_eq!(*rack.calls.lock().unwrap(), slots_of([0, 1, 2]));
        // It is passed over while it backs off, and tried again when that is over.
        pass(&test, 3, 1).await;
        assert_eq!(*rack.calls.lock().unwrap(), slots_of([0, 1, 2, 3]));
        pass(&test, 4, 60).await;
        assert_eq!(*rack.calls.lock().unwrap(), slots_of([0, 1, 2, 3, 0, 4]));
    }
}

#[tokio::test]
async fn several_broken_slots_are_passed_by_one_after_the_other() {
    let rack = rack(0..5, broken_host());
    let test = context(&rack);
    let result = pass(&test, 1, 0).await;
    assert_eq!((result.applied.count(AppliedAction::Request), result.applied.retry_at), (0, Some(at(5))));
    assert_eq!(pass(&test, 1, 4).await.applied.count(AppliedAction::Request), 0);
    assert_eq!(pass(&test, 1, 5).await.applied.count(AppliedAction::Request), 1);
    assert_eq!(*rack.calls.lock().unwrap(), slots_of(0..6));
}

#[tokio::test]
async fn what_concerns_the_provider_as_a_whole_stops_at_once() {
    let words = || "m".to_owned();
    for error in [
        ProviderError::Quota(words()),
        ProviderError::Unauthorized(words()),
        ProviderError::Unreachable(words()),
        ProviderError::Absent(words()),
        ProviderError::Busy(words()),
    ] {
        let rack = rack([0], error.clone());
        let test = context(&rack);
        let result = pass(&test, 2, 0).await;
        assert_eq!(
            (result.applied.count(AppliedAction::Request), result.applied.retry_at),
            (0, Some(at(5))),
            "{error}"
        );
        assert_eq!(*rack.calls.lock().unwrap(), slots_of([0]), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_is_told_of_also_by_a_pass_that_could_not_write_the_pools_finalizer() {
    let rack = rack([], broken_host());
    let test = context(&rack);
    let mut new = asked_for_twenty(1);
    new.metadata.finalizers = None;
    let mut findings = ListFindings::default();
    findings.failures.push(ProviderError::Unreachable("it is down".to_owned()));
    let seen = Seen { observed: observed(new, []), findings };
    let plan = plan(&seen.observed);
    assert_eq!(plan.pool, PoolStep::AddFinalizer);
    let result = apply(&test.ctx, &seen, &plan).await;
    assert!(result.error.is_some(), "the server answers 500");
    assert_eq!(result.failure.map(|failure| failure.reason), Some(Reason::ProviderUnreachable));
}

#[tokio::test]
async fn a_machine_of_a_deleted_pool_that_its_provider_does_not_end_leaves_the_backoff_as_it_is() {
    let rack = rack([0], ProviderError::Unreachable("it is down".to_owned()));
    rack.machines.lock().unwrap().insert(slot(0));
    let test = context(&rack);
    let record = |reason| test.ctx.provisioner.record_failure(&key(), None, reason, "m".to_owned(), at(0));
    let failure = record(Reason::ProviderUnreachable);
    let mut deleted = asked_for_twenty(0);
    deleted.metadata.deletion_timestamp = Some(Time(at(0)));
    let result = pass_over(&test, deleted, 0).await;
    assert!(matches!(result.error, Some(Error::Provider { .. })), "{:?}", result.error);
    assert_eq!(test.ctx.provisioner.last_failure(&key()), Some(failure));
}

#[tokio::test]
async fn a_machine_of_a_former_provider_is_ended_there_although_the_present_one_keeps_a_number() {
    let rack = Arc::new(Rack::default());
    rack.machines.lock().unwrap().insert(slot(0));
    let test = context(&rack);
    let mut deleted = asked_for_twenty(0);
    deleted.metadata.deletion_timestamp = Some(Time(at(0)));
    let mut changed = deleted.clone();
    let machine_deployment_ref = MachineDeploymentReference { name: "md".to_owned() };
    let cluster_api = Some(ClusterApiProvider { machine_deployment_ref });
    changed.spec.provider = ProviderSpec { cluster_api, ..ProviderSpec::default() };
    let key = key();
    let looked = test.ctx.provisioner.supply(&key, Some(&deleted), None, |_| false, Lists::Now, at(0));
    let (supply, _) = looked.await;
    // The spec names another one now, and this process remembers which it asked before.
    let looked = test.ctx.provisioner.supply(&key, Some(&changed), None, |_| false, Lists::Now, at(0));
    let (now, findings) = looked.await;
    assert_eq!(now.former_machines, [(slot(0), "simulated".to_owned())].into());
    assert!(supply.former_machines.is_empty());
    let mut seen = Seen { observed: observed(changed, []), findings };
    seen.observed.supply = Supply { size: Some(Size { replicas: 0, generation: 1 }), ..now };
    let plan = plan(&seen.observed);
    assert_eq!(plan.withdraw, [slot(0)]);
    let result = apply(&test.ctx, &seen, &plan).await;
    assert!(result.error.is_none(), "{:?}", result.error);
    assert_eq!((result.applied.count(AppliedAction::Withdraw), rack.machines.lock().unwrap().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn withdrawals_stop_as_soon_as_the_count_is_raised() {
    let rack = Arc::new(Rack { deletion: Duration::from_secs(2), ..Rack::default() });
    rack.machines.lock().unwrap().extend(slots_of(0..20));
    let mut lowered = asked_for_twenty(0);
    lowered.metadata.generation = Some(1);
    let (test, mut set) = context(&rack).with_changing_pool(lowered.clone());
    let (supply, findings) =
        test.ctx.provisioner.supply(&key(), Some(&lowered), None, |_| false, Lists::Now, at(0)).await;
    let mut seen = Seen { observed: observed(lowered, []), findings };
    seen.observed.supply = supply;
    let plan = plan(&seen.observed);
    assert_eq!(plan.withdraw.len(), 20);
    let mut raised = pool(20);
    raised.metadata.generation = Some(2);
    *rack.then.lock().unwrap() = Some((6, Box::new(move || set(raised))));
    let result = apply(&test.ctx, &seen, &plan).await;
    assert_eq!(result.applied.extent, Extent::CutShort);
    // Those that had begun, and no more.
    let withdrawn = result.applied.count(AppliedAction::Withdraw);
    assert!((6..=9).contains(&withdrawn), "{withdrawn}");
}

#[tokio::test(start_paused = true)]
async fn withdrawals_know_the_deadline_of_the_pass() {
    let rack = Arc::new(Rack { deletion: Duration::from_secs(2), ..Rack::default() });
    rack.machines.lock().unwrap().extend(slots_of(0..20));
    let test = context(&rack);
    let time = test.time.clone();
    // The fake clock goes with tokio's.
    let ticks = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            time.advance(Duration::from_secs(1));
        }
    });
    let begin = tokio::time::Instant::now();
    let result = pass(&test, 0, 0).await;
    ticks.abort();
    assert_eq!(result.applied.extent, Extent::CutShort);
    let withdrawn = result.applied.count(AppliedAction::Withdraw);
    assert!((8..=16).contains(&withdrawn), "{withdrawn}");
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_written_keeps_no_machine_from_being_asked_for() {
    let rack = Arc::new(Rack::default());
    let test = context(&rack);
    let seen = Seen { observed: observed(asked_for_twenty(2), []), findings: ListFindings::default() };
    let mut plan = plan(&seen.observed);
    plan.left_over = vec![Arc::new(node(0))];
    let result = apply(&test.ctx, &seen, &plan).await;
    assert!(matches!(result.error, Some(Error::Write { what: Write::PatchNode, .. })), "{:?}", result.error);
    assert_eq!(*rack.calls.lock().unwrap(), slots_of([0, 1]));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_cordoned_keeps_no_other_one_from_coming_unless_that_takes_its_place() {
    for (action, cause, requested) in [
        (NodeAction::Cordon, Some(DisruptionReason::Rollout), 2),
        (NodeAction::Cordon, Some(DisruptionReason::ScaleDown), 2),
        (NodeAction::Cordon, Some(DisruptionReason::Repair), 1),
        (NodeAction::ReplaceLost, None, 1),
    ] {
        let rack = Arc::new(Rack::default());
        let test = context(&rack);
        let seen = Seen { observed: observed(asked_for_twenty(2), []), findings: ListFindings::default() };
        let mut plan = plan(&seen.observed);
        plan.nodes = vec![NodeStep { cause, ..step(node(0), action.clone()) }];
        let result = apply(&test.ctx, &seen, &plan).await;
        assert!(matches!(result.error, Some(Error::Write { .. })), "{:?}", result.error);
        assert_eq!(*rack.calls.lock().unwrap(), slots_of(0..requested), "{action:?} for {cause:?}");
    }
}
