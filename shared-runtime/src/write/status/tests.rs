//! A status that cannot be serialised: nothing may be sent in its place.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::ser::Error as _;
use serde::{Deserialize, Serializer};
use shared_crds::ownership::Owner;

use super::*;
use crate::clock::Clock;
use crate::testing::{Asked, lines, server};
use crate::write::unobserved;

/// A status whose serialisation can fail.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(from = "Value")]
enum Fallible {
    Replicas(i32),
    /// With the Autoscaler's list of nodes to remove.
    List,
    Broken,
}

impl Default for Fallible {
    fn default() -> Self {
        Self::Replicas(2)
    }
}

impl From<Value> for Fallible {
    fn from(_: Value) -> Self {
        Self::default()
    }
}

impl Serialize for Fallible {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Replicas(replicas) => {
                json!({ "replicas": replicas, "selector": "s" }).serialize(serializer)
            }
            Self::List => json!({
                "replicas": 2,
                "selector": "s",
                "autoscaling": { "scaleDown": { "decisionID": "d", "targetReplicas": 1, "nodes": ["n"] } },
            })
            .serialize(serializer),
            Self::Broken => Err(S::Error::custom("broken")),
        }
    }
}

/// A `NodePool` with such a status.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = NodePool)]
struct FalliblePool {
    metadata: ObjectMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Fallible>,
}

impl HasStatus for FalliblePool {
    type Status = Fallible;

    fn status(&self) -> Option<&Fallible> {
        self.status.as_ref()
    }

    fn status_mut(&mut self) -> &mut Option<Fallible> {
        &mut self.status
    }
}

impl StatusObject for FalliblePool {}

fn pool() -> FalliblePool {
    let metadata = ObjectMeta {
        name: Some("p".to_owned()),
        namespace: Some("ns".to_owned()),
        uid: Some("u".to_owned()),
        resource_version: Some("5".to_owned()),
        generation: Some(1),
        ..ObjectMeta::default()
    };
    FalliblePool { metadata, status: Some(Fallible::default()) }
}

/// The requests of a status write by the `NodePool` operator whose decisions are `decisions`, and which ends in an error
/// for the last of them.
async fn failing(strategy: WriteStrategy, decisions: &[Fallible]) -> Vec<String> {
    failing_for(Owner::NodepoolOperator, strategy, decisions).await
}

async fn failing_for(owner: Owner, strategy: WriteStrategy, decisions: &[Fallible]) -> Vec<String> {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let (client, log) = server(move |asked: &Asked| match asked.method {
        http::Method::GET => (200, serde_json::to_value(pool()).unwrap()),
        http::Method::PATCH if owner == Owner::AutoscalerOperator => {
            (200, serde_json::to_value(pool()).unwrap())
        }
        _ => panic!("unexpected request {asked:?}"),
    });
    let writer = Writer::new(client, owner, strategy, &clock, unobserved()).unwrap();
    let mut decisions = decisions.iter();
    let decide = |_: &FalliblePool| *decisions.next().unwrap();
    let failed = writer.status(&pool(), Contract::node_pool(owner), decide).await.unwrap_err();
    assert!(matches!(failed, WriterError::Status(_)), "{strategy}: {failed:?}");
    lines(&log)
}

#[tokio::test]
async fn a_status_that_cannot_be_serialised_is_an_error_and_nothing_is_sent() {
    for strategy in [WriteStrategy::Lazy, WriteStrategy::Retry, WriteStrategy::Patch, WriteStrategy::Guarded]
    {
        assert_eq!(failing(strategy, &[Fallible::Broken]).await, [""; 0], "{strategy}");
    }
}

#[tokio::test]
async fn a_later_decision_that_cannot_be_serialised_sends_nothing_either() {
    let read = "GET /apis/tandem.dev/v1alpha1/namespaces/ns/nodepools/p";
    let decisions = [Fallible::Replicas(3), Fallible::Broken];
    assert_eq!(failing(WriteStrategy::Retry, &decisions).await, [read]);
    assert_eq!(failing(WriteStrategy::Patch, &decisions).await, [""; 0]);
}

#[tokio::test]
async fn what_cannot_be_serialised_after_the_list_was_written_sends_nothing_more() {
    let failing = async |decisions: &[Fallible]| {
        failing_for(Owner::AutoscalerOperator, WriteStrategy::Guarded, decisions).await
    };
    assert_eq!(failing(&[Fallible::List, Fallible::Broken]).await, [""; 0]);
    let patch = "PATCH /apis/tandem.dev/v1alpha1/namespaces/ns/nodepools/p/status";
    assert_eq!(failing(&[Fallible::List, Fallible::List, Fallible::Broken]).await, [patch]);
}
