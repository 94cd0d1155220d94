//! What every maker has to do while the world behind it is in trouble: run against all four, of both shapes, by what calls them
//! in the operator. What each has to do otherwise is in `contract_tests` and `sized_contract_tests`.
//!
//! A trouble that makes no sense for a maker stands in a table here, and its hands say why.

use std::pin::pin;

use node_lifecycle::slots::Slots;
use node_lifecycle::supply::{Absence, Supply};
use shared_crds::NodePool;
use tokio::time::Instant;

use super::calls::Call;
use super::cluster_api::hands::ClusterApiHands;
use super::exec::hands::ExecHands;
use super::hands::{Hands, STRANGER, Trouble};
use super::karpenter::hands::KarpenterHands;
use super::provisioner::{Lists, Provisioner, SizeChange};
use super::simulated::hands::SimulatedHands;
use super::*;
use crate::testing::{at, cluster, key, pool};

/// The four makers, each with a world of its own.
fn makers() -> [Box<dyn Hands>; 4] {
    [
        Box::new(SimulatedHands::default()),
        Box::new(ExecHands::new()),
        Box::new(KarpenterHands::default()),
        Box::new(ClusterApiHands::new()),
    ]
}

/// What makes no sense, by the maker.
const NO_SENSE: [(&str, Trouble); 9] = [
    ("simulated", Trouble::LostCreation),
    ("simulated", Trouble::LostDeletion),
    ("simulated", Trouble::Silence),
    ("simulated", Trouble::FailedList),
    ("simulated", Trouble::CutList),
    ("simulated", Trouble::PartialList),
    ("simulated", Trouble::EmptyList),
    ("karpenter", Trouble::EmptyList),
    ("clusterApi", Trouble::NoRoom),
];

#[tokio::test]
async fn a_trouble_that_makes_no_sense_for_a_maker_stands_in_the_table_with_a_reason() {
    let mut found = Vec::new();
    for hands in makers() {
        for trouble in Trouble::ALL {
            if let Some(why) = hands.no_sense(trouble) {
                assert!(why.len() > 30, "{} {trouble:?}: {why}", hands.maker());
                found.push((hands.maker(), trouble));
            }
        }
    }
    assert_eq!(found, NO_SENSE);
    assert_eq!(makers().len() * Trouble::ALL.len() - NO_SENSE.len(), 31, "as many are looked at");
}

/// The name of the pool's machine in this slot.
fn slot(key: &PoolKey, number: usize) -> String {
    format!("{}{number}", Slots::of(&cluster(), key).prefix())
}

/// The names of the machines, in order.
fn names(supply: &Supply) -> Vec<String> {
    let mut names: Vec<_> = supply.machines.iter().map(|machine| machine.name.clone()).collect();
    names.sort();
    names
}

/// What a pass sees.
struct Seen {
    supply: Supply,
    failures: Vec<ProviderError>,
}

/// A pool as it was before a call.
struct Known {
    key: PoolKey,
    supply: Supply,
    machine: String,
}

/// A maker, and what calls it.
struct Bench {
    hands: Box<dyn Hands>,
    provisioner: Provisioner,
}

impl Bench {
    fn new(hands: Box<dyn Hands>) -> Self {
        let provisioner = hands.provisioner();
        Self { hands, provisioner }
    }

    fn pool(&self, key: &PoolKey) -> NodePool {
        let mut pool = pool(1);
        pool.metadata.namespace = Some(key.namespace.clone());
        pool.metadata.name = Some(key.name.clone());
        pool.spec.provider = self.hands.spec();
        pool
    }

    /// What a pass sees at this second.
    async fn look(&self, key: &PoolKey, second: i64) -> Seen {
        let pool = self.pool(key);
        let has_node = |_: &ListedMachine| true;
        let (supply, findings) =
            self.provisioner.supply(key, Some(&pool), None, has_node, Lists::Now, at(second)).await;
        Seen { supply, failures: findings.failures }
    }

    /// Lets `process` ask for the machine with this number, as after a pass that saw `supply`.
    async fn ask(
        &self,
        process: &Provisioner,
        key: &PoolKey,
        supply: &Supply,
        number: usize,
    ) -> Result<(), ProviderError> {
        let pool = self.pool(key);
        if let Some(size) = supply.size {
            return process.resize(key, &pool.spec.provider, size, SizeChange::Grow(1), at(0)).await;
        }
        let name = slot(key, number);
        let request = MachineRequest { pool: key, name: &name, spec: &pool.spec, existing: number };
        process.create(request, at(0)).await.map(drop)
    }

    async fn delete(&self, key: &PoolKey, name: &str) -> Result<Deletion, ProviderError> {
        let pool = self.pool(key);
        let made_by = pool.spec.provider.reference();
        self.provisioner.delete(key, Some(&pool), made_by.as_deref(), name, &Absence::Credible, at(0)).await
    }

    /// Deletes the machine until it is gone.
    async fn delete_entirely(&self, key: &PoolKey, name: &str) {
        for _ in 0..3 {
            if self.delete(key, name).await.unwrap() == Deletion::Gone {
                return;
            }
            self.hands.settle();
        }
        panic!("{}: {name} is still there", self.hands.maker());
    }

    /// Lets the pool have so many machines that run. Returns their names, in order.
    async fn with_machines(&self, key: &PoolKey, count: usize) -> Vec<String> {
        for number in 0..count {
            let Seen { supply, .. } = self.look(key, 0).await;
            self.ask(&self.provisioner, key, &supply, number).await.unwrap();
            self.hands.settle();
        }
        let Seen { supply, failures } = self.look(key, 1).await;
        assert_eq!((supply.machines.len(), failures), (count, vec![]), "{}", self.hands.maker());
        names(&supply)
    }

    /// The pool with one machine.
    async fn known(&self, key: PoolKey) -> Known {
        let machine = self.with_machines(&key, 1).await.remove(0);
        let Seen { supply, .. } = self.look(&key, 1).await;
        Known { key, supply, machine }
    }

    /// One call about the pool.
    async fn call(&self, call: Call, known: &Known) -> Result<(), ProviderError> {
        let Known { key, supply, machine } = known;
        match call {
            Call::List => self.look(key, 1000).await.failures.pop().map_or(Ok(()), Err),
            Call::Delete => self.delete(key, machine).await.map(drop),
            _ => self.ask(&self.provisioner, key, supply, 1).await,
        }
    }
}

/// Looks at what every maker does in this trouble, where that makes sense.
async fn holds(trouble: Trouble) {
    for hands in makers() {
        if hands.no_sense(trouble).is_some() {
            continue;
        }
        let bench = Bench::new(hands);
        match trouble {
            Trouble::LostCreation => after_a_lost_creation(&bench).await,
            Trouble::LostDeletion => after_a_lost_deletion(&bench).await,
            Trouble::Silence => in_silence(&bench).await,
            Trouble::FailedList | Trouble::CutList => without_a_list(&bench, trouble).await,
            Trouble::PartialList | Trouble::EmptyList => with_a_list_that_lacks(&bench, trouble).await,
            Trouble::GhostList => with_a_ghost(&bench).await,
            Trouble::NoRoom => without_room(&bench).await,
            Trouble::Stranger => beside_a_stranger(&bench).await,
        }
    }
}

#[tokio::test]
async fn a_machine_that_is_gone_is_deleted_again_and_so_is_one_that_never_was() {
    for hands in makers() {
        let bench = Bench::new(hands);
        let maker = bench.hands.maker();
        let machines = bench.with_machines(&key(), 2).await;
        bench.delete_entirely(&key(), &machines[0]).await;
        for name in [&*machines[0], "never"] {
            assert_eq!(bench.delete(&key(), name).await, Ok(Deletion::Gone), "{maker}: {name}");
        }
        bench.hands.settle();
        assert_eq!(bench.hands.machines(), machines[1..], "{maker}");
        let Seen { supply, failures } = bench.look(&key(), 1000).await;
        assert_eq!((names(&supply), failures), (machines[1..].to_vec(), vec![]), "{maker}");
    }
}

#[tokio::test]
async fn a_creation_whose_answer_is_lost_makes_no_second_machine() {
    holds(Trouble::LostCreation).await;
}

async fn after_a_lost_creation(bench: &Bench) {
    let maker = bench.hands.maker();
    let before = bench.look(&key(), 0).await.supply;
    bench.hands.make(Trouble::LostCreation);
    let answer = bench.ask(&bench.provisioner, &key(), &before, 0).await;
    assert!(matches!(answer, Err(ProviderError::Unreachable(_))), "{maker}: {answer:?}");
    bench.hands.end();
    bench.hands.settle();
    assert_eq!(bench.hands.machines().len(), 1, "{maker}: it was made");
    let Seen { supply, failures } = bench.look(&key(), 1000).await;
    assert_eq!((supply.machines.len(), failures, supply.is_unknown), (1, vec![], false), "{maker}");
    // A process that does not know that asks again: this process, and one that was started after a crash.
    for process in [&bench.provisioner, &bench.hands.provisioner()] {
        let again = bench.ask(process, &key(), &before, 0).await;
        assert!(matches!(again, Ok(()) | Err(ProviderError::Conflict)), "{maker}: {again:?}");
        bench.hands.settle();
        assert_eq!(bench.hands.machines().len(), 1, "{maker}");
    }
}

#[tokio::test]
async fn a_deletion_whose_answer_is_lost_takes_no_second_machine() {
    holds(Trouble::LostDeletion).await;
}

async fn after_a_lost_deletion(bench: &Bench) {
    let maker = bench.hands.maker();
    let machines = bench.with_machines(&key(), 2).await;
    bench.hands.make(Trouble::LostDeletion);
    let answer = bench.delete(&key(), &machines[0]).await;
    assert!(matches!(answer, Err(ProviderError::Unreachable(_))), "{maker}: {answer:?}");
    bench.hands.end();
    bench.delete_entirely(&key(), &machines[0]).await;
    bench.hands.settle();
    assert_eq!(bench.hands.machines(), machines[1..], "{maker}");
}

#[tokio::test]
async fn a_call_that_is_not_answered_ends_in_time_and_holds_up_no_other_pool() {
    holds(Trouble::Silence).await;
}

async fn in_silence(bench: &Bench) {
    let maker = bench.hands.maker();
    let silent = bench.known(key()).await;
    let answered = bench.known(PoolKey { namespace: "other".into(), ..key() }).await;
    bench.hands.make(Trouble::Silence);
    for call in [Call::List, Call::Create, Call::Delete] {
        let mut unanswered = pin!(bench.call(call, &silent));
        tokio::select! {
            biased;
            answer = &mut unanswered => panic!("{maker} {call:?}: {answer:?}"),
            answer = bench.call(call, &answered) => assert_eq!(answer, Ok(()), "{maker} {call:?}"),
        }
        // What is left is to wait. A program runs in real time, so the clock is stopped here alone.
        tokio::time::pause();
        let begun = Instant::now();
        let answer = unanswered.await;
        let took = begun.elapsed();
        tokio::time::resume();
        assert!(matches!(answer, Err(ProviderError::Unreachable(_))), "{maker} {call:?}: {answer:?}");
        assert!(took <= CALL_LIMIT + Duration::from_secs(1), "{maker} {call:?}: {took:?}");
    }
}

#[tokio::test]
async fn nothing_is_known_of_machines_whose_list_fails() {
    holds(Trouble::FailedList).await;
}

#[tokio::test]
async fn nothing_is_known_of_machines_whose_list_ends_in_the_middle() {
    holds(Trouble::CutList).await;
}

async fn without_a_list(bench: &Bench, trouble: Trouble) {
    let maker = bench.hands.maker();
    let machines = bench.with_machines(&key(), 2).await;
    bench.hands.make(trouble);
    let Seen { supply, failures } = bench.look(&key(), 1000).await;
    assert!(supply.is_unknown && supply.machines.is_empty(), "{maker}: {failures:?}");
    assert!(supply.removals_wait.is_some() && !supply.may_request(at(9000)), "{maker}: {failures:?}");
    assert_eq!(failures.len(), 1, "{maker}: {failures:?}");
    bench.hands.end();
    let Seen { supply, failures } = bench.look(&key(), 2000).await;
    assert_eq!((names(&supply), failures, supply.is_unknown), (machines, vec![], false), "{maker}");
}

#[tokio::test]
async fn a_machine_that_a_partial_list_lacks_is_not_taken_for_one_that_is_gone() {
    holds(Trouble::PartialList).await;
}

#[tokio::test]
async fn machines_that_an_empty_list_lacks_are_not_taken_for_ones_that_are_gone() {
    holds(Trouble::EmptyList).await;
}

async fn with_a_list_that_lacks(bench: &Bench, trouble: Trouble) {
    let maker = bench.hands.maker();
    let machines = bench.with_machines(&key(), 2).await;
    let honest = bench.look(&key(), 1).await.supply.completeness;
    assert_ne!(honest, Completeness::Unknown, "{maker}: nothing would be concluded anyway");
    bench.hands.make(trouble);
    let Seen { supply, failures } = bench.look(&key(), 1000).await;
    let (count, completeness) = (supply.machines.len(), supply.completeness);
    // The list is refused, or says itself that it may lack machines, or those that it lacks are counted still.
    let is_doubted = supply.is_unknown || completeness == Completeness::Unknown || count == machines.len();
    assert!(is_doubted, "{maker}: {count} machines, {completeness:?}, {failures:?}");
    bench.hands.end();
    assert_eq!(names(&bench.look(&key(), 2000).await.supply), machines, "{maker}");
}

#[tokio::test]
async fn nothing_is_removed_while_a_list_shows_a_machine_that_does_not_exist() {
    holds(Trouble::GhostList).await;
}

async fn with_a_ghost(bench: &Bench) {
    let maker = bench.hands.maker();
    let machines = bench.with_machines(&key(), 2).await;
    bench.hands.make(Trouble::GhostList);
    let Seen { supply, failures } = bench.look(&key(), 1000).await;
    assert!(supply.removals_wait.is_some(), "{maker}: {:?} {failures:?}", names(&supply));
    bench.hands.end();
    let Seen { supply, failures } = bench.look(&key(), 2000).await;
    assert_eq!((names(&supply), failures, supply.removals_wait), (machines, vec![], None), "{maker}");
}

#[tokio::test]
async fn that_there_is_no_room_is_said_as_that_in_the_providers_words() {
    holds(Trouble::NoRoom).await;
}

async fn without_room(bench: &Bench) {
    let (maker, words) = (bench.hands.maker(), bench.hands.no_room());
    let before = bench.look(&key(), 0).await.supply;
    bench.hands.make(Trouble::NoRoom);
    let error = match bench.ask(&bench.provisioner, &key(), &before, 0).await {
        Err(error) => error,
        // It was accepted, and given up later.
        Ok(()) => bench.look(&key(), 1000).await.failures.remove(0),
    };
    assert!(matches!(&error, ProviderError::Quota(said) if said.contains(words)), "{maker}: {error:?}");
    assert_eq!(error.reason(), Reason::QuotaExceeded, "{maker}");
    assert!(!error.may_be_of_one_machine(), "{maker}: no other machine would come");
    assert_eq!(bench.hands.machines(), [""; 0], "{maker}");
}

#[tokio::test]
async fn a_machine_that_is_not_the_pools_is_left_as_it_is() {
    holds(Trouble::Stranger).await;
}

async fn beside_a_stranger(bench: &Bench) {
    let maker = bench.hands.maker();
    let machines = bench.with_machines(&key(), 1).await;
    bench.hands.make(Trouble::Stranger);
    let before = bench.hands.machines();
    assert_eq!(before.len(), 2, "{maker}: {before:?}");
    // A process that has not listed it, and one that has.
    for has_listed in [false, true] {
        if has_listed {
            let Seen { supply, failures } = bench.look(&key(), 1000).await;
            assert_eq!((names(&supply), failures), (machines.clone(), vec![]), "{maker}");
        }
        let answer = bench.delete(&key(), STRANGER).await;
        assert!(
            matches!(answer, Ok(Deletion::Gone) | Err(ProviderError::Transient(_))),
            "{maker}: {answer:?}"
        );
        bench.hands.settle();
        assert_eq!(bench.hands.machines(), before, "{maker}");
    }
}

/// A provisioner with two programs, which answer to everything with these.
fn with_programs(directories: &[tempfile::TempDir; 2], answers: [&str; 2]) -> Provisioner {
    let program = |(number, answer): (usize, &str)| {
        let script =
            exec::tests::script(&format!("p{number}"), &directories[number], &format!("echo '{answer}'"));
        Box::new(exec::Exec::new(script, cluster())) as Box<dyn NamedProvider>
    };
    Provisioner::with(cluster(), answers.into_iter().enumerate().map(program).collect())
}

#[tokio::test]
async fn a_machine_whose_maker_is_not_known_is_deleted_although_another_one_refuses_and_is_not_gone_while_one_fails()
 {
    let refuses = r#"{"error": {"message": "it is none of mine"}}"#;
    let (gone, ends) = (r#"{"state": "Gone"}"#, r#"{"state": "Deleting"}"#);
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (answers, expected) in [
        ([refuses, ends], Some(Deletion::Started)),
        ([ends, refuses], Some(Deletion::Started)),
        ([ends, gone], Some(Deletion::Started)),
        ([gone, gone], Some(Deletion::Gone)),
        ([refuses, gone], None),
        ([gone, refuses], None),
    ] {
        let provisioner = with_programs(&directories, answers);
        let answer = provisioner.delete(&key(), None, None, "a", &Absence::Credible, at(0)).await;
        assert_eq!(answer.as_ref().ok(), expected.as_ref(), "{answers:?}: {answer:?}");
    }
}
