//! The hands of the contract for `karpenter`: an API server that keeps claims, whose Karpenter launches and registers each at once.

use std::sync::Arc;

use http::{Method, request};
use serde_json::{Value, json};
use shared_crds::names::CLUSTER_ANNOTATION;
use shared_crds::v1alpha1::KarpenterProvider;

use super::tests::{serve, writer};
use super::*;
use crate::hands::{Answer, Hands, STRANGER, Trouble, api_server, told};
use crate::provisioner::Provisioner;
use crate::testing::{cluster, key, prefix};

/// The API server.
#[derive(Default)]
struct World {
    claims: Mutex<BTreeMap<String, Value>>,
    trouble: Mutex<Option<Trouble>>,
}

/// Whether a request is about the pool `default/web`: by its label selector, or by the name of its claim.
fn is_of_pool(parts: &request::Parts, body: &[u8]) -> bool {
    let (uri, body) = (parts.uri.to_string(), String::from_utf8_lossy(body));
    uri.contains("nodepool-namespace%3Ddefault") || uri.contains(&prefix()) || body.contains(&prefix())
}

/// What Karpenter says about the claims that it gave up.
fn events(trouble: Option<Trouble>) -> Answer {
    let warning = json!({
        "metadata": { "name": "e", "namespace": "default" }, "type": "Warning",
        "involvedObject": { "kind": "NodeClaim" },
        "reason": "InsufficientCapacityError", "message": "no host is free",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    });
    let items = if trouble == Some(Trouble::NoRoom) { json!([warning]) } else { json!([]) };
    (200_u16, json!({ "kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items })).into()
}

impl World {
    fn trouble(&self) -> Option<Trouble> {
        *self.trouble.lock().unwrap()
    }

    fn answer(&self, parts: &request::Parts, body: &[u8]) -> Answer {
        let trouble = self.trouble();
        if trouble == Some(Trouble::Silence) && is_of_pool(parts, body) {
            return Answer::Never;
        }
        let path = parts.uri.path();
        if path.ends_with("/events") {
            return events(trouble);
        }
        let (code, mut answer) = serve(&self.claims, parts, body);
        match trouble {
            Some(Trouble::LostCreation) if parts.method == Method::POST => Answer::Lost,
            Some(Trouble::LostDeletion) if parts.method == Method::DELETE => Answer::Lost,
            Some(Trouble::NoRoom) if parts.method == Method::POST => {
                // Karpenter gives the claim up, which deletes it.
                self.claims.lock().unwrap().clear();
                (code, answer).into()
            }
            _ if parts.method == Method::GET && path.ends_with("/nodeclaims") => {
                if trouble == Some(Trouble::PartialList) {
                    answer["metadata"]["continue"] = json!("more");
                }
                told(trouble, answer)
            }
            _ => (code, answer).into(),
        }
    }
}

/// The maker's world.
#[derive(Default)]
pub(crate) struct KarpenterHands(Arc<World>);

impl Hands for KarpenterHands {
    fn maker(&self) -> &'static str {
        "karpenter"
    }

    fn provisioner(&self) -> Provisioner {
        let world = Arc::clone(&self.0);
        let client = api_server(move |parts, body| world.answer(&parts, body));
        let karpenter = Karpenter::new(client.clone(), writer(client), cluster());
        Provisioner::with(cluster(), vec![Box::new(karpenter)])
    }

    fn spec(&self) -> ProviderSpec {
        ProviderSpec { karpenter: Some(KarpenterProvider::default()), ..ProviderSpec::default() }
    }

    fn no_sense(&self, trouble: Trouble) -> Option<&'static str> {
        let is_whole = "the claims are objects of this cluster: what its API server does not list, and does not say to be left \
                        out, does not exist";
        (trouble == Trouble::EmptyList).then_some(is_whole)
    }

    fn make(&self, trouble: Trouble) {
        if trouble == Trouble::Stranger {
            let pool = key();
            let labels: BTreeMap<_, _> =
                node_claim::selector(&pool).split(',').filter_map(split_label).collect();
            let claim = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {
                    "name": STRANGER, "uid": "uid-theirs", "resourceVersion": "1", "labels": labels,
                    "annotations": { CLUSTER_ANNOTATION: "there" },
                },
                "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "n" } },
            });
            self.0.claims.lock().unwrap().insert(STRANGER.to_owned(), claim);
        }
        *self.0.trouble.lock().unwrap() = Some(trouble);
    }

    fn end(&self) {
        *self.0.trouble.lock().unwrap() = None;
    }

    fn machines(&self) -> Vec<String> {
        let claims = self.0.claims.lock().unwrap();
        claims.keys().filter(|name| name.starts_with(&prefix()) || *name == STRANGER).cloned().collect()
    }

    fn no_room(&self) -> &'static str {
        "no host is free"
    }
}

/// A label of a selector.
fn split_label(of: &str) -> Option<(String, String)> {
    of.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))
}
