//! The `NodePool` operator is killed after every write of its work, and the work ends as if it had not been: for nodes that
//! it makes itself, and for machines whose kubelets register their Nodes. The command that kills it once in each of many runs
//! (`cargo xtask crashes`) is tried on the first of them.

mod writes;

use std::collections::BTreeSet;
use std::time::Duration;

use testbed::audit::Event;
use testbed::crashes::{CrashOptions, CrashPoints, Crashable, Lives, NodeMaker, Work, crashing, run};
use testbed::operators::OperatorKind;

use super::sent_by;

/// How many nodes of `pool` were made, how many were deleted, and how many pods of its workload.
fn effects(events: &[Event], pool: &str) -> [usize; 3] {
    let names = |verb: &str, resource: &str, subresource: &str| -> Vec<String> {
        let done = events.iter().filter(|event| event.succeeded() && event.verb == verb);
        let names = done.filter(|event| event.subresource == subresource).filter_map(|event| {
            let object = event.object.as_ref().filter(|object| object.resource == resource)?;
            let in_body = event.request.as_ref().and_then(|body| body.pointer("/metadata/name")?.as_str());
            Some(in_body.unwrap_or(&object.name).to_owned())
        });
        names.filter(|name| name.contains(&format!("{pool}-"))).collect()
    };
    // Several may delete a pod.
    let gone: BTreeSet<String> =
        [names("create", "pods", "eviction"), names("delete", "pods", "")].concat().into_iter().collect();
    [names("create", "nodes", "").len(), names("delete", "nodes", "").len(), gone.len()]
}

/// The writes of the `NodePool` operator that were granted, without those that change nothing it works from.
fn granted(events: &[Event]) -> usize {
    let uncounted = ["events", "leases", "selfsubjectaccessreviews"];
    let is_counted = |event: &&Event| {
        let object = event.object.as_ref();
        object.is_some_and(|object| !uncounted.contains(&object.resource.as_str()))
    };
    let writes = events.iter().filter(|event| event.is_write() && event.succeeded());
    writes.filter(|event| sent_by(event, OperatorKind::NodePool, 0)).filter(is_counted).count()
}

/// Does `work` on a pool undisturbed, and then on other pools while the operator is killed.
async fn ends_as_if_undisturbed(prefix: &str, maker: NodeMaker, work: Work) {
    let test = Crashable::begin(prefix, maker).await.unwrap();
    let audit = test.env.audit().unwrap();
    // A test that failed before leaves pools of the names that it used.
    let undisturbed = &format!("{prefix}-undisturbed");
    work.prepare(&test, undisturbed).await.unwrap();
    let began = audit.end().unwrap();
    work.carry_out(&test, undisturbed).await.unwrap();
    let expected = test.at_rest(undisturbed, None).await.unwrap();
    let usual = effects(&audit.follow_from(began).read_new().unwrap(), undisturbed);

    for (name, writes) in [("every-write", 1), ("every-other", 2)] {
        let pool = &format!("{prefix}-{name}");
        work.prepare(&test, pool).await.unwrap();
        test.quiet().await;
        let began = audit.end().unwrap();
        // Each change of a machine is a write, too.
        let machines = test.machines.as_ref().filter(|_| writes == 1);
        let disturbed = async {
            work.carry_out(&test, pool).await?;
            test.at_rest(pool, Some(&expected)).await
        };
        let operator = &test.env.operators.node_pool;
        let points = CrashPoints { writes, machines };
        let done = crashing(operator, &test.proxy, points, disturbed).await;
        let (_, lives) = done.map_err(|error| error.context(operator.log_tail())).unwrap();
        show(pool, &lives);

        // The audit log says so, too: there was no write after which the operator was not killed.
        assert!(lives.killed.iter().all(|life| life.writes.len() <= writes), "{lives:#?}");
        assert!(lives.rest.len() < writes, "{lives:#?}");
        let events = audit.follow_from(began).read_new().unwrap();
        assert_eq!(granted(&events), lives.writes());
        assert_eq!(effects(&events, pool), usual, "nodes made, nodes deleted, pods deleted");
        let kills = lives.kills();
        for (write, least) in writes::of(work, maker).into_iter().filter(|_| writes == 1) {
            let count = kills.get(write).copied().unwrap_or_default();
            assert!(count >= least, "killed {count} times after {write}, not {least}: {kills:#?}");
        }
    }
    // None of the lives has touched it.
    test.state(undisturbed).await.unwrap().check(&expected).unwrap();
    test.end().await.unwrap();
}

/// For whoever wants to know after which writes it was killed.
fn show(what: &str, lives: &Lives) {
    println!("{what}: killed {} times, after", lives.killed.len());
    for (write, count) in lives.kills() {
        println!("{count:>6} {write}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-up", NodeMaker::Operator, Work::ScaleUp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-up-exec", NodeMaker::Kubelets, Work::ScaleUp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-down", NodeMaker::Operator, Work::Drain).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-down-exec", NodeMaker::Kubelets, Work::Drain).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-dead", NodeMaker::Operator, Work::Repair).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-dead-exec", NodeMaker::Kubelets, Work::Repair).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-roll", NodeMaker::Operator, Work::Rollout).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-roll-exec", NodeMaker::Kubelets, Work::Rollout).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-gone", NodeMaker::Operator, Work::Deletion).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-gone-exec", NodeMaker::Kubelets, Work::Deletion).await;
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
