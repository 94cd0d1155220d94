//! What every provider that keeps a number of machines has to do. There is one: Cluster API, whose API server is a closure and
//! whose controllers act when they are told to.

use shared_crds::v1alpha1::ProviderSpec;

use super::cluster_api::tests::{Bench, bench};
use super::*;
use crate::testing::key;

async fn list(bench: &Bench) -> SizedList {
    bench.provider.list(&key(), "md").await.unwrap()
}

/// Names and progress of the machines.
async fn listed(bench: &Bench) -> Vec<(String, Progress)> {
    let mut machines: Vec<_> = list(bench).await.machines.into_iter().map(|(machine, _)| machine).collect();
    machines.sort_by(|a, b| a.name.cmp(&b.name));
    machines.into_iter().map(|machine| (machine.name, machine.progress)).collect()
}

fn running(names: &[&str]) -> Vec<(String, Progress)> {
    names.iter().map(|name| ((*name).to_owned(), Progress::Running)).collect()
}

/// One with this many running machines, called a, b, c.
async fn with_machines(count: i32) -> Bench {
    let bench = bench();
    let size = list(&bench).await.size;
    bench.provider.grow(&key(), "md", size, count).await.unwrap();
    bench.act();
    bench
}

#[tokio::test]
async fn machines_count_from_when_they_are_asked_for_until_they_run() {
    let bench = bench();
    let size = list(&bench).await.size;
    bench.provider.grow(&key(), "md", size, 2).await.unwrap();
    assert!(listed(&bench).await.iter().all(|(_, progress)| *progress == Progress::Starting(None)));
    assert_eq!(listed(&bench).await.len(), 2);
    bench.act();
    assert_eq!(listed(&bench).await, running(&["a", "b"]));
}

#[tokio::test]
async fn a_change_that_is_repeated_after_a_lost_answer_is_a_conflict_and_changes_nothing() {
    let bench = bench();
    let size = list(&bench).await.size;
    bench.provider.grow(&key(), "md", size, 3).await.unwrap();
    assert_eq!(bench.provider.grow(&key(), "md", size, 3).await, Err(ProviderError::Conflict));
    bench.act();
    let size = list(&bench).await.size;
    let without = ["b".to_owned()];
    bench.provider.shrink(&key(), "md", size, &without).await.unwrap();
    assert_eq!(bench.provider.shrink(&key(), "md", size, &without).await, Err(ProviderError::Conflict));
    bench.act();
    assert_eq!(listed(&bench).await, running(&["a", "c"]));
}

#[tokio::test]
async fn exactly_the_deleted_machine_goes_however_often_that_is_asked() {
    let bench = with_machines(3).await;
    for _ in 0..3 {
        assert_eq!(bench.provider.delete(&key(), "md", "b").await, Ok(Deletion::Started));
    }
    assert_eq!(list(&bench).await.size.replicas, 2);
    bench.act();
    for name in ["b", "never"] {
        assert_eq!(bench.provider.delete(&key(), "md", name).await, Ok(Deletion::Gone));
    }
    assert_eq!(listed(&bench).await, running(&["a", "c"]));
    bench.act();
    assert_eq!(list(&bench).await.machines.len(), 2);
}

#[tokio::test]
async fn a_machine_that_is_kept_after_all_does_not_go_first() {
    let bench = with_machines(2).await;
    bench.provider.delete(&key(), "md", "a").await.unwrap();
    // Another request wants two again before it went.
    let size = list(&bench).await.size;
    bench.provider.grow(&key(), "md", size, 1).await.unwrap();
    assert!(list(&bench).await.machines.iter().any(|(machine, is_marked)| machine.name == "a" && *is_marked));
    bench.provider.keep(&key(), "a").await.unwrap();
    bench.provider.keep(&key(), "never").await.unwrap();
    assert!(list(&bench).await.machines.iter().all(|(_, is_marked)| !is_marked));
}

#[tokio::test]
async fn a_list_without_the_machines_says_that_they_are_still_wanted() {
    let bench = with_machines(3).await;
    let mut hidden = Vec::new();
    bench.hide(&mut hidden);
    let without = listed(&bench).await;
    assert!(without.len() == 3 && without.iter().all(|(_, progress)| *progress == Progress::Starting(None)));
    bench.hide(&mut hidden);
    assert_eq!(listed(&bench).await, running(&["a", "b", "c"]));
}

#[tokio::test]
async fn failures_have_types_and_change_nothing() {
    let bench = with_machines(1).await;
    let size = list(&bench).await.size;
    for (code, reason) in [
        (401, Reason::ProviderUnauthorized),
        (403, Reason::ProviderUnauthorized),
        (429, Reason::ProvisioningFailed),
        (500, Reason::ProvisioningFailed),
    ] {
        bench.fail(Some(code));
        let failed = [
            bench.provider.list(&key(), "md").await.map(drop),
            bench.provider.grow(&key(), "md", size, 1).await,
            bench.provider.delete(&key(), "md", "a").await.map(drop),
        ];
        bench.fail(None);
        assert!(
            failed.iter().all(|it| it.as_ref().is_err_and(|it| it.reason() == reason)),
            "{code} {failed:?}"
        );
        assert_eq!(listed(&bench).await, running(&["a"]));
    }
}

#[tokio::test]
async fn a_spec_of_another_provider_selects_none_and_is_invalid() {
    let bench = bench();
    assert_eq!(bench.provider.deployment("simulated"), None);
    assert_eq!(bench.provider.deployment("clusterApi.md"), Some("md"));
    let refused = bench.provider.node_source(&ProviderSpec::default());
    assert!(matches!(refused, Err(ProviderError::Invalid(_))), "{refused:?}");
}
