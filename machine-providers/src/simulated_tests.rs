//! Tests of `simulated`.

use shared_crds::v1alpha1::NodePoolSpec;

use super::*;
use crate::testing::{at, key};

fn provider_spec(simulated: SimulatedProvider) -> ProviderSpec {
    ProviderSpec { simulated: Some(simulated), ..ProviderSpec::default() }
}

fn request(
    provider: &Simulated,
    spec: &ProviderSpec,
    name: &str,
    existing: usize,
) -> Result<Option<Timestamp>, ProviderError> {
    let spec = NodePoolSpec { provider: spec.clone(), ..NodePoolSpec::default() };
    provider.request_machine(MachineRequest { pool: &key(), name, spec: &spec, existing }, at(100))
}

fn progress(provider: &Simulated, second: i64) -> Vec<Progress> {
    let machines = provider.list(&key(), at(second)).now_or_never().unwrap().unwrap();
    machines.into_iter().map(|machine| machine.progress).collect()
}

#[test]
fn a_machine_runs_at_its_expected_time() {
    let provider = Simulated::default();
    let spec = provider_spec(SimulatedProvider { provision_seconds: 30, ..SimulatedProvider::default() });
    assert_eq!(request(&provider, &spec, "a", 0), Ok(Some(at(130))));
    assert_eq!(progress(&provider, 129), [Progress::Starting(Some(at(130)))]);
    assert_eq!(progress(&provider, 130), [Progress::Running]);
}

#[test]
fn a_repeated_request_changes_nothing() {
    let provider = Simulated::default();
    let spec = provider_spec(SimulatedProvider {
        provision_seconds: 30,
        jitter_seconds: 50,
        ..SimulatedProvider::default()
    });
    let first = request(&provider, &spec, "a", 0);
    assert_eq!(request(&provider, &spec, "a", 0), first);
    assert_eq!(progress(&provider, 1000).len(), 1);
}

#[test]
fn jitter_spreads_the_times_within_its_bound() {
    let provider = Simulated::default();
    let spec = provider_spec(SimulatedProvider {
        provision_seconds: 10,
        jitter_seconds: 20,
        ..SimulatedProvider::default()
    });
    let mut times: Vec<_> =
        (0..50).map(|n| request(&provider, &spec, &format!("n-{n}"), 0).unwrap().unwrap()).collect();
    times.sort();
    times.dedup();
    assert!(times.len() > 40, "{}", times.len());
    assert!(times.iter().all(|time| (at(110)..=at(130)).contains(time)));
}

#[test]
fn about_as_many_requests_fail_as_the_spec_says_and_another_attempt_may_work() {
    let provider = Simulated::default();
    let spec = provider_spec(SimulatedProvider { failure_percent: 30, ..SimulatedProvider::default() });
    for n in 0..1000 {
        request(&provider, &spec, &format!("n-{n:04}"), 0).unwrap();
    }
    let failed = |provider: &Simulated| -> Vec<String> {
        let machines = provider.list(&key(), at(1000)).now_or_never().unwrap().unwrap();
        let failed = machines.into_iter().filter(|it| matches!(it.progress, Progress::Failed(_)));
        failed.map(|machine| machine.name).collect()
    };
    let first = failed(&provider);
    assert!((200..400).contains(&first.len()), "{}", first.len());
    for name in &first {
        provider.delete(&key(), name).now_or_never().unwrap().unwrap();
        request(&provider, &spec, name, 0).unwrap();
    }
    assert!(failed(&provider).len() < first.len() / 2);
}

#[test]
fn the_quota_counts_what_the_pool_has_already() {
    let provider = Simulated::default();
    let spec = provider_spec(SimulatedProvider { quota: Some(3), ..SimulatedProvider::default() });
    assert!(request(&provider, &spec, "a", 2).is_ok());
    assert_eq!(
        request(&provider, &spec, "b", 3),
        Err(ProviderError::Quota("the quota of this pool is 3 nodes".to_owned()))
    );
    assert_eq!(
        request(&provider, &spec, "a", 3).map(|due| due.is_some()),
        Ok(true),
        "a repeated request is not a new one"
    );
}

/// What the provider says about machines of 1,000 nodes that were requested at second 100.
fn thousand(spec: SimulatedProvider) -> Simulated {
    let (provider, spec) = (Simulated::default(), provider_spec(spec));
    for n in 0..1000 {
        request(&provider, &spec, &format!("n-{n:04}"), 0).unwrap();
    }
    provider
}

#[test]
fn about_as_many_machines_never_register_as_the_spec_says() {
    let spec = SimulatedProvider {
        provision_seconds: 30,
        never_register_percent: 30,
        ..SimulatedProvider::default()
    };
    let provider = thousand(spec);
    assert!(progress(&provider, 129).iter().all(|it| *it == Progress::Starting(Some(at(130)))));
    let never = |second| {
        let all = progress(&provider, second);
        all.into_iter().filter(|it| *it == Progress::Starting(None)).count()
    };
    assert!((200..400).contains(&never(130)), "{}", never(130));
    assert_eq!(never(1_000_000), never(130));
}

#[test]
fn a_node_that_dies_says_when_and_about_as_many_do_as_the_spec_says() {
    let spec = SimulatedProvider {
        provision_seconds: 30,
        death_percent: 30,
        death_after_seconds: 45,
        ..SimulatedProvider::default()
    };
    let traits = thousand(spec.clone()).traits(&key());
    assert!((200..400).contains(&traits.len()), "{}", traits.len());
    let expected = NodeTraits {
        annotations: [(DEATH_TIME_ANNOTATION.to_owned(), "1970-01-01T00:02:55Z".to_owned())].into(),
        size_percent: 100,
    };
    assert!(traits.values().all(|traits| *traits == expected), "{traits:?}");
    assert_eq!(thousand(spec).traits(&key()), traits, "a repeated run has the same outcome");
}

#[test]
fn about_as_many_nodes_are_undersized_as_the_spec_says_whether_or_not_they_die() {
    let spec = SimulatedProvider {
        undersized_percent: 30,
        undersized_by_percent: 20,
        ..SimulatedProvider::default()
    };
    let traits = thousand(spec.clone()).traits(&key());
    assert!((200..400).contains(&traits.len()), "{}", traits.len());
    assert!(traits.values().all(|it| it.size_percent == 80 && it.annotations.is_empty()), "{traits:?}");
    let both = thousand(SimulatedProvider { death_percent: 100, ..spec }).traits(&key());
    let small = |all: &BTreeMap<String, NodeTraits>| -> Vec<String> {
        all.iter().filter(|(_, it)| it.size_percent == 80).map(|(name, _)| name.clone()).collect()
    };
    assert_eq!((both.len(), small(&both)), (1000, small(&traits)));
}

#[test]
fn a_machine_that_fails_or_never_registers_has_no_node_to_describe() {
    for (failure_percent, never_register_percent) in [(100, 0), (0, 100)] {
        let spec = SimulatedProvider {
            failure_percent,
            never_register_percent,
            death_percent: 100,
            undersized_percent: 100,
            ..SimulatedProvider::default()
        };
        assert_eq!(thousand(spec).traits(&key()), BTreeMap::new());
    }
}

#[test]
fn a_lie_lasts_as_long_as_the_spec_tells_it() {
    let provider = Simulated::default();
    let truth = provider_spec(SimulatedProvider::default());
    request(&provider, &truth, "a", 0).unwrap();
    let listed = |lie| {
        provider.spec_is(&key(), &provider_spec(SimulatedProvider { lie, ..SimulatedProvider::default() }));
        let machines = provider.list(&key(), at(100)).now_or_never().unwrap().unwrap();
        machines.into_iter().map(|machine| machine.name).collect::<Vec<_>>()
    };
    for (lie, expected) in [
        (None, &["a"][..]),
        (Some(ProviderLie::EmptyList), &[]),
        (Some(ProviderLie::DoubleName), &["a", "a"]),
        (Some(ProviderLie::ForeignName), &["a", "another-pools-machine"]),
        (None, &["a"]),
    ] {
        assert_eq!(listed(lie), expected, "{lie:?}");
    }
}
