//! What every provider has to do, whatever it makes machines of: run against each of them.
//!
//! A provider gives a [`Bench`]: itself, a spec that selects it, and the hands that make its machines run, its answers get
//! lost, and its back end lie.

use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::{ExecProvider, KarpenterProvider, NodePoolSpec, ProviderSpec, SimulatedProvider};

use super::exec::Exec;
use super::simulated::Simulated;
use super::*;
use crate::testing::{at, cluster, key};

/// A provider under test.
struct Bench {
    provider: Box<dyn NamedProvider>,
    /// The same back end for another cluster; `None` where machines are in this process alone.
    elsewhere: Option<Box<dyn NamedProvider>>,
    /// What its machines need, until the end of the test.
    _directory: Option<tempfile::TempDir>,
    spec: ProviderSpec,
    /// A spec with room for this many machines; `None` for a provider that only reports later that it has no room.
    with_quota: Option<fn(i32) -> ProviderSpec>,
    /// When every requested machine runs.
    running_at: Timestamp,
}

fn simulated() -> Bench {
    let with_quota = |quota| ProviderSpec {
        simulated: Some(SimulatedProvider { quota: Some(quota), ..SimulatedProvider::default() }),
        ..ProviderSpec::default()
    };
    let spec = SimulatedProvider { provision_seconds: 30, ..SimulatedProvider::default() };
    Bench {
        provider: Box::new(Simulated::default()),
        elsewhere: None,
        _directory: None,
        spec: ProviderSpec { simulated: Some(spec), ..ProviderSpec::default() },
        with_quota: Some(with_quota),
        running_at: at(130),
    }
}

/// The program of the documentation.
fn exec() -> Bench {
    let with_quota = |quota: i32| {
        let parameters = [("quota".to_owned(), quota.to_string())].into();
        let exec = ExecProvider { name: "directory".to_owned(), parameters };
        ProviderSpec { exec: Some(exec), ..ProviderSpec::default() }
    };
    let directory = tempfile::tempdir().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/providers/exec/directory.sh");
    let machines = directory.path().join("machines");
    let run = format!("DIRECTORY={} exec {example}", machines.display());
    let program = || exec::tests::script("directory", &directory, &run);
    Bench {
        provider: Box::new(Exec::new(program(), cluster())),
        elsewhere: Some(Box::new(Exec::new(program(), "there".into()))),
        _directory: Some(directory),
        spec: with_quota(1000),
        with_quota: Some(with_quota),
        running_at: at(100),
    }
}

#[test]
fn the_documentation_shows_the_program_that_is_tested() {
    let page = include_str!("../../docs/providers/exec.md");
    let program = include_str!("../../docs/providers/exec/directory.sh");
    let shown = program.split_once("set -eu").unwrap().1;
    assert!(page.contains(shown), "docs/providers/exec.md does not show directory.sh");
}

/// Karpenter, which launches at once.
fn karpenter() -> Bench {
    let karpenter = Some(KarpenterProvider::default());
    let [here, there] = karpenter::tests::stored_for([cluster(), "there".into()]);
    Bench {
        provider: Box::new(here),
        elsewhere: Some(Box::new(there)),
        _directory: None,
        spec: ProviderSpec { karpenter, ..ProviderSpec::default() },
        with_quota: None,
        running_at: at(100),
    }
}

/// Every provider.
fn all() -> Vec<Bench> {
    vec![simulated(), exec(), karpenter()]
}

impl Bench {
    async fn create(&self, name: &str) -> Result<Option<Timestamp>, ProviderError> {
        self.create_in(&key(), name, &self.spec, 0).await
    }

    async fn create_in(
        &self,
        pool: &PoolKey,
        name: &str,
        spec: &ProviderSpec,
        existing: usize,
    ) -> Result<Option<Timestamp>, ProviderError> {
        let spec = NodePoolSpec { provider: spec.clone(), ..NodePoolSpec::default() };
        self.provider.create(MachineRequest { pool, name, spec: &spec, existing }, at(100)).await
    }

    async fn listed(&self, pool: &PoolKey) -> Vec<(String, Progress)> {
        let mut machines = self.provider.list(pool, self.running_at).await.unwrap();
        machines.sort_by(|a, b| a.name.cmp(&b.name));
        machines.into_iter().map(|machine| (machine.name, machine.progress)).collect()
    }
}

#[tokio::test]
async fn a_machine_runs_in_the_end_and_is_listed_under_its_name() {
    for bench in all() {
        bench.create("a").await.unwrap();
        bench.create("b").await.unwrap();
        let expected = ["a", "b"].map(|name| (name.to_owned(), Progress::Running));
        assert_eq!(bench.listed(&key()).await, expected, "{}", bench.provider.reference());
    }
}

#[tokio::test]
async fn a_repeated_creation_makes_no_second_machine() {
    for bench in all() {
        let first = bench.create("a").await;
        assert_eq!(bench.create("a").await, first, "{}", bench.provider.reference());
        assert_eq!(bench.listed(&key()).await.len(), 1);
    }
}

#[tokio::test]
async fn a_deleted_machine_is_gone_and_so_is_one_that_never_was() {
    for bench in all() {
        bench.create("a").await.unwrap();
        bench.provider.delete(&key(), "a").await.unwrap();
        for name in ["a", "never"] {
            assert_eq!(bench.provider.delete(&key(), name).await, Ok(Deletion::Gone));
        }
        assert_eq!(bench.listed(&key()).await, [], "{}", bench.provider.reference());
        bench.create("a").await.unwrap();
        assert_eq!(bench.listed(&key()).await.len(), 1, "its name is free again");
    }
}

#[tokio::test]
async fn pools_do_not_see_each_others_machines() {
    let other = PoolKey { namespace: "other".into(), name: key().name };
    for bench in all() {
        bench.create("a").await.unwrap();
        bench.create_in(&other, "b", &bench.spec, 0).await.unwrap();
        assert_eq!(bench.listed(&key()).await[0].0, "a");
        // Where all pools share the names of machines, it may be said that this one is another's.
        let answer = bench.provider.delete(&key(), "b").await;
        assert!(matches!(answer, Ok(Deletion::Gone) | Err(ProviderError::Transient(_))), "{answer:?}");
        assert_eq!(bench.listed(&other).await[0].0, "b", "{}", bench.provider.reference());
    }
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_said_and_makes_no_machine() {
    for bench in all() {
        let Some(with_quota) = bench.with_quota else { continue };
        let spec = with_quota(2);
        for (existing, name) in ["a", "b"].iter().enumerate() {
            bench.create_in(&key(), name, &spec, existing).await.unwrap();
        }
        let refused = bench.create_in(&key(), "c", &spec, 2).await;
        assert!(matches!(refused, Err(ProviderError::Quota(_))), "{refused:?}");
        assert_eq!(bench.listed(&key()).await.len(), 2, "{}", bench.provider.reference());
        assert!(bench.create_in(&key(), "b", &spec, 2).await.is_ok(), "a repeated request is no new one");
    }
}

#[tokio::test]
async fn a_spec_of_another_provider_selects_none_and_is_invalid() {
    for bench in all() {
        let other = ProviderSpec::default();
        assert_eq!(bench.spec.reference().as_deref(), Some(bench.provider.reference()));
        assert!(bench.provider.node_source(&bench.spec).is_ok());
        assert!(matches!(bench.provider.node_source(&other), Err(ProviderError::Invalid(_))));
        let refused = bench.create_in(&key(), "a", &other, 0).await;
        assert!(
            matches!(refused, Err(ProviderError::Invalid(_))),
            "{}: {refused:?}",
            bench.provider.reference()
        );
    }
}

#[tokio::test]
async fn a_machine_carries_the_cluster_it_was_made_for_and_is_deleted_by_no_other() {
    for bench in all() {
        let Some(elsewhere) = &bench.elsewhere else { continue };
        let (pool, reference) = (key(), bench.provider.reference());
        bench.create("a").await.unwrap();
        let spec = NodePoolSpec { provider: bench.spec.clone(), ..NodePoolSpec::default() };
        let theirs = MachineRequest { pool: &pool, name: "b", spec: &spec, existing: 0 };
        elsewhere.create(theirs, at(100)).await.unwrap();
        for (provider, own) in [(&bench.provider, "here"), (elsewhere, "there")] {
            let mut listed = provider.list(&pool, bench.running_at).await.unwrap();
            listed.sort_by(|a, b| a.name.cmp(&b.name));
            let carried: Vec<_> =
                listed.iter().map(|machine| (&*machine.name, machine.cluster.as_deref())).collect();
            let both = [("a", Some("here")), ("b", Some("there"))];
            // Those of others may be left out.
            let of_own = both.into_iter().filter(|(_, cluster)| *cluster == Some(own)).collect::<Vec<_>>();
            assert!(carried == both || carried == of_own, "{reference}: {carried:?}");
        }
        // Neither is it deleted, nor taken for one of this cluster's.
        let refused = bench.provider.delete(&pool, "b").await;
        assert!(matches!(refused, Err(ProviderError::Transient(_))), "{reference}: {refused:?}");
        let refused = bench.create("b").await;
        assert!(matches!(refused, Err(ProviderError::Transient(_))), "{reference}: {refused:?}");
        elsewhere.delete(&pool, "b").await.unwrap();
        assert_eq!(bench.listed(&pool).await.len(), 1, "{reference}");
    }
}
