//! Programs that fail for one machine, or hang, cost that machine its name and that pool its time, and nothing else.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use shared_crds::names::MACHINE_LABEL;
use testbed::machines::PROGRAM;
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv, is_ready};
use testbed::wait::eventually;

use super::exec::{begin, end, pool_of};

/// How long a program may run. A pool that waited for ten programs, four at a time, would take more than twice as long.
const RUN_LIMIT: Duration = Duration::from_secs(30);
/// Pools whose program hangs.
const HUNG: usize = 10;

/// Makes a pool of three simulated nodes. Returns how long it takes until they are ready.
async fn grows(env: &TestEnv, name: &str) -> Result<Duration> {
    let began = Instant::now();
    let mut pool = objects::pool(name, 0, 10);
    pool.spec.replicas = Some(3);
    env.create(&pool).await?;
    eventually(PATIENCE, &format!("the pool {name} grows"), async || {
        let nodes = env.nodes(name).await?;
        let ready = nodes.iter().filter(|node| is_ready(node)).count();
        ensure!(ready == 3, "{ready} of {} are ready", nodes.len());
        Ok(Some(()))
    })
    .await?;
    Ok(began.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_cannot_be_made_costs_its_name_and_no_node() {
    let (env, machines) = begin("exec-broken").await;
    // The host of the first slot is broken.
    let fails = r#"case $request in *'"operation": "create"'*) case $request in *'-0",'*) echo '{"error": {"message": "no power"}}'; exit 0 ;; esac ;; esac"#;
    machines.answer_after(fails).unwrap();
    env.create(&pool_of(PROGRAM, "racks", 2)).await.unwrap();
    env.settles("racks", 2).await.unwrap();
    let nodes = env.nodes("racks").await.unwrap();
    let names: Vec<&String> =
        nodes.iter().map(|node| &node.metadata.labels.as_ref().unwrap()[MACHINE_LABEL]).collect();
    assert!(names.len() == 2 && names.iter().all(|name| !name.ends_with("-0")), "{names:?}");
    end(env, machines).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_whose_program_hangs_do_not_hold_up_the_others() {
    let (env, machines) = begin("exec-hung").await;
    // The control, on the same machine.
    let usual = grows(&env, "before").await.unwrap();
    machines.answer_after(r#"case $request in *'"pool": "hung-'*) exec sleep 600 ;; esac"#).unwrap();
    for number in 0..HUNG {
        env.create(&pool_of(PROGRAM, &format!("hung-{number}"), 1)).await.unwrap();
    }
    // Four programs run at a time, so any of the pools may be among the last ones to hear that its own gives no answer.
    let expected = ("False", "ProviderUnreachable", "no answer within");
    eventually(PATIENCE, "a program hangs that long", async || {
        let mut last = None;
        for number in 0..HUNG {
            match env.said(&format!("hung-{number}"), "ProvisioningHealthy", expected).await {
                Ok(Some(said)) => return Ok(Some(said)),
                other => last = Some(other),
            }
        }
        last.unwrap_or(Ok(None))
    })
    .await
    .unwrap();
    let took = grows(&env, "well").await.unwrap();
    assert!(took < RUN_LIMIT + usual * 2, "{took:?}, and {usual:?} before any program hung");
    machines.tell_the_truth().unwrap();
    end(env, machines).await;
}
