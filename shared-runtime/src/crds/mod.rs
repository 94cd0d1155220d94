//! The custom resource definitions, as the cluster has them: waiting until they are established, and knowing which
//! fields they lack.
//!
//! An operator that exits because a definition is not installed yet ends in a crash loop that hides the reason. This
//! one keeps running, reports on `/readyz` and in one log line what it waits for, and continues when it is available.
//!
//! A definition may be older than the operator: after `helm rollback`, or where GitOps leaves definitions out. Then the
//! rest works and what is missing is said, and `/readyz` stays 200: a Deployment whose new pods are not ready keeps its
//! old ones, which know as little of the definition, so an upgrade or a rollback would stop half-way.

mod schema;
mod served;

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info, warn};

pub use self::schema::MissingFields;
pub use self::served::ServedFields;
use crate::error::{chain, client_category};
use crate::metrics::Metrics;
use crate::readiness::{Gate, Readiness};

/// Interval between two checks: short at first, for definitions that are being installed, then long enough to cause
/// little load.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Interval between two comparisons of definitions that lack nothing. A write that is refused brings the next one
/// forward; not every write strategy has its unknown fields refused.
const COMPLETE_WAIT: Duration = Duration::from_secs(30);
/// The same while fields are missing, so that they are used soon after they came.
const INCOMPLETE_WAIT: Duration = Duration::from_secs(10);
/// Shortest time between two comparisons.
const COMPARED_WAIT: Duration = Duration::from_secs(1);

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

/// The definitions that an operator requires.
#[derive(Clone)]
pub struct Definitions {
    api: Api<CustomResourceDefinition>,
    names: &'static [&'static str],
    /// The definitions of this version.
    known: Vec<CustomResourceDefinition>,
    served: ServedFields,
    readiness: Readiness,
    metrics: Metrics,
}

impl Definitions {
    /// The definitions called `names`, in the cluster of `client`.
    pub fn new(
        client: &Client,
        names: &'static [&'static str],
        readiness: &Readiness,
        metrics: &Metrics,
    ) -> Result<Self, shared_crds::CrdError> {
        Ok(Self {
            api: Api::all(client.clone()),
            names,
            known: shared_crds::all()?,
            served: ServedFields::default(),
            readiness: readiness.clone(),
            metrics: metrics.clone(),
        })
    }

    /// The fields that they lack.
    pub fn served(&self) -> ServedFields {
        self.served.clone()
    }

    /// Returns when every one of them is established. Drop the future when the process is told to stop.
    pub async fn wait(&self) {
        let gate = self.readiness.gate("crds", "not looked yet");
        let mut wait = FIRST_WAIT;
        let mut said = String::new();
        while let Look::Waiting { reason, advice } = self.look().await {
            announce(&gate, &mut said, reason, advice);
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        gate.open();
        let names = self.names;
        if said.is_empty() {
            debug!(?names, "custom resource definitions are established");
        } else {
            info!(?names, "custom resource definitions are established, going on");
        }
    }

    /// Compares them from time to time, and when a write has met a field that is missing, until the guard is dropped.
    pub fn follow(&self) -> DropGuard {
        let stop = CancellationToken::new();
        let (definitions, stopped) = (self.clone(), stop.clone());
        tokio::spawn(async move { stopped.run_until_cancelled(definitions.keep_comparing()).await });
        stop.drop_guard()
    }

    async fn keep_comparing(&self) {
        loop {
            tokio::time::sleep(COMPARED_WAIT).await;
            let wait = if self.served.is_complete() { COMPLETE_WAIT } else { INCOMPLETE_WAIT };
            // Either way it is time to look.
            let _ = tokio::time::timeout(wait, self.served.doubted()).await;
            if let Look::Waiting { reason, .. } = self.look().await {
                debug!("the definitions are not compared: {reason}");
            }
        }
    }

    /// Reads the definitions and compares those that are there.
    async fn look(&self) -> Look {
        let mut missing = Vec::new();
        for name in self.names {
            match self.api.get_opt(name).await {
                Ok(Some(definition)) if is_established(&definition) => {
                    self.metrics.crd(name, false);
                    self.compare(name, &definition);
                }
                Ok(_) => {
                    self.metrics.crd(name, true);
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

    /// Compares a served definition with this version's, and says what has changed.
    fn compare(&self, name: &'static str, served: &CustomResourceDefinition) {
        let is_same = |known: &&CustomResourceDefinition| known.metadata.name.as_deref() == Some(name);
        let Some(known) = self.known.iter().find(is_same) else { return };
        let has_changed = self.served.learn(name, known, served);
        let missing = self.served.missing(name);
        self.metrics.crd_fields(name, missing.len());
        if !has_changed {
            return;
        }
        let problem = self.served.problem(name);
        match &problem {
            Some(problem) => warn!(fields = ?missing.names().collect::<Vec<_>>(), "{problem}"),
            None => info!(crd = name, "the installed definition has every field that this operator knows"),
        }
        self.readiness.degrade(format!("crd {name}"), problem);
    }
}

fn announce(gate: &Gate, said: &mut String, reason: String, advice: &str) {
    if *said != reason {
        warn!(advice, "waiting for the cluster: {reason}");
        gate.close(reason.clone());
        *said = reason;
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

    fn definitions(client: &Client, readiness: &Readiness, metrics: &Metrics) -> Definitions {
        Definitions::new(client, &["nodepools.tandem.dev"], readiness, metrics).unwrap()
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
            async move { definitions(&client, &readiness, &metrics).wait().await }
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
        let definitions = definitions(&client, &Readiness::default(), &metrics);
        let Look::Waiting { advice, .. } = definitions.look().await else {
            panic!("ready without a right to look")
        };
        assert!(advice.contains("customresourcedefinitions"), "{advice}");
    }

    /// This version's definition as a cluster has it, without these fields of the status.
    fn without(fields: &[&str]) -> Value {
        let known = shared_crds::all().unwrap().remove(0);
        let mut served = serde_json::to_value(known).unwrap();
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        let properties = served.pointer_mut(status).unwrap().as_object_mut().unwrap();
        for field in fields {
            properties.remove(*field).unwrap();
        }
        served["status"] = json!({ "conditions": [{ "type": "Established", "status": "True" }] });
        served
    }

    #[tokio::test(start_paused = true)]
    async fn fields_that_go_and_come_are_said_and_the_operator_stays_ready() {
        let answers = vec![
            (200, without(&[])),
            (200, without(&["rollout", "disruption"])),
            failure(500, "InternalError", "no"),
            (200, without(&[])),
        ];
        let (client, log) = answering(answers);
        let (readiness, metrics) = (Readiness::default(), Metrics::new("test", "0").unwrap());
        let definitions = definitions(&client, &readiness, &metrics);
        let served = definitions.served();
        definitions.wait().await;
        assert!(readiness.waiting_for().is_empty() && readiness.degraded().is_empty());

        let _following = definitions.follow();
        // A refused write does not wait for the next look.
        served.doubt();
        tokio::time::sleep(COMPARED_WAIT * 2).await;
        let missing: Vec<String> = served.missing("nodepools.tandem.dev").names().collect();
        assert_eq!(missing, ["status.disruption", "status.rollout"]);
        let said = readiness.degraded();
        assert_eq!(said[0].0, "crd nodepools.tandem.dev");
        assert!(said[0].1.contains("lacks status.disruption, status.rollout:"), "{said:?}");
        assert!(readiness.waiting_for().is_empty());
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(text.contains(r#"tandem_crd_fields_missing{crd="nodepools.tandem.dev"} 2"#), "{text}");

        // A look that fails changes nothing.
        tokio::time::sleep(INCOMPLETE_WAIT + COMPARED_WAIT).await;
        assert_eq!((log.lock().unwrap().len(), readiness.degraded().len()), (3, 1));
        tokio::time::sleep(INCOMPLETE_WAIT + COMPARED_WAIT).await;
        assert!(readiness.degraded().is_empty() && served.problem("nodepools.tandem.dev").is_none());
    }
}
