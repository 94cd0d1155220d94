//! Holds the writes of an operator at the API server: they have arrived, but are not executed. An operator that is
//! killed or frozen then is in the middle of a pass.
//!
//! An admission webhook does this. Its server accepts the connection and never answers, so the API server waits, and it
//! refuses the write when the wait ends without an answer. There is no race: a write is held before this reports it,
//! and a held write is never executed.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::names::NODEPOOL_NAMESPACE_LABEL;
use testbed::operators::OperatorKind;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;
use tokio::net::{TcpListener, TcpStream};

/// The longest time in seconds that the API server waits for a webhook: longer than any operator waits for a write.
const LONGEST: u8 = 30;

/// Writes are held from [`Hold::begin`] to [`Hold::end`].
pub(crate) struct Hold {
    listener: TcpListener,
    held: Vec<TcpStream>,
    configurations: Api<ValidatingWebhookConfiguration>,
    name: String,
    probe: Probe,
}

impl Hold {
    /// Starts to hold the writes of `operator` for `pool`: the Autoscaler's writes of the count, and the `NodePool`
    /// operator's writes to nodes of the test's namespace, which must exist.
    pub(crate) async fn begin(env: &TestEnv, operator: OperatorKind, pool: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let account = env.release.pod(env.cluster, operator).await?.service_account;
        let (system, namespace) = (env.release.namespace(), env.namespace());
        let name = format!("hold.{namespace}.example.com");
        let (rule, about) = match operator {
            OperatorKind::Autoscaler => (
                rule("tandem.dev", "nodepools"),
                format!("request.namespace == '{namespace}' && request.name == '{pool}'"),
            ),
            OperatorKind::NodePool => (
                rule("", "nodes"),
                format!("object.metadata.?labels['{NODEPOOL_NAMESPACE_LABEL}'].orValue('') == '{namespace}'"),
            ),
        };
        let from = format!("request.userInfo.username == 'system:serviceaccount:{system}:{account}'");
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": name,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://{}/", listener.local_addr()?)},
                "rules": [rule],
                // A hold that a failed test leaves behind must not affect other tests.
                "matchConditions": [{"name": "from", "expression": from}, {"name": "about", "expression": about}],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": LONGEST,
            }],
        }))?;
        let configurations = Api::<ValidatingWebhookConfiguration>::all(env.client.clone());
        configurations.create(&PostParams::default(), &configuration).await?;
        let client = env.cluster.client_for_service_account(system, &account).await?;
        let probe = match operator {
            OperatorKind::Autoscaler => {
                Probe::Replicas { pools: Api::namespaced(client, namespace), pool: pool.to_owned() }
            }
            OperatorKind::NodePool => {
                let node = env.nodes(pool).await?.into_iter().next().context("the pool has no node")?;
                Probe::Node { nodes: Api::all(client), node: node.metadata.name.unwrap_or_default() }
            }
        };
        let hold = Self { listener, held: Vec::new(), configurations, name, probe };
        // The API server gets its webhooks from a watch, shortly after.
        eventually(PATIENCE, "writes are held", async || match hold.probe().await? {
            None => Ok(Some(())),
            Some(answer) => bail!("a write was answered: {answer}"),
        })
        .await?;
        Ok(hold)
    }

    /// Waits until the operator has sent a write, which is held from then on.
    pub(crate) async fn caught(&mut self) -> Result<()> {
        let write = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        let (held, _) = write.with_context(|| format!("no write came within {PATIENCE:?}"))??;
        self.held.push(held);
        Ok(())
    }

    /// Refuses the held writes, and lets writes pass from now on.
    pub(crate) async fn end(mut self) -> Result<()> {
        self.held.clear();
        self.configurations.delete(&self.name, &DeleteParams::default()).await?;
        eventually(PATIENCE, "writes pass", async || match self.probe().await? {
            Some(answer) if answer == GRANTED => Ok(Some(())),
            Some(answer) => bail!("a write was answered: {answer}"),
            None => bail!("a write was held"),
        })
        .await
    }

    /// The API server's answer to a write like the held ones; `None` when it calls the webhook first.
    async fn probe(&self) -> Result<Option<String>> {
        tokio::select! {
            // Dropped at once, which the API server treats as a failure of the webhook: this write is over.
            asked = self.listener.accept() => asked.map(|_| None).map_err(Into::into),
            answer = self.probe.send() => Ok(Some(answer)),
        }
    }
}

fn rule(group: &str, resource: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]})
}

/// The answer to a write that is not held.
const GRANTED: &str = "granted";

/// A write with an operator's rights that changes nothing: a dry run passes admission like any other write.
enum Probe {
    Replicas { pools: Api<NodePool>, pool: String },
    Node { nodes: Api<Node>, node: String },
}

impl Probe {
    async fn send(&self) -> String {
        let options = PatchParams { dry_run: true, ..PatchParams::default() };
        let sent = match self {
            Self::Replicas { pools, pool } => {
                let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
                pools.patch(pool, &options, &patch).await.map(drop)
            }
            Self::Node { nodes, node } => {
                let patch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/probe": ""}}}));
                nodes.patch(node, &options, &patch).await.map(drop)
            }
        };
        sent.map_or_else(|error| error.to_string(), |()| GRANTED.to_owned())
    }
}
