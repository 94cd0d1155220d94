//! Counts the writes of an operator behind [`crate::fault_proxy`], and holds back the answer to the last one that it may
//! make before it is killed.
//!
//! It kills nothing itself; [`crate::crashes`] does.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use axum::http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::watch;

use crate::process_supervisor::lock;

/// Resources whose writes change nothing that an operator works from.
const UNCOUNTED: [&str; 3] = ["events", "leases", "selfsubjectaccessreviews"];

/// A write that the API server has executed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatedWrite {
    /// The HTTP method.
    pub verb: String,
    /// The resource, with its subresource, such as `nodepools/status`.
    pub resource: String,
    /// The object; empty for a creation.
    pub name: String,
    /// The last parts of the names of the fields that a JSON Patch sets or removes, such as `taints` and `ready-time`.
    pub fields: BTreeSet<String>,
}

impl fmt::Display for GatedWrite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb, self.resource)?;
        self.fields.iter().try_for_each(|field| write!(formatter, " {field}"))
    }
}

impl GatedWrite {
    /// The write that a request asks for; `None` for a read, and for what is not counted.
    pub(crate) fn of(method: &Method, path: &str, body: &[u8]) -> Option<Self> {
        if !matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE) {
            return None;
        }
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let below = match segments[..] {
            ["api", _, ref below @ ..] | ["apis", _, _, ref below @ ..] => below,
            _ => &[],
        };
        let below = match *below {
            ["namespaces", _, ref object @ ..] if !object.is_empty() => object,
            _ => below,
        };
        let (resource, name, subresource) = match *below {
            [resource] => (resource, "", None),
            [resource, name] => (resource, name, None),
            [resource, name, subresource] => (resource, name, Some(subresource)),
            _ => return None,
        };
        if UNCOUNTED.contains(&resource) {
            return None;
        }
        let resource = subresource.map_or_else(|| resource.to_owned(), |sub| format!("{resource}/{sub}"));
        Some(Self { verb: method.to_string(), resource, name: name.to_owned(), fields: fields(body) })
    }
}

fn fields(body: &[u8]) -> BTreeSet<String> {
    let operations: Vec<Value> = serde_json::from_slice(body).unwrap_or_default();
    let changes = operations.iter().filter(|operation| operation["op"] != "test");
    let paths = changes.filter_map(|operation| operation["path"].as_str());
    let is_position = |part: &&str| *part == "-" || part.bytes().all(|byte| byte.is_ascii_digit());
    let field = |path: &str| {
        let last = path.split('/').rfind(|part| !is_position(part))?;
        Some(last.rsplit("~1").next().unwrap_or(last).to_owned())
    };
    paths.filter_map(field).collect()
}

/// Which writes pass. Cheap to clone.
#[derive(Clone)]
pub struct WriteGate {
    /// How many writes may still be made; `None` for any number.
    left: watch::Sender<Option<usize>>,
    /// Writes that are counted are made one after the other.
    turn: Arc<tokio::sync::Mutex<()>>,
    executed: Arc<Mutex<Vec<GatedWrite>>>,
    total: watch::Sender<usize>,
}

impl Default for WriteGate {
    fn default() -> Self {
        Self {
            left: watch::Sender::new(None),
            turn: Arc::default(),
            executed: Arc::default(),
            total: watch::Sender::default(),
        }
    }
}

impl WriteGate {
    /// From now on `left` writes are executed, of which the last one is not answered; all, with `None`.
    pub fn allow(&self, left: Option<usize>) {
        self.left.send_replace(left);
    }

    /// Waits until no further write is executed.
    pub async fn closed(&self) {
        // The sender lives as long as `self`.
        self.left.subscribe().wait_for(|left| *left == Some(0)).await.ok();
    }

    /// Whether no further write is executed.
    pub fn is_closed(&self) -> bool {
        *self.left.borrow() == Some(0)
    }

    /// Waits until no write has been executed for as long as `pause`.
    pub async fn quiet(&self, pause: Duration) {
        let mut total = self.total.subscribe();
        while tokio::time::timeout(pause, total.changed()).await.is_ok() {}
    }

    /// The writes that were executed since the last call.
    pub fn executed(&self) -> Vec<GatedWrite> {
        std::mem::take(&mut lock(&self.executed))
    }

    /// Makes `request`, which asks for `write`, when it may be made.
    pub(crate) async fn pass<T: Send + 'static>(
        &self,
        write: GatedWrite,
        request: impl Future<Output = Result<T>> + Send + 'static,
        status: fn(&T) -> StatusCode,
    ) -> Result<T> {
        let is_counted = self.left.borrow().is_some();
        let turn = if is_counted { Some(Arc::clone(&self.turn).lock_owned().await) } else { None };
        if is_counted {
            // A write of a sender that is killed meanwhile goes with its connection.
            self.left.subscribe().wait_for(|left| *left != Some(0)).await?;
        }
        // Its own task: the API server executes it also when its sender does not live so long, and it counts.
        let gate = self.clone();
        let made = tokio::spawn(async move {
            let answer = request.await?;
            let is_last = status(&answer).is_success() && gate.count(write);
            drop(turn);
            anyhow::Ok((!is_last).then_some(answer))
        });
        match made.await?? {
            Some(answer) => Ok(answer),
            None => std::future::pending().await,
        }
    }

    /// Counts a write; `true` when it was the last one.
    fn count(&self, write: GatedWrite) -> bool {
        lock(&self.executed).push(write);
        self.total.send_modify(|total| *total += 1);
        let mut is_last = false;
        self.left.send_modify(|left| {
            if let Some(left) = left {
                *left = left.saturating_sub(1);
                is_last = *left == 0;
            }
        });
        is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_called_after_what_it_changes() {
        let patch = br#"[
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "add", "path": "/metadata/annotations/tandem.dev~1ready-time", "value": "x"},
            {"op": "remove", "path": "/spec/taints/0"}]"#;
        let cases = [
            (Method::POST, "/api/v1/nodes", "{}", Some("POST nodes")),
            (
                Method::PATCH,
                "/api/v1/nodes/a",
                std::str::from_utf8(patch).unwrap(),
                Some("PATCH nodes ready-time taints"),
            ),
            (Method::POST, "/api/v1/namespaces/a/pods/b/eviction", "{}", Some("POST pods/eviction")),
            (
                Method::PUT,
                "/apis/tandem.dev/v1alpha1/namespaces/a/nodepools/b/status",
                "{}",
                Some("PUT nodepools/status"),
            ),
            (
                Method::PUT,
                "/apis/cluster.x-k8s.io/v1beta2/namespaces/a/machinedeployments/b/scale",
                "{}",
                Some("PUT machinedeployments/scale"),
            ),
            (
                Method::PATCH,
                "/apis/cluster.x-k8s.io/v1beta2/namespaces/a/machines/b",
                r#"[{"op": "test", "path": "/metadata/annotations", "value": null},
                    {"op": "add", "path": "/metadata/annotations", "value": {"cluster.x-k8s.io/delete-machine": "tandem.dev"}}]"#,
                Some("PATCH machines annotations"),
            ),
            (Method::GET, "/api/v1/nodes", "", None),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "{}", None),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/a/events", "{}", None),
        ];
        for (method, path, body, called) in cases {
            let write = GatedWrite::of(&method, path, body.as_bytes()).map(|write| write.to_string());
            assert_eq!(write.as_deref(), called, "{method} {path}");
        }
    }

    fn write() -> GatedWrite {
        GatedWrite::of(&Method::DELETE, "/api/v1/nodes/a", b"").unwrap()
    }

    async fn sent(gate: &WriteGate, code: StatusCode) -> Option<StatusCode> {
        let answer = gate.pass(write(), async move { Ok(code) }, |code| *code);
        tokio::time::timeout(Duration::from_secs(60), answer).await.ok().map(Result::unwrap)
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_write_is_executed_and_not_answered_and_no_other_one_follows() {
        let gate = WriteGate::default();
        gate.allow(Some(2));
        assert_eq!(sent(&gate, StatusCode::OK).await, Some(StatusCode::OK));
        assert_eq!(sent(&gate, StatusCode::CONFLICT).await, Some(StatusCode::CONFLICT), "it changed nothing");
        assert_eq!(gate.executed().len(), 1);
        assert_eq!(sent(&gate, StatusCode::OK).await, None);
        gate.closed().await;
        assert_eq!(sent(&gate, StatusCode::OK).await, None);
        assert_eq!(gate.executed(), [write()]);

        gate.allow(None);
        assert_eq!(sent(&gate, StatusCode::OK).await, Some(StatusCode::OK));
        assert_eq!(gate.executed().len(), 1);
    }
}
