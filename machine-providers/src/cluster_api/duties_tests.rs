//! What Cluster API does with machines by itself.

use super::tests::{DELETE, SET, Shared, machine, objects, provider, serve, writer};
use super::*;
use crate::ListedMachine;
use crate::hands::{Answer, api_server};
use crate::provisioner::{Lists, Provisioner};
use crate::testing::{at, cluster, key, pool};
use node_lifecycle::supply::ProviderDuties;
use serde_json::{Value, json};
use shared_crds::v1alpha1::{ClusterApiProvider, MachineDeploymentReference};

const NO_DRAIN: &str = "machine.cluster.x-k8s.io/exclude-node-draining";

async fn duties(objects: &Shared) -> Result<ProviderDuties, ProviderError> {
    provider(objects).list(&key(), "md").await.map(|listed| listed.duties)
}

fn set_of(names: &[&str]) -> std::collections::BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn a_machine_that_is_deleted_is_drained_by_cluster_api_unless_it_was_chosen_here() {
    let objects = objects(4, &["a", "b", "c", "d"]);
    let marks = [&[][..], &[(NO_DRAIN, ""), (DELETE, "tandem.dev")], &[(NO_DRAIN, "")]];
    for (index, marks) in marks.into_iter().enumerate() {
        let metadata = &mut objects.lock().unwrap().machines[index]["metadata"];
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        for (key, value) in marks {
            metadata["annotations"][*key] = json!(value);
        }
    }
    let duties = duties(&objects).await.unwrap();
    assert_eq!(duties.drains, set_of(&["a", "c"]));
    // One was removed here, two by Cluster API: of the three that are missing, it makes two when those are gone.
    assert_eq!(duties.awaits, set_of(&["md+0", "md+1"]));
}

#[tokio::test]
async fn that_a_machine_with_a_node_was_being_deleted_is_known_until_a_list_shows_otherwise() {
    let objects = objects(3, &["a", "b", "c"]);
    for machine in &mut objects.lock().unwrap().machines[..2] {
        machine["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    let shared = Arc::clone(&objects);
    let client =
        api_server(move |parts, body| Answer::from(serve(&mut shared.lock().unwrap(), &parts, body)));
    let writer = writer(client.clone());
    let management = Management::Own(client.clone(), writer.clone());
    let provisioner = Provisioner::new(&cluster(), client, writer, management, vec![]);
    let mut pool = pool(3);
    let machine_deployment_ref = MachineDeploymentReference { name: "md".to_owned() };
    let cluster_api = Some(ClusterApiProvider { machine_deployment_ref });
    pool.spec.provider = ProviderSpec { cluster_api, ..ProviderSpec::default() };
    let seen_ending = async || {
        let has_node = |machine: &ListedMachine| machine.name != "b";
        provisioner.supply(&key(), Some(&pool), None, has_node, Lists::Now, at(0)).await.0.seen_ending
    };
    assert_eq!(seen_ending().await, set_of(&["a"]));
    objects.lock().unwrap().machines.clear();
    assert_eq!(seen_ending().await, set_of(&["a"]));
    objects.lock().unwrap().machines.push(machine("a"));
    assert_eq!(seen_ending().await, set_of(&[]));
}

fn check(cluster: &str, selector: &Value) -> Value {
    json!({ "metadata": { "name": "c", "namespace": "default" }, "spec": { "clusterName": cluster, "selector": selector } })
}

#[tokio::test]
async fn a_machine_that_a_health_check_selects_is_repaired_by_cluster_api() {
    let objects = objects(2, &["a", "b"]);
    {
        let labels = &mut objects.lock().unwrap().machines[0]["metadata"]["labels"];
        labels["cluster.x-k8s.io/cluster-name"] = json!("one");
        labels["watch"] = json!("yes");
    }
    let of_set = json!({ "matchLabels": { SET: "md" } });
    let by_expression =
        json!({ "matchExpressions": [{ "key": "watch", "operator": "In", "values": ["yes"] }] });
    for (checks, expected) in [
        (vec![], &[][..]),
        (vec![check("one", &of_set)], &["a", "b"]),
        (vec![check("two", &of_set)], &["b"]),
        (vec![check("two", &of_set), check("one", &by_expression)], &["a", "b"]),
        (vec![check("one", &by_expression)], &["a"]),
        (vec![check("one", &json!({ "matchLabels": { SET: "other" } }))], &[]),
        (vec![check("one", &json!({ "matchExpressions": [{ "key": "watch", "operator": "Near" }] }))], &[]),
    ] {
        objects.lock().unwrap().checks = Ok(checks.clone());
        assert_eq!(duties(&objects).await.unwrap().repairs, set_of(expected), "{checks:?}");
    }
}

#[tokio::test]
async fn where_health_checks_may_not_be_listed_the_machines_condition_tells() {
    let objects = objects(2, &["a", "b"]);
    let condition = json!([{ "type": "HealthCheckSucceeded", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    objects.lock().unwrap().machines[0]["status"]["conditions"] = condition;
    for (code, expected) in [(404, &[][..]), (403, &["a"])] {
        objects.lock().unwrap().checks = Err(code);
        assert_eq!(duties(&objects).await.unwrap().repairs, set_of(expected), "{code}");
    }
    objects.lock().unwrap().checks = Err(500);
    assert!(matches!(duties(&objects).await, Err(ProviderError::Transient(_))));
}
