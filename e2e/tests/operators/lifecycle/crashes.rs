//! The `NodePool` operator is killed after every write of its work, and the work ends as if it had not been: for nodes that
//! it makes itself, and for machines whose kubelets register their Nodes. Those of a set are in the tests of its provider. The
//! command that kills it once in each of many runs (`cargo xtask crashes`) is tried on the first of them.

use std::time::Duration;

use testbed::crashes::{CrashOptions, NodeMaker, Work, ends_as_if_undisturbed, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-up", NodeMaker::Operator, Work::ScaleUp).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-up-exec", NodeMaker::Kubelets, Work::ScaleUp).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-down", NodeMaker::Operator, Work::Drain).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-down-exec", NodeMaker::Kubelets, Work::Drain).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-dead", NodeMaker::Operator, Work::Repair).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-dead-exec", NodeMaker::Kubelets, Work::Repair).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-roll", NodeMaker::Operator, Work::Rollout).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-roll-exec", NodeMaker::Kubelets, Work::Rollout).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-gone", NodeMaker::Operator, Work::Deletion).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-gone-exec", NodeMaker::Kubelets, Work::Deletion).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_kills_once_in_each_run_and_says_where_to_go_on() {
    let options = CrashOptions {
        from: 2,
        to: Some(2),
        works: vec![Work::ScaleUp],
        makers: vec![NodeMaker::Kubelets],
        limit: Duration::from_secs(1800),
    };
    let report = run(options.clone(), |line| println!("{line}")).await.unwrap();
    println!("{report}");
    report.judge().unwrap();
    assert_eq!((report.same(), report.go_on().as_slice()), (2, &[][..]), "after a write and after a machine");

    let report = run(CrashOptions { limit: Duration::ZERO, ..options }, |_| {}).await.unwrap();
    assert_eq!(report.same(), 0);
    assert_eq!(report.go_on(), ["cargo xtask crashes --work scale-up --provider exec --from 2 --to 2"]);
}
