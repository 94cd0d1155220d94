//! Operators have the memory that the chart gives them, and no more.

use testbed::operators::OperatorKind;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;
use testbed::{objects, tandem};

/// Less than a process that speaks TLS needs.
const LITTLE: [&str; 2] =
    ["nodepoolOperator.resources.requests.memory=1Mi", "nodepoolOperator.resources.limits.memory=4Mi"];

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_runs_in_the_memory_of_the_chart_and_one_that_needs_more_is_killed_by_name() {
    let env = TestEnv::begin("memory", &[]).await.unwrap();
    let own = std::fs::read_to_string(format!("/proc/{}/cgroup", env.operators.node_pool.pid())).unwrap();
    let Some(group) = own.lines().find_map(|line| line.split_once(":memory:")) else {
        println!("no memory cgroup of version 1 here");
        return env.end().await.unwrap();
    };
    let limit = format!("/sys/fs/cgroup/memory{}/memory.limit_in_bytes", group.1);
    let limit = std::fs::read_to_string(limit).unwrap();
    let of_chart = tandem::default_memory_limit(OperatorKind::NodePool).unwrap();
    assert_eq!(limit.trim(), of_chart.to_string());
    env.create(&objects::pool("workers", 2, 3)).await.unwrap();
    env.settles("workers", 2).await.unwrap();
    env.end().await.unwrap();

    let small = TestEnv::begin("memory", &LITTLE).await.unwrap();
    let killed = async || Ok(small.operators.check_alive().err());
    let error = eventually(PATIENCE, "the operator is killed", killed).await.unwrap().to_string();
    assert!(error.contains("nodepool-operator") && error.contains("its limit of 4 MiB"), "{error}");
}
