//! A replica that has no right to the lease is not ready and says which right is missing: it would never take over.

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use testbed::operators::{OperatorKind, OperatorProcess};
use testbed::process_supervisor::Exit;
use testbed::test_env::{EXITS, PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::QUICK_LEASE;
use super::leaders::holder;

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_the_right_to_the_lease_is_not_ready_until_it_has_it() {
    let operator = OperatorKind::NodePool;
    let mut env = TestEnv::begin("rights", &QUICK_LEASE).await.unwrap();
    holder(&env, operator, 0).await;
    let replica = env.release.pod(env.cluster, operator).await.unwrap();
    let standby = replica.replica(1).start(env.cluster).await.unwrap();
    is_ready(&standby).await.unwrap();
    // On a busy machine it may have said so at its start, too.
    let began = std::fs::read_to_string(standby.log_path()).unwrap().len();

    let bindings = Api::<RoleBinding>::namespaced(env.client.clone(), env.release.namespace());
    let mut binding = bindings.get("tandem-nodepool-operator-lease").await.unwrap();
    let _ = bindings.delete("tandem-nodepool-operator-lease", &DeleteParams::default()).await.unwrap();
    let exit = tokio::time::timeout(EXITS, env.operators.node_pool.wait()).await.ok();
    assert_eq!(exit, Some(Exit::Code(1)), "a leader that cannot renew ends");
    // The standby, and a replica that has never had the right.
    let late = env.release.pod(env.cluster, operator).await.unwrap();
    let late = late.replica(2).start(env.cluster).await.unwrap();
    for replica in [&standby, &late] {
        let reason = eventually(PATIENCE, "the replica is not ready", async || {
            replica.check_alive()?;
            Ok(replica.waits_for().await?.filter(|reason| reason.contains("forbidden")))
        })
        .await
        .unwrap();
        for part in ["lease: ", "cannot get resource \"leases\"", "allow get, create and update on leases"] {
            assert!(reason.contains(part), "{part} is not in {reason}");
        }
    }
    let log = std::fs::read_to_string(standby.log_path()).unwrap();
    assert_eq!(log[began..].matches("not ready").count(), 1, "{log}");

    binding.metadata.resource_version = None;
    binding.metadata.uid = None;
    let _ = bindings.create(&PostParams::default(), &binding).await.unwrap();
    is_ready(&standby).await.unwrap();
    is_ready(&late).await.unwrap();
    late.stop(EXITS).await.unwrap();
    env.operators.node_pool = standby;
    holder(&env, operator, 1).await;
    env.end().await.unwrap();
}

async fn is_ready(replica: &OperatorProcess) -> Result<()> {
    eventually(PATIENCE, "the replica is ready", async || {
        replica.check_alive()?;
        let waits_for = replica.waits_for().await?;
        ensure!(waits_for.is_none(), "{waits_for:?}");
        Ok(Some(()))
    })
    .await
}
