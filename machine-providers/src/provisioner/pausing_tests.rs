//! How long a provider is left alone, counted by its calls, and by which pools.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use node_lifecycle::supply::{Absence, FailedMachine};
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::ExecProvider;

use super::*;
use crate::calls::Call;
use crate::testing::{at, cluster, key, pool};
use crate::{Deletion, MachineRequest};

/// What a provider answers, and how often it was asked.
#[derive(Default)]
struct Answers {
    errors: HashMap<&'static str, ProviderError>,
    asked: HashMap<&'static str, usize>,
}

/// A provider without machines that answers each kind of call from a script.
#[derive(Clone)]
struct CountedProgram(&'static str, Arc<Mutex<Answers>>);

impl CountedProgram {
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.1.lock().unwrap()
    }

    fn fails(&self, call: Call, error: Option<ProviderError>) {
        let mut answers = self.answers();
        match error {
            Some(error) => answers.errors.insert(call.label(), error),
            None => answers.errors.remove(call.label()),
        };
    }

    fn asked(&self, call: Call) -> usize {
        self.answers().asked.get(call.label()).copied().unwrap_or_default()
    }

    fn answer<T: Send + 'static>(&self, call: Call, good: T) -> BoxFuture<'_, Result<T, ProviderError>> {
        let mut answers = self.answers();
        *answers.asked.entry(call.label()).or_default() += 1;
        std::future::ready(answers.errors.get(call.label()).cloned().map_or(Ok(good), Err)).boxed()
    }
}

impl NamedProvider for CountedProgram {
    fn reference(&self) -> &str {
        self.0
    }

    fn node_source(&self, _: &ProviderSpec) -> Result<NodeSource, ProviderError> {
        Ok(NodeSource::Kubelet)
    }

    fn create<'a>(
        &'a self,
        _: MachineRequest<'a>,
        _: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Timestamp>, ProviderError>> {
        self.answer(Call::Create, None)
    }

    fn list<'a>(
        &'a self,
        _: &'a PoolKey,
        _: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<ListedMachine>, ProviderError>> {
        self.answer(Call::List, Vec::new())
    }

    fn delete<'a>(&'a self, _: &'a PoolKey, _: &'a str) -> BoxFuture<'a, Result<Deletion, ProviderError>> {
        self.answer(Call::Delete, Deletion::Gone)
    }

    fn forget(&self, _: &PoolKey) {}
}

/// The programs `rack` and `other`, and what calls them.
fn two_programs() -> (CountedProgram, CountedProgram, Provisioner) {
    let (rack, other) =
        (CountedProgram("exec.rack", Arc::default()), CountedProgram("exec.other", Arc::default()));
    let provisioner = Provisioner::with(cluster(), vec![Box::new(rack.clone()), Box::new(other.clone())]);
    (rack, other, provisioner)
}

/// The pool with this number, whose machines the program makes.
fn of_program(number: usize, program: &str) -> (PoolKey, NodePool) {
    let key = PoolKey { name: format!("p{number}"), ..key() };
    let mut pool = pool(1);
    pool.metadata.name = Some(key.name.clone());
    let exec = ExecProvider { name: program.to_owned(), ..ExecProvider::default() };
    pool.spec.provider = ProviderSpec { exec: Some(exec), ..ProviderSpec::default() };
    (key, pool)
}

/// A pass of the pool at this second, as far as it lists and records. Returns the supply and when it looks again for want of a list.
async fn pass(
    provisioner: &Provisioner,
    (key, pool): &(PoolKey, NodePool),
    second: i64,
) -> (Supply, Option<Timestamp>) {
    let looked = provisioner.supply(key, Some(pool), None, |_| true, Lists::Now, at(second));
    let (supply, findings) = looked.await;
    provisioner.end_failed(key, pool.metadata.generation, &findings, &[], at(second)).await;
    (supply, findings.again_at)
}

fn throttled() -> ProviderError {
    ProviderError::throttled("slow down".to_owned(), Duration::from_secs(40))
}

async fn delete(
    provisioner: &Provisioner,
    (key, pool): &(PoolKey, NodePool),
    second: i64,
) -> Result<Deletion, ProviderError> {
    let made_by = pool.spec.provider.reference();
    provisioner.delete(key, Some(pool), made_by.as_deref(), "a", &Absence::Credible, at(second)).await
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_turned_away_is_repeated_when_the_provider_says_and_nothing_is_requested_before() {
    let (rack, _, provisioner) = two_programs();
    let own = of_program(0, "rack");
    rack.fails(Call::Delete, Some(throttled()));
    assert_eq!(delete(&provisioner, &own, 0).await, Err(throttled()));
    let (words, reason) = (throttled().to_string(), throttled().reason());
    let failure = provisioner.record_failure(&own.0, Some(1), reason, words, at(0));
    assert_eq!(failure.retry_at, at(40), "the backoff of a first failure is five seconds");
    rack.fails(Call::Delete, None);
    let again = delete(&provisioner, &own, 10).await.unwrap_err();
    assert_eq!((again.retry_after(), rack.asked(Call::Delete)), (Some(Duration::from_secs(30)), 1));
    assert_eq!(delete(&provisioner, &own, 40).await, Ok(Deletion::Gone));
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_failed_machine_that_is_turned_away_is_heard_as_well() {
    let (rack, _, provisioner) = two_programs();
    let (key, _) = of_program(0, "rack");
    rack.fails(Call::Delete, Some(throttled()));
    let failed = FailedMachine { name: "a".to_owned(), provider: "exec.rack".to_owned(), is_new: true };
    let found = ListFindings::default();
    assert_eq!(provisioner.end_failed(&key, Some(1), &found, &[failed], at(0)).await, [throttled()]);
    assert_eq!(provisioner.last_failure(&key).unwrap().retry_at, at(40));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_asks_one_pool_to_wait_is_left_alone_by_all_of_its_pools_and_by_those_alone() {
    let (rack, other, provisioner) = two_programs();
    let pools: Vec<_> = (0..10).map(|number| of_program(number, "rack")).collect();
    rack.fails(Call::List, Some(throttled()));
    for second in 0..40 {
        for pool in &pools {
            let (supply, again_at) = pass(&provisioner, pool, second).await;
            assert!(supply.is_unknown && !supply.may_request(at(second)), "{second}");
            assert!(second == 0 || again_at.is_some(), "{second}");
        }
    }
    assert_eq!(rack.asked(Call::List), 1);
    assert!(delete(&provisioner, &pools[3], 39).await.is_err());
    assert_eq!(rack.asked(Call::Delete), 0);
    let (supply, _) = pass(&provisioner, &of_program(10, "other"), 1).await;
    assert_eq!((supply.is_unknown, other.asked(Call::List)), (false, 1));
    rack.fails(Call::List, None);
    for pool in &pools {
        assert!(!pass(&provisioner, pool, 40).await.0.is_unknown);
    }
}

#[tokio::test(start_paused = true)]
async fn ten_pools_ask_a_provider_that_is_down_hardly_more_often_than_one() {
    let (rack, _, provisioner) = two_programs();
    let pools: Vec<_> = (0..10).map(|number| of_program(number, "rack")).collect();
    rack.fails(Call::List, Some(ProviderError::Unreachable("it is down".to_owned())));
    for second in 0..600 {
        for pool in &pools {
            let (supply, _) = pass(&provisioner, pool, second).await;
            assert!(supply.is_unknown, "{second}");
            assert_eq!(supply.failure.unwrap().reason, Reason::ProviderUnreachable, "{second}");
        }
    }
    let asked = rack.asked(Call::List);
    // One pool alone: after 1, 3, 7, 15 and 31 seconds, and then every half minute.
    assert!((20..=35).contains(&asked), "{asked}");
    rack.fails(Call::List, None);
    for second in [630, 631, 632] {
        for pool in &pools {
            pass(&provisioner, pool, second).await;
        }
    }
    assert!(!pass(&provisioner, &pools[9], 633).await.0.is_unknown);
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_one_pool_alone_holds_up_no_other() {
    let words = || "m".to_owned();
    for error in [
        ProviderError::Quota(words()),
        ProviderError::Invalid(words()),
        ProviderError::Transient(words()),
        ProviderError::Unreachable(words()),
    ] {
        let (rack, _, provisioner) = two_programs();
        rack.fails(Call::List, Some(error.clone()));
        for second in 0..5 {
            pass(&provisioner, &of_program(0, "rack"), second).await;
        }
        rack.fails(Call::List, None);
        assert!(!pass(&provisioner, &of_program(1, "rack"), 5).await.0.is_unknown, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_is_not_asked_for_is_not_expected() {
    let (rack, _, provisioner) = two_programs();
    let create = async |number: usize, second: i64| {
        let (key, pool) = of_program(number, "rack");
        let request = MachineRequest { pool: &key, name: "a", spec: &pool.spec, existing: 0 };
        provisioner.create(request, at(second)).await
    };
    rack.fails(Call::Create, Some(ProviderError::Unreachable("it is down".to_owned())));
    for number in 0..2 {
        create(number, 0).await.unwrap_err();
    }
    rack.fails(Call::Create, None);
    let refused = create(2, 0).await.unwrap_err();
    assert!(matches!(refused, ProviderError::Unreachable(_)), "{refused}");
    assert_eq!(rack.asked(Call::Create), 2);
    let (supply, _) = pass(&provisioner, &of_program(2, "rack"), 0).await;
    assert_eq!(supply.uncertain_until, None);
    create(2, 1).await.unwrap();
}
