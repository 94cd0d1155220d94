//! The `NodePool` operator's token in other hands, at a Machine.

use anyhow::{bail, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::cluster_api::{self, DELETE_MACHINE};
use testbed::test_env::RELEASE_NAMESPACE;
use testbed::wait::{PATIENCE, eventually};

use super::{begin, end, has, machines, pool_of};

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_token_marks_a_machine_and_changes_nothing_else_of_it() {
    let (env, capi) = begin("capi-token").await;
    env.create(&pool_of("racks", Some(1))).await.unwrap();
    has(&env, &capi, 1).await;
    let (machine, _) = machines(&env).await.unwrap().remove(0);
    let client =
        env.cluster.client_for_service_account(RELEASE_NAMESPACE, "tandem-nodepool-operator").await.unwrap();
    let api = cluster_api::machines(client, env.namespace());
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let refused = [
        json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": "true"}}}),
        json!({"metadata": {"annotations": {DELETE_MACHINE: "tandem.dev", "example.org/other": "a"}}}),
        json!({"metadata": {"labels": {"example.org/other": "a"}}}),
        json!({"metadata": {"finalizers": []}}),
        json!({"spec": {"providerID": "other://machine"}}),
    ];
    // The API server may not know of the right to write Machines at first, nor of the policy that bounds it.
    eventually(PATIENCE, "the policy is in force", async || {
        let Err(error) = api.patch(&machine, &dry, &Patch::Merge(&refused[0])).await else {
            bail!("it passes")
        };
        ensure!(error.to_string().contains("nodepool-operator does not own"), "{error}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    for change in refused {
        let error = api.patch(&machine, &dry, &Patch::Merge(&change)).await.unwrap_err().to_string();
        assert!(error.contains("nodepool-operator does not own"), "{change}: {error}");
    }
    let marks = json!({DELETE_MACHINE: "tandem.dev", "machine.cluster.x-k8s.io/exclude-node-draining": ""});
    let marks = Patch::Merge(json!({"metadata": {"annotations": marks}}));
    api.patch(&machine, &dry, &marks).await.unwrap();
    end(env, capi).await;
}
