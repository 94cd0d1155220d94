//! Which cluster this is, to providers that make the machines of several.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use node_lifecycle::ClusterId;
use shared_runtime::bootstrap::Operator;
use shared_runtime::error::chain;
use shared_runtime::readiness::Gate;
use tracing::{info, warn};

/// The namespace whose UID stands for the cluster: it is made with it and cannot be deleted.
const NAMESPACE: &str = "kube-system";

/// Interval between two attempts to read it, at first and later.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The most characters of an identity: providers keep it as a tag, and the value of a Kubernetes label has no more.
const LONGEST: usize = 63;

/// An identity as a flag gives it.
pub(crate) fn parse(text: &str) -> Result<ClusterId, String> {
    let is_end = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let bytes = text.as_bytes();
    let is_legal = bytes.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c));
    if is_legal && bytes.len() <= LONGEST && is_end(bytes.first().copied()) && is_end(bytes.last().copied()) {
        return Ok(text.into());
    }
    Err(format!(
        "an identity has up to {LONGEST} characters of a-z, A-Z, 0-9, -, _ and ., with a letter or digit at both ends"
    ))
}

/// The identity of the cluster: the one that was `given`, else the UID of its namespace `kube-system`. Waits until that can be
/// read; `None` when the operator is told to stop before.
pub(crate) async fn identify(operator: &Operator, given: Option<ClusterId>) -> Option<ClusterId> {
    let cluster = if let Some(given) = given {
        given
    } else {
        let gate = operator.readiness.gate("cluster identity", "not read yet");
        tokio::select! {
            () = operator.shutdown.cancelled() => return None,
            cluster = uid(&operator.client, &gate) => cluster,
        }
    };
    info!(%cluster, "the cluster is known to providers by this identity");
    Some(cluster)
}

async fn uid(client: &Client, gate: &Gate) -> ClusterId {
    let namespaces = Api::<Namespace>::all(client.clone());
    let (mut wait, mut said) = (FIRST_WAIT, String::new());
    loop {
        let why = match namespaces.get(NAMESPACE).await {
            Ok(Namespace { metadata, .. }) => match metadata.uid.filter(|uid| !uid.is_empty()) {
                Some(uid) => {
                    gate.open();
                    return uid.as_str().into();
                }
                None => "it has no UID".to_owned(),
            },
            Err(failed) => chain(&failed).clone(),
        };
        if said != why {
            let advice =
                "allow get on the namespace kube-system (the chart's ClusterRole does), or set --cluster-id";
            warn!(advice, "waiting for the cluster: cannot read the namespace {NAMESPACE}: {why}");
            gate.close(format!("cannot read the namespace {NAMESPACE}: {why}"));
            said = why;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared_runtime::readiness::Readiness;

    use super::*;
    use crate::testing::{TestContext, failure};

    #[tokio::test(start_paused = true)]
    async fn the_cluster_is_the_uid_of_kube_system_and_is_waited_for() {
        let mut reads = 0;
        let test = TestContext::new(move |path, _| {
            assert_eq!(path, "/api/v1/namespaces/kube-system");
            reads += 1;
            let namespace = |uid: &str| json!({ "metadata": { "name": "kube-system", "uid": uid } });
            match reads {
                1 | 2 => failure(403, "Forbidden", "no right to get namespaces"),
                3 => (200, namespace("")),
                _ => (200, namespace("u-1")),
            }
        });
        let readiness = Readiness::default();
        let gate = readiness.gate("cluster identity", "not read yet");
        let (waiting, client) = (readiness.clone(), test.ctx.client.clone());
        let read = tokio::spawn(async move { uid(&client, &gate).await });
        tokio::time::sleep(FIRST_WAIT / 2).await;
        let [(_, why)] = &waiting.waiting_for()[..] else { panic!("it waits for one thing") };
        assert!(why.contains("kube-system") && why.contains("no right"), "{why}");
        assert_eq!(read.await.unwrap().as_str(), "u-1");
        assert!(waiting.waiting_for().is_empty());
        assert_eq!(test.requests().len(), 4);
    }

    #[test]
    fn an_identity_can_be_a_tag_of_any_provider() {
        for text in ["a", "prod-1", "3f2a6a52-5e5b-4b4e-9a0e-1b1f3e9a2a11", "a.b_c"] {
            assert_eq!(parse(text).unwrap().as_str(), text);
        }
        for text in ["", "-a", "a-", "a b", "a/b", &"a".repeat(64)] {
            parse(text).unwrap_err();
        }
    }
}
