//! Tests of `provisioner`.

use std::sync::Mutex;

use node_lifecycle::slots::Slots;
use node_lifecycle::supply::{Absence, FailedMachine, MachineState};
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::{ExecProvider, NodePoolSpec, SimulatedProvider};
use shared_runtime::clock::Clock;

use super::*;
use crate::exec::Program;
use crate::testing::{Scripted, ScriptedAnswer, answer, at, cluster, key, no_answer, pool, running, slot};
use crate::{Deletion, MachineRequest, Progress};

async fn supply(provisioner: &Provisioner, generation: i64, second: i64) -> (Supply, Vec<ProviderError>) {
    let mut pool = pool(1);
    pool.metadata.generation = Some(generation);
    supply_of(provisioner, &pool, second).await
}

/// What is known of the pool's machines, and what has failed when that is recorded and what will never run is deleted.
async fn supply_of(provisioner: &Provisioner, pool: &NodePool, second: i64) -> (Supply, Vec<ProviderError>) {
    let (supply, findings) =
        provisioner.supply(&key(), Some(pool), None, |_| false, Lists::Now, at(second)).await;
    let generation = pool.metadata.generation;
    let failures = provisioner.end_failed(&key(), generation, &findings, &supply.failed, at(second)).await;
    (supply, failures)
}

#[tokio::test]
async fn a_failed_machine_is_reported_once_and_starts_the_backoff() {
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Simulated::default())]);
    let provider = SimulatedProvider { failure_percent: 100, ..SimulatedProvider::default() };
    let spec = NodePoolSpec {
        provider: ProviderSpec { simulated: Some(provider), ..ProviderSpec::default() },
        ..NodePoolSpec::default()
    };
    let request = MachineRequest { pool: &key(), name: &slot(0), spec: &spec, existing: 0 };
    provisioner.create(request, at(0)).await.unwrap();
    let (first, failures) = supply(&provisioner, 1, 0).await;
    assert_eq!(failures.len(), 1);
    assert!(!first.may_request(at(4)) && first.may_request(at(5)));
    assert_eq!((first.failed.len(), first.machines[0].state), (1, MachineState::Deleting));
    assert!(first.passed_over.contains(&slot(0)));
    let (second, failures) = supply(&provisioner, 1, 5).await;
    assert!(failures.is_empty() && second.machines.is_empty());
    assert_eq!(second.failure, first.failure);
}

/// A provider with one answer to every list, which never answers anything else.
struct Stub(Option<Result<Vec<ListedMachine>, ProviderError>>);

impl Scripted for Stub {
    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
        self.0.clone().map_or_else(no_answer, answer)
    }
}

/// A machine that runs, and whose Node has this provider ID.
fn running_as(name: &str, provider_id: &str) -> ListedMachine {
    ListedMachine { provider_id: Some(provider_id.to_owned()), ..running(name) }
}

#[tokio::test(start_paused = true)]
async fn nothing_follows_from_a_list_that_is_never_answered() {
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(None))]);
    let (first, failures) = supply(&provisioner, 1, 0).await;
    assert!(matches!(&failures[..], [ProviderError::Unreachable(_)]), "{failures:?}");
    assert!(first.is_unknown && !first.may_request(at(1000)));
    assert!(first.removals_wait.is_some(), "a node might begin to leave");
    assert_eq!(first.failure.as_ref().unwrap().reason, Reason::ProviderUnreachable);
    // The backoff is that of one failure, however often the list is tried meanwhile.
    let (second, _) = supply(&provisioner, 1, 4).await;
    assert_eq!(second.failure, first.failure);
    let deleted = provisioner.delete(&key(), Some(&pool(1)), None, "a", &Absence::Credible, at(0)).await;
    assert!(matches!(deleted, Err(ProviderError::Unreachable(_))), "{deleted:?}");
}

#[tokio::test]
async fn nothing_follows_from_a_list_that_cannot_be_true() {
    let (a, b) = (slot(0), slot(1));
    for (list, lie) in [
        (vec![running("other-0")], "which is not a machine of this pool"),
        (vec![running(&a), running(&a)], "twice"),
        (vec![running_as(&a, "x"), running_as(&b, "x")], "the same provider ID"),
    ] {
        let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(Some(Ok(list))))]);
        let (supply, failures) = supply(&provisioner, 1, 0).await;
        assert!(supply.is_unknown && supply.machines.is_empty(), "{lie}");
        assert!(failures[0].to_string().contains(lie), "{failures:?}");
    }
    let list = vec![running(&a), running(&b)];
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(Some(Ok(list))))]);
    assert_eq!(supply(&provisioner, 1, 0).await.0.machines.len(), 2);
}

#[tokio::test]
async fn a_provider_that_is_not_there_has_no_machines_and_is_asked_for_none() {
    let absent = Err(ProviderError::Absent("there is no such thing".to_owned()));
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(Some(absent)))]);
    let (supply, failures) = supply(&provisioner, 1, 0).await;
    assert!(!supply.is_unknown && supply.machines.is_empty() && !supply.may_request(at(4)));
    assert_eq!(failures[0].reason(), Reason::InvalidSpec);
}

#[tokio::test]
async fn a_failed_machine_with_a_node_is_not_deleted() {
    let failed = ListedMachine {
        progress: Progress::Failed(ProviderError::Transient("m".to_owned())),
        ..running(&slot(0))
    };
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(Some(Ok(vec![failed]))))]);
    let (supply, found) = provisioner.supply(&key(), Some(&pool(1)), None, |_| true, Lists::Now, at(0)).await;
    assert!(found.failures.is_empty() && supply.failed.is_empty(), "{found:?}");
    assert_eq!(supply.machines[0].state, MachineState::Running);
}

/// A provider that accepted the deletion of its machine and lost it, and that ends it when it is asked again: so often it was.
struct LosesDeletion(Arc<Mutex<u32>>);

impl Scripted for LosesDeletion {
    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
        let ending = ListedMachine { progress: Progress::Deleting, ..running(&slot(0)) };
        let is_there = *self.0.lock().unwrap() == 0;
        answer(Ok(Some(ending).filter(|_| is_there).into_iter().collect()))
    }

    fn on_delete(&self, _: &str) -> ScriptedAnswer<'_, Deletion> {
        *self.0.lock().unwrap() += 1;
        answer(Ok(Deletion::Started))
    }
}

#[tokio::test]
async fn a_machine_whose_deletion_was_lost_is_asked_to_go_again_after_a_minute_unless_it_has_a_node() {
    let asked = Arc::new(Mutex::new(0));
    let provisioner = Provisioner::with(cluster(), vec![Box::new(LosesDeletion(Arc::clone(&asked)))]);
    for second in [0, 100] {
        let seen = provisioner.supply(&key(), Some(&pool(1)), None, |_| true, Lists::Now, at(second)).await;
        assert!(seen.0.failed.is_empty(), "its Node's drain asks for it");
    }
    for (second, machines, times) in [(100, 1, 0), (159, 1, 0), (160, 1, 1), (161, 0, 1)] {
        let (seen, failures) = supply(&provisioner, 1, second).await;
        assert!(failures.is_empty(), "{failures:?}");
        assert_eq!((seen.machines.len(), *asked.lock().unwrap()), (machines, times), "at {second}");
        assert!(seen.machines.iter().all(|machine| machine.state == MachineState::Deleting));
    }
}

#[tokio::test]
async fn a_machine_that_was_accepted_and_is_not_listed_is_a_failure() {
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(Some(Ok(vec![]))))]);
    provisioner.failures.accepted(&key(), &slot(0));
    let (first, failures) = supply(&provisioner, 1, 0).await;
    assert!(failures[0].to_string().contains("does not list it"), "{failures:?}");
    assert!(!first.is_unknown && !first.may_request(at(4)) && first.may_request(at(5)));
    assert!(supply(&provisioner, 1, 5).await.1.is_empty(), "it is said once");
}

#[tokio::test(start_paused = true)]
async fn a_creation_without_an_answer_may_come_late() {
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(Some(Ok(vec![]))))]);
    let spec = pool(1).spec;
    let request = MachineRequest { pool: &key(), name: &slot(0), spec: &spec, existing: 0 };
    let created = provisioner.create(request, at(0)).await;
    assert!(matches!(created, Err(ProviderError::Unreachable(_))), "{created:?}");
    assert!(supply(&provisioner, 1, 1).await.0.uncertain_until.is_some());
    assert_eq!(supply(&provisioner, 1, 1000).await.0.uncertain_until, None);
}

#[tokio::test]
async fn the_pool_of_a_node_is_the_one_that_lists_its_machine() {
    let machine = running_as(&slot(0), "x://0");
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(Some(Ok(vec![machine]))))]);
    let mut node = Node::default();
    node.spec.get_or_insert_default().provider_id = Some("x://0".to_owned());
    assert_eq!(provisioner.awaiting(&node), None);
    supply(&provisioner, 1, 0).await;
    assert_eq!(provisioner.awaiting(&node), Some(key()));
    provisioner.forget(&key());
    assert_eq!(provisioner.awaiting(&node), None);
}

#[tokio::test]
async fn a_provider_that_was_asked_before_is_listed_until_it_has_no_machine() {
    let program: Program = "rack=/no/such/program".parse().unwrap();
    let provisioner = Provisioner::with(
        cluster(),
        vec![Box::new(Simulated::default()), Box::new(Exec::new(program, cluster()))],
    );
    let simulated = pool(1);
    let request = MachineRequest { pool: &key(), name: &slot(0), spec: &simulated.spec, existing: 0 };
    provisioner.create(request, at(0)).await.unwrap();
    let mut changed = pool(1);
    let exec = ExecProvider { name: "rack".to_owned(), ..ExecProvider::default() };
    changed.spec.provider = ProviderSpec { exec: Some(exec), ..ProviderSpec::default() };
    let former = async || {
        let (supply, failures) = supply_of(&provisioner, &changed, 0).await;
        assert!(failures[0].to_string().contains("cannot be started"), "{failures:?}");
        supply.former
    };
    assert_eq!(former().await, ["simulated".to_owned()].into());
    provisioner
        .delete(&key(), Some(&changed), Some("simulated"), &slot(0), &Absence::Credible, at(0))
        .await
        .unwrap();
    assert_eq!(former().await, BTreeSet::new());
}

#[tokio::test]
async fn a_provider_that_was_asked_before_a_crash_is_remembered_when_it_lists_a_machine() {
    for (machines, remembered) in [(vec![], vec![]), (vec![running(&slot(0))], vec!["simulated"])] {
        let restarted = Provisioner::with(cluster(), vec![Box::new(Stub(Some(Ok(machines))))]);
        supply(&restarted, 1, 0).await;
        assert_eq!(restarted.remembered(&key()).providers, remembered);
    }
}

#[tokio::test]
async fn a_spec_that_selects_no_provider_is_named_and_requests_nothing() {
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Simulated::default())]);
    let unknown = ExecProvider { name: "rack".to_owned(), ..ExecProvider::default() };
    for (provider, message) in [
        (ProviderSpec::default(), "it does not set exactly one provider that this version knows"),
        (
            ProviderSpec { exec: Some(unknown), ..ProviderSpec::default() },
            "it is exec.rack, and nodepool-operator has simulated; its flag --exec-provider configures programs",
        ),
    ] {
        let message = format!("spec.provider is invalid: {message}");
        let mut pool = pool(1);
        pool.spec.provider = provider;
        let (supply, failures) = supply_of(&provisioner, &pool, 0).await;
        assert!(failures.is_empty() && supply.machines.is_empty());
        assert_eq!(supply.source, Err(message.clone()));
        let deleted = provisioner.delete(&key(), Some(&pool), None, "a", &Absence::Credible, at(0)).await;
        assert_eq!(deleted.unwrap_err().to_string(), message, "its machine is not known to be gone");
    }
    let deleted = provisioner.delete(&key(), None, None, "a", &Absence::Credible, at(0)).await;
    assert_eq!(deleted, Ok(Deletion::Gone));
}

#[tokio::test]
async fn a_process_that_does_not_lead_changes_nothing_at_a_provider() {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let standby =
        Provisioner::with(cluster(), vec![Box::new(Simulated::default())]).fenced(Fence::standby(clock));
    let spec = pool(1).spec;
    let request = MachineRequest { pool: &key(), name: &slot(0), spec: &spec, existing: 0 };
    assert_eq!(standby.create(request, at(0)).await, Err(ProviderError::Conflict));
    for made_by in [None, Some("simulated")] {
        let deleted =
            standby.delete(&key(), Some(&pool(1)), made_by, &slot(0), &Absence::Credible, at(0)).await;
        assert_eq!(deleted, Err(ProviderError::Conflict));
    }
    assert!(supply(&standby, 1, 0).await.0.machines.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_under_way_is_given_up_with_the_lease() {
    let (second, key, name) = (std::time::Duration::from_secs(1), key(), slot(0));
    let failed = [FailedMachine { provider: "simulated".to_owned(), name: name.clone(), is_new: true }];
    for change in ["create", "delete", "delete where it was made", "delete a failed one"] {
        let fence = Fence::unguarded(Clock::system());
        let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(None))]).fenced(fence.clone());
        let (begun, pool, absence) = (tokio::time::Instant::now(), pool(1), Absence::Credible);
        let delete = |made_by| provisioner.delete(&key, Some(&pool), made_by, &name, &absence, at(0));
        let asked = async {
            match change {
                "create" => {
                    let request = MachineRequest { pool: &key, name: &name, spec: &pool.spec, existing: 0 };
                    provisioner.create(request, at(0)).await.unwrap_err()
                }
                "delete" => delete(None).await.unwrap_err(),
                "delete where it was made" => delete(Some("simulated")).await.unwrap_err(),
                _ => provisioner.delete_failed(&key, &failed, at(0)).await.remove(0),
            }
        };
        let lost = async {
            tokio::time::sleep(second).await;
            fence.close();
        };
        let (error, ()) = tokio::join!(asked, lost);
        assert!(
            matches!(&error, ProviderError::Unreachable(why) if why.contains("lost its lease")),
            "{change}: {error}"
        );
        assert_eq!(begun.elapsed(), second, "{change}");
    }
}

#[tokio::test]
async fn the_machines_of_a_set_that_another_pool_uses_are_none_of_the_pools() {
    let listed = Some(Ok(vec![running_as(&slot(0), "x://0")]));
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(listed))]);
    let older = PoolKey { name: "older".into(), ..key() };
    let (supply, found) =
        provisioner.supply(&key(), Some(&pool(1)), Some(&older), |_| false, Lists::Now, at(0)).await;
    let failures = found.failures;
    assert!(supply.machines.is_empty() && !supply.is_unknown && !supply.may_request(at(4)));
    assert!(failures[0].to_string().contains("is used by the pool default/older already"), "{failures:?}");
}

#[tokio::test]
async fn a_lie_of_the_simulated_provider_is_said_and_the_truth_ends_it() {
    use shared_crds::v1alpha1::ProviderLie;

    let provisioner = Provisioner::with(cluster(), vec![Box::new(Simulated::default())]);
    let pool_with = |lie| {
        let mut pool = pool(1);
        pool.spec.provider.simulated = Some(SimulatedProvider { lie, ..SimulatedProvider::default() });
        pool
    };
    let truth = pool_with(None);
    let request = MachineRequest { pool: &key(), name: &slot(0), spec: &truth.spec, existing: 0 };
    provisioner.create(request, at(0)).await.unwrap();
    for (second, lie, said, machines) in [
        (0, ProviderLie::EmptyList, Some("accepted the creation"), Some(0)),
        (100, ProviderLie::DoubleName, Some("twice"), None),
        (200, ProviderLie::ForeignName, Some("which is not a machine of this pool"), None),
        (300, ProviderLie::EmptyList, None, Some(0)),
    ] {
        let lying = pool_with(Some(lie));
        let (found, failures) = supply_of(&provisioner, &lying, second).await;
        let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
        assert_eq!(failures.len(), usize::from(said.is_some()), "{lie:?}: {failures:?}");
        assert!(said.is_none_or(|said| failures[0].contains(said)), "{lie:?}: {failures:?}");
        assert_eq!((!found.is_unknown).then_some(found.machines.len()), machines, "{lie:?}");
        let (found, _) = supply_of(&provisioner, &truth, second).await;
        assert_eq!((found.is_unknown, found.machines.len()), (false, 1), "{lie:?}");
    }
}

/// A provider of one machine that starts, until it is given up, for want of capacity or not.
struct GivesUp {
    is_gone: std::sync::atomic::AtomicBool,
    has_capacity: bool,
}

impl GivesUp {
    fn new(has_capacity: bool) -> Self {
        Self { is_gone: false.into(), has_capacity }
    }
}

impl Scripted for GivesUp {
    fn on_trouble(&self) -> Option<String> {
        Some("no host is free".to_owned())
    }

    fn on_explain(&self, name: &str) -> Option<Explanation> {
        let words = format!("no host was free for {name}");
        let of = if self.has_capacity { Explanation::Other } else { Explanation::NoCapacity };
        Some(of(words))
    }

    fn on_create(&self, _: MachineRequest<'_>) -> ScriptedAnswer<'_, Option<Timestamp>> {
        answer(Ok(None))
    }

    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
        let starting = ListedMachine { progress: Progress::Starting(None), ..running(&slot(0)) };
        let is_gone = self.is_gone.swap(true, std::sync::atomic::Ordering::Relaxed);
        answer(Ok(Some(starting).filter(|_| !is_gone).into_iter().collect()))
    }

    fn on_delete(&self, _: &str) -> ScriptedAnswer<'_, Deletion> {
        answer(Ok(Deletion::Started))
    }
}

#[tokio::test]
async fn a_machine_that_is_given_up_while_it_starts_is_missed_with_the_providers_words_unless_it_was_withdrawn()
 {
    for is_withdrawn in [false, true] {
        let provisioner = Provisioner::with(cluster(), vec![Box::new(GivesUp::new(true))]);
        let pool = pool(1);
        let request = MachineRequest { pool: &key(), name: &slot(0), spec: &pool.spec, existing: 0 };
        provisioner.create(request, at(0)).await.unwrap();
        let (starts, failures) = supply(&provisioner, 1, 0).await;
        assert_eq!((starts.machines.len(), starts.trouble.as_deref()), (1, Some("no host is free")));
        assert_eq!(failures, []);
        if is_withdrawn {
            provisioner.delete(&key(), Some(&pool), None, &slot(0), &Absence::Credible, at(0)).await.unwrap();
        }
        let (gone, _) = supply(&provisioner, 1, 5).await;
        let said = format!(
            "the provider failed: it accepted the creation of {name} and does not list it: no host was free for {name}",
            name = slot(0)
        );
        let said = (!is_withdrawn).then_some(said);
        assert_eq!(gone.failure.map(|failure| failure.message), said, "{is_withdrawn}");
    }
}

#[tokio::test]
async fn a_machine_that_is_given_up_for_want_of_capacity_is_a_failure_of_the_quota_and_costs_no_name() {
    for (has_capacity, reason, passed_over) in
        [(true, Reason::ProvisioningFailed, 1), (false, Reason::QuotaExceeded, 0)]
    {
        let provisioner = Provisioner::with(cluster(), vec![Box::new(GivesUp::new(has_capacity))]);
        let pool = pool(1);
        let request = MachineRequest { pool: &key(), name: &slot(0), spec: &pool.spec, existing: 0 };
        provisioner.create(request, at(0)).await.unwrap();
        supply(&provisioner, 1, 0).await;
        let (gone, failures) = supply(&provisioner, 1, 5).await;
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert_eq!(gone.failure.as_ref().map(|failure| failure.reason), Some(reason));
        assert_eq!(gone.passed_over.len(), passed_over, "{reason:?}");
        assert!(!gone.may_request(at(9)) && gone.may_request(at(10)), "{reason:?}");
        let recorded = provisioner.last_failure(&key()).unwrap();
        assert_eq!((recorded.reason, Some(recorded.message)), (reason, gone.failure.map(|it| it.message)));
    }
}

fn carrying(cluster: Option<&str>, name: &str) -> ListedMachine {
    ListedMachine { cluster: cluster.map(str::to_owned), ..running(name) }
}

#[tokio::test]
async fn what_carries_another_cluster_is_neither_listed_nor_deleted() {
    let name_of = |cluster: &str| format!("{}0", Slots::of(&cluster.into(), &key()).prefix());
    let (by_name, renamed) = (name_of("there"), name_of("before"));
    let list = vec![
        carrying(Some("here"), &slot(0)),
        carrying(None, &slot(1)),
        carrying(Some("there"), &slot(2)),
        carrying(Some("there"), "of-any-name"),
        carrying(None, &by_name),
        // This cluster had another identity when it was made.
        carrying(Some("here"), &renamed),
    ];
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(Some(Ok(list))))]);
    let (supply, failures) = supply(&provisioner, 1, 0).await;
    let names: Vec<&str> = supply.machines.iter().map(|machine| &*machine.name).collect();
    assert_eq!((names, failures.len()), (vec![&*slot(0), &*slot(1), &*renamed], 0));
    assert!(!supply.is_unknown);
    let foreign: Vec<&str> = supply.foreign.keys().map(String::as_str).collect();
    let mut expected = [&*slot(2), "of-any-name", &*by_name].map(str::to_owned);
    expected.sort();
    assert_eq!(foreign, expected);
    // Of those whose names are this pool's, one is named.
    let trouble = supply.trouble.unwrap();
    assert!(trouble.contains(&slot(2)) && trouble.contains("carries the cluster there"), "{trouble}");
    for name in expected {
        for made_by in [None, Some("simulated")] {
            let refused = provisioner
                .delete(&key(), Some(&pool(1)), made_by, &name, &Absence::Credible, at(0))
                .await
                .unwrap_err();
            assert!(refused.to_string().contains("is left alone"), "{refused}");
        }
    }
}

#[tokio::test]
async fn of_a_name_that_two_clusters_use_each_deletes_its_own_machine() {
    let list = vec![carrying(Some("here"), &slot(0)), carrying(Some("there"), &slot(0))];
    for list in [list.clone(), list.into_iter().rev().collect()] {
        let provisioner = Provisioner::with(cluster(), vec![Box::new(Stub(Some(Ok(list))))]);
        let (supply, _) = supply(&provisioner, 1, 0).await;
        assert_eq!((supply.machines.len(), supply.foreign.len()), (1, 0));
    }
}

/// A provider whose machine `a` is there until it has been deleted as often as this.
struct Ending(Mutex<u32>);

impl Scripted for Ending {
    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
        answer(Ok(Vec::new()))
    }

    fn on_delete(&self, _: &str) -> ScriptedAnswer<'_, Deletion> {
        let mut left = self.0.lock().unwrap();
        let deletion = if *left == 0 { Deletion::Gone } else { Deletion::Started };
        *left = left.saturating_sub(1);
        answer(Ok(deletion))
    }
}

#[tokio::test]
async fn a_machine_that_its_provider_does_not_know_is_not_taken_for_one_that_is_gone() {
    let doubtful = Absence::Doubtful("its list is empty".to_owned());
    let ended = async |passes: u32, absence: &Absence| {
        let provisioner = Provisioner::with(cluster(), vec![Box::new(Ending(Mutex::new(passes)))]);
        let mut last = Ok(Deletion::Started);
        for _ in 0..=passes {
            last = provisioner.delete(&key(), Some(&pool(1)), Some("simulated"), "a", absence, at(0)).await;
        }
        last
    };
    assert_eq!(ended(0, &Absence::Credible).await, Ok(Deletion::Gone));
    let error = ended(0, &doubtful).await.unwrap_err();
    assert!(matches!(error, ProviderError::Unreachable(_)), "{error}");
    assert!(error.to_string().contains("no machine a, but its list is empty"), "{error}");
    assert_eq!(ended(2, &doubtful).await, Ok(Deletion::Gone), "this process has seen it end");
}

#[tokio::test]
async fn that_a_machine_is_gone_is_believed_again_until_its_node_is_released() {
    let doubtful = Absence::Doubtful("its list is empty".to_owned());
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Ending(Mutex::new(1)))]);
    let delete =
        async || provisioner.delete(&key(), Some(&pool(1)), Some("simulated"), "a", &doubtful, at(0)).await;
    assert_eq!(delete().await, Ok(Deletion::Started));
    // As after a write that failed.
    assert_eq!([delete().await, delete().await], [Ok(Deletion::Gone), Ok(Deletion::Gone)]);
    provisioner.node_released(&key(), "a");
    let gone = delete().await;
    assert!(matches!(gone, Err(ProviderError::Unreachable(_))), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn that_a_machine_has_ended_says_nothing_about_the_next_one_of_its_name() {
    let doubtful = Absence::Doubtful("its list is empty".to_owned());
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Ending(Mutex::new(1)))]);
    let delete = async || {
        let made_by = Some("simulated");
        provisioner.delete(&key(), Some(&pool(1)), made_by, &slot(0), &doubtful, at(0)).await
    };
    assert_eq!(delete().await, Ok(Deletion::Started));
    let spec = pool(1).spec;
    let request = MachineRequest { pool: &key(), name: &slot(0), spec: &spec, existing: 0 };
    let created = provisioner.create(request, at(1)).await;
    assert!(matches!(created, Err(ProviderError::Unreachable(_))), "{created:?}");
    let gone = delete().await;
    assert!(matches!(gone, Err(ProviderError::Unreachable(_))), "{gone:?}");
}

/// A provider with one machine, which would be made from something else now. It answers unless this is set.
struct Revised(Arc<Mutex<bool>>);

impl Scripted for Revised {
    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
        let is_silent = *self.0.lock().unwrap();
        let outdated = ListedMachine { is_outdated: true, ..running(&slot(0)) };
        answer(if is_silent { Err(ProviderError::Unreachable("x".to_owned())) } else { Ok(vec![outdated]) })
    }
}

#[tokio::test]
async fn what_was_outdated_is_so_while_nothing_can_be_listed() {
    let is_silent = Arc::new(Mutex::new(false));
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Revised(Arc::clone(&is_silent)))]);
    let listed = supply(&provisioner, 1, 0).await.0;
    assert!(listed.machines[0].is_outdated && listed.outdated_before.is_empty());
    *is_silent.lock().unwrap() = true;
    let silent = supply(&provisioner, 1, 1).await.0;
    assert!(silent.is_unknown);
    assert_eq!(silent.outdated_before, [slot(0)].into());
}
