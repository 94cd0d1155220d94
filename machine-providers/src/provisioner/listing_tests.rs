//! How often a provider is asked for its list, counted.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use node_lifecycle::supply::Absence;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::{ExecProvider, SimulatedProvider};

use super::*;
use crate::calls::{Call, EndedCall};
use crate::testing::{Scripted, ScriptedAnswer, answer, at, cluster, key, no_answer, pool, running, slot};
use crate::{Deletion, MachineRequest, Progress};

/// What a provider that counts has, and does.
#[derive(Default)]
struct State {
    lists: usize,
    machines: Vec<(String, Option<Progress>)>,
    /// The error of every list and creation.
    error: Option<ProviderError>,
    /// No list is answered.
    hangs: bool,
}

/// A provider whose lists are counted.
#[derive(Clone, Default)]
struct Counted(Arc<Mutex<State>>);

impl Counted {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn lists(&self) -> usize {
        self.state().lists
    }
}

impl Scripted for Counted {
    fn on_create(&self, _: MachineRequest<'_>) -> ScriptedAnswer<'_, Option<Timestamp>> {
        answer(self.state().error.clone().map_or(Ok(None), Err))
    }

    fn on_list(&self) -> ScriptedAnswer<'_, Vec<ListedMachine>> {
        let mut state = self.state();
        state.lists += 1;
        if state.hangs {
            return no_answer();
        }
        let listed = |(name, progress): &(String, Option<Progress>)| ListedMachine {
            progress: progress.clone().unwrap_or(Progress::Running),
            ..running(name)
        };
        let machines = state.machines.iter().map(listed).collect();
        answer(state.error.clone().map_or(Ok(machines), Err))
    }

    fn on_delete(&self, _: &str) -> ScriptedAnswer<'_, Deletion> {
        answer(Ok(Deletion::Gone))
    }
}

/// A provider with so many machines that run, and what calls it.
fn with_machines(count: usize) -> (Counted, Provisioner) {
    let provider = Counted::default();
    provider.state().machines = (0..count).map(|number| (slot(number), None)).collect();
    let provisioner = Provisioner::with(cluster(), vec![Box::new(provider.clone())]);
    (provider, provisioner)
}

/// What a pass sees that has a Node for each of the first `nodes` machines, and would do with a list of a moment ago.
async fn look_at(
    provisioner: &Provisioner,
    pool: &NodePool,
    nodes: usize,
    second: i64,
) -> (Supply, ListFindings) {
    let names: Vec<String> = (0..nodes).map(slot).collect();
    let of_nodes: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let has_node = |machine: &ListedMachine| of_nodes.contains(&*machine.name);
    provisioner.supply(&key(), Some(pool), None, has_node, Lists::Recent(&of_nodes), at(second)).await
}

/// The same, recorded: the failures are those of the pass.
async fn pass(provisioner: &Provisioner, pool: &NodePool, second: i64) -> (Supply, Vec<ProviderError>) {
    let (supply, findings) = look_at(provisioner, pool, 0, second).await;
    let generation = pool.metadata.generation;
    let failures = provisioner.end_failed(&key(), generation, &findings, &supply.failed, at(second)).await;
    (supply, failures)
}

fn of_generation(generation: i64) -> NodePool {
    let mut pool = pool(1);
    pool.metadata.generation = Some(generation);
    pool
}

#[tokio::test]
async fn a_thousand_machines_at_rest_are_listed_four_times_a_minute_however_often_they_are_looked_at() {
    let (provider, provisioner) = with_machines(1000);
    for second in 0..60 {
        let (supply, findings) = look_at(&provisioner, &pool(1000), 1000, second).await;
        assert_eq!((supply.machines.len(), supply.is_unknown), (1000, false));
        let is_made = second % 15 == 0;
        assert_eq!(findings.is_recent, !is_made, "{second}");
        assert_eq!(findings.again_at, (!is_made).then(|| at((second / 15 + 1) * 15)), "{second}");
    }
    assert_eq!(provider.lists(), 4);
}

#[tokio::test]
async fn a_list_of_now_is_made_now() {
    let (provider, provisioner) = with_machines(2);
    for expected in 1..4 {
        let (_, findings) =
            provisioner.supply(&key(), Some(&pool(2)), None, |_| true, Lists::Now, at(0)).await;
        assert_eq!((provider.lists(), findings.is_recent), (expected, false));
    }
}

#[tokio::test]
async fn nothing_is_concluded_from_what_a_list_of_a_moment_ago_lacks() {
    let (provider, provisioner) = with_machines(2);
    look_at(&provisioner, &pool(2), 2, 0).await;
    // A Node whose machine it does not show, a machine without a Node, and a pool that is being deleted, or gone.
    for (nodes, expected) in [(2, 1), (3, 2), (1, 3), (2, 3)] {
        look_at(&provisioner, &pool(2), nodes, 1).await;
        assert_eq!(provider.lists(), expected, "{nodes} nodes");
    }
    let mut deleted = pool(2);
    deleted.metadata.deletion_timestamp = Some(Time(at(0)));
    look_at(&provisioner, &deleted, 2, 1).await;
    assert_eq!(provider.lists(), 4);
    provisioner.supply(&key(), None, None, |_| true, Lists::Recent(&BTreeSet::new()), at(1)).await;
    assert_eq!(provider.lists(), 5);
}

#[tokio::test]
async fn machines_that_start_fail_or_end_are_listed_with_every_pass() {
    let failed = Progress::Failed(ProviderError::Transient("m".to_owned()));
    for progress in [Progress::Starting(None), Progress::Deleting, failed] {
        let (provider, provisioner) = with_machines(2);
        provider.state().machines[1].1 = Some(progress.clone());
        for _ in 0..3 {
            look_at(&provisioner, &pool(2), 2, 0).await;
        }
        assert_eq!(provider.lists(), 3, "{progress:?}");
    }
}

#[tokio::test]
async fn after_a_change_the_machines_are_listed_again() {
    let (provider, provisioner) = with_machines(1);
    let look = async || {
        look_at(&provisioner, &pool(1), 1, 0).await;
        provider.lists()
    };
    assert_eq!((look().await, look().await), (1, 1));
    provisioner
        .delete(&key(), Some(&pool(1)), Some("simulated"), &slot(0), &Absence::Credible, at(0))
        .await
        .unwrap();
    assert_eq!(look().await, 2);
    provisioner.delete(&key(), Some(&pool(1)), None, "a", &Absence::Credible, at(0)).await.unwrap();
    assert_eq!(look().await, 3);
    let spec = pool(1).spec;
    let request = MachineRequest { pool: &key(), name: &slot(0), spec: &spec, existing: 0 };
    provisioner.create(request, at(0)).await.unwrap();
    assert_eq!(look().await, 4);
    // It may come late, so no list is the last word.
    provider.state().error = Some(ProviderError::Unreachable("m".to_owned()));
    provisioner.create(request, at(0)).await.unwrap_err();
    provider.state().error = None;
    provider.state().machines.clear();
    let pool = pool(1);
    for expected in 5..8 {
        look_at(&provisioner, &pool, 0, 0).await;
        assert_eq!(provider.lists(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_repeated_less_and_less_often_and_unknown_all_the_time() {
    let (provider, provisioner) = with_machines(0);
    provider.state().error = Some(ProviderError::Unreachable("it is down".to_owned()));
    let mut asked_at = Vec::new();
    for second in 0..130 {
        let before = provider.lists();
        let (supply, failures) = pass(&provisioner, &of_generation(1), second).await;
        assert!(supply.is_unknown && !supply.may_request(at(1000)), "{second}");
        assert!(supply.removals_wait.is_some_and(|why| why.contains("it is down")), "{second}");
        assert_eq!(supply.failure.unwrap().reason, Reason::ProviderUnreachable);
        assert_eq!(failures, [ProviderError::Unreachable("it is down".to_owned())], "{second}");
        if provider.lists() > before {
            asked_at.push(second);
        }
    }
    assert_eq!(asked_at, [0, 1, 3, 7, 15, 31, 61, 91, 121]);
    let calls = provider.lists();
    pass(&provisioner, &of_generation(2), 130).await;
    assert_eq!(provider.lists(), calls + 1, "another spec may name another thing");
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_did_not_repeat_a_list_makes_no_backoff_longer_and_comes_back_when_it_may() {
    let (provider, provisioner) = with_machines(0);
    provider.state().error = Some(ProviderError::throttled("slow down".to_owned(), Duration::from_secs(40)));
    let (_, failures) = pass(&provisioner, &of_generation(1), 0).await;
    assert_eq!(failures.len(), 1);
    let first = provisioner.last_failure(&key()).unwrap();
    assert_eq!(first.retry_at, at(40), "the backoff of a first failure is five seconds");
    provider.state().error = None;
    for second in [1, 20, 39] {
        let (supply, findings) = look_at(&provisioner, &of_generation(1), 0, second).await;
        assert!(supply.is_unknown && findings.failures.is_empty());
        assert_eq!((findings.repeated.len(), findings.again_at), (1, Some(at(40))));
        pass(&provisioner, &of_generation(1), second).await;
        assert_eq!(provisioner.last_failure(&key()), Some(first.clone()));
    }
    assert_eq!(provider.lists(), 1);
    let (supply, failures) = pass(&provisioner, &of_generation(1), 41).await;
    assert!(!supply.is_unknown && failures.is_empty() && supply.may_request(at(41)));
}

#[tokio::test]
async fn a_creation_that_is_turned_away_is_repeated_when_the_provider_says() {
    let (provider, provisioner) = with_machines(0);
    let error = ProviderError::throttled("slow down".to_owned(), Duration::from_secs(40));
    provider.state().error = Some(error.clone());
    let spec = pool(1).spec;
    let request = MachineRequest { pool: &key(), name: &slot(0), spec: &spec, existing: 0 };
    assert_eq!(provisioner.create(request, at(0)).await, Err(error.clone()));
    let failure = provisioner.record_failure(&key(), Some(1), error.reason(), error.to_string(), at(0));
    assert_eq!(failure.retry_at, at(40));
    provider.state().error = None;
    let (supply, _) = look_at(&provisioner, &pool(1), 0, 1).await;
    assert!(!supply.is_unknown, "its machines may be listed");
}

#[tokio::test]
async fn a_provider_in_this_process_is_asked_every_time() {
    let simulated = Provisioner::with(cluster(), vec![Box::new(Simulated::default())]);
    let heard = Arc::<Heard>::default();
    let simulated = simulated.observed_by(heard.clone());
    let mut pool = pool(1);
    pool.spec.provider.simulated = Some(SimulatedProvider::default());
    for _ in 0..3 {
        look_at(&simulated, &pool, 0, 0).await;
    }
    assert_eq!(heard.0.lock().unwrap().len(), 3);
}

/// Calls that were heard of.
#[derive(Default)]
struct Heard(Mutex<Vec<(String, Call, &'static str)>>);

impl CallObserver for Heard {
    fn ended(&self, call: &EndedCall<'_>) {
        let EndedCall { provider, call, result, took: _ } = *call;
        self.0.lock().unwrap().push((provider.to_owned(), call, result));
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_is_heard_of_once_under_the_kind_of_its_provider_and_no_list_that_was_not_made() {
    let program = "rack=/no/such/program".parse().unwrap();
    let heard = Arc::<Heard>::default();
    let provisioner = Provisioner::with(cluster(), vec![Box::new(Exec::new(program, cluster()))]);
    let provisioner = provisioner.observed_by(heard.clone());
    let mut pool = pool(1);
    let exec = ExecProvider { name: "rack".to_owned(), ..ExecProvider::default() };
    pool.spec.provider = ProviderSpec { exec: Some(exec), ..ProviderSpec::default() };
    for _ in 0..2 {
        look_at(&provisioner, &pool, 0, 0).await;
    }
    let request = MachineRequest { pool: &key(), name: &slot(0), spec: &pool.spec, existing: 0 };
    provisioner.create(request, at(0)).await.unwrap_err();
    let deleted = provisioner.delete(&key(), Some(&pool), None, &slot(0), &Absence::Credible, at(0)).await;
    deleted.unwrap_err();
    let expected = [Call::List, Call::Create, Call::Delete];
    assert_eq!(*heard.0.lock().unwrap(), expected.map(|call| ("exec".to_owned(), call, "transient")));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_is_left_alone_from_when_its_call_is_given_up() {
    let (provider, provisioner) = with_machines(0);
    provider.state().error = Some(ProviderError::Unreachable("it is down".to_owned()));
    for second in [0, 1] {
        look_at(&provisioner, &pool(1), 0, second).await;
    }
    provider.state().hangs = true;
    // The third pause is one of four seconds, and this call is given up after thirty.
    for (second, lists) in [(3, 3), (34, 3), (36, 3), (38, 4)] {
        let (supply, _) = look_at(&provisioner, &pool(1), 0, second).await;
        assert_eq!((supply.is_unknown, provider.lists()), (true, lists), "{second}");
    }
}
