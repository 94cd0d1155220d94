//! Waiting for the cluster: until the API server answers and the custom resource definitions are established.
//!
//! An operator that exits because a definition is not installed yet ends in a crash loop that hides the reason. This
//! one keeps running, reports on `/readyz` and in one log line what it waits for, and continues when it is available.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use tracing::{debug, info, warn};

use crate::error::{chain, client_category};
use crate::metrics::Metrics;
use crate::readiness::{Gate, Readiness};

/// Interval between two checks: short at first, for definitions that are being installed, then long enough to cause
/// little load.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The result of one check of the cluster.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    Ready,
    /// What is missing, as text for `/readyz`, and what to do about it.
    Waiting {
        reason: String,
        advice: &'static str,
    },
}

/// Returns when every definition in `names` is established. Drop the future when the process is told to stop.
pub async fn wait_for_crds(
    client: &Client,
    names: &[&'static str],
    readiness: &Readiness,
    metrics: &Metrics,
) {
    let gate = readiness.gate("crds", "not looked yet");
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut wait = FIRST_WAIT;
    let mut said = String::new();
    while let Look::Waiting { reason, advice } = look(&api, names, metrics).await {
        announce(&gate, &mut said, reason, advice);
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
    gate.open();
    if said.is_empty() {
        debug!(?names, "custom resource definitions are established");
    } else {
        info!(?names, "custom resource definitions are established, going on");
    }
}

fn announce(gate: &Gate, said: &mut String, reason: String, advice: &str) {
    if *said != reason {
        warn!(advice, "waiting for the cluster: {reason}");
        gate.close(reason.clone());
        *said = reason;
    }
}

async fn look(api: &Api<CustomResourceDefinition>, names: &[&'static str], metrics: &Metrics) -> Look {
    let mut missing = Vec::new();
    for name in names {
        match api.get_opt(name).await {
            Ok(Some(definition)) if is_established(&definition) => metrics.crd(name, false),
            Ok(_) => {
                metrics.crd(name, true);
                missing.push(*name);
            }
            Err(failed) => return failed_look(&failed),
        }
    }
    if missing.is_empty() {
        return Look::Ready;
    }
    Look::Waiting {
        reason: format!("custom resource definitions are missing: {}", missing.join(", ")),
        advice: "install them with the chart (crds.enabled=true), or: OPERATOR crd | kubectl apply --server-side -f -",
    }
}

fn failed_look(failed: &kube::Error) -> Look {
    let advice = match client_category(failed) {
        "forbidden" => {
            "allow get on customresourcedefinitions in API group \"apiextensions.k8s.io\" (the chart's ClusterRole does)"
        }
        "unauthorized" => "check the token or certificate this process runs with",
        "connection" => "check that the API server's address is right and reachable from here",
        _ => "trying again",
    };
    Look::Waiting { reason: format!("cannot read custom resource definitions: {}", chain(failed)), advice }
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Log, failure, server};

    fn definition(established: bool) -> Value {
        let status = if established { "True" } else { "False" };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": "nodepools.tandem.dev" },
            "spec": { "group": "tandem.dev", "scope": "Namespaced", "versions": [], "names": { "kind": "NodePool", "plural": "nodepools" } },
            "status": { "conditions": [{ "type": "Established", "status": status }] },
        })
    }

    /// An API server that gives these answers one after another, and then repeats the last one.
    fn answering(answers: Vec<(u16, Value)>) -> (Client, Log) {
        let mut nth = 0;
        server(move |_| {
            nth += 1;
            answers[(nth - 1).min(answers.len() - 1)].clone()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_definition_is_waited_for_and_said() {
        let answers = vec![
            failure(403, "Forbidden", "no"),
            failure(404, "NotFound", "no"),
            (200, definition(false)),
            (200, definition(true)),
        ];
        let (client, log) = answering(answers);
        let (readiness, metrics) = (Readiness::default(), Metrics::new("test", "0").unwrap());
        let waiting = tokio::spawn({
            let (readiness, metrics) = (readiness.clone(), metrics.clone());
            async move { wait_for_crds(&client, &["nodepools.tandem.dev"], &readiness, &metrics).await }
        });
        tokio::time::sleep(FIRST_WAIT * 2).await;
        let reasons = readiness.waiting_for();
        assert_eq!(reasons[0].1, "custom resource definitions are missing: nodepools.tandem.dev");
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(text.contains(r#"tandem_crd_missing{crd="nodepools.tandem.dev"} 1"#), "{text}");
        waiting.await.unwrap();
        assert!(readiness.waiting_for().is_empty());
        assert_eq!(log.lock().unwrap().len(), 4);
    }

    #[tokio::test]
    async fn a_missing_right_is_answered_with_the_rule_to_add() {
        let (client, _) = answering(vec![failure(403, "Forbidden", "no")]);
        let metrics = Metrics::new("test", "0").unwrap();
        let Look::Waiting { advice, .. } = look(&Api::all(client), &["nodepools.tandem.dev"], &metrics).await
        else {
            panic!("ready without a right to look")
        };
        assert!(advice.contains("customresourcedefinitions"), "{advice}");
    }
}
