//! A service that makes machines, for a provider's program in a Pod: it has one machine, which is a node of the cluster whose kubelet
//! it starts and stops.
//!
//! It speaks the protocol of `exec` over HTTP (docs/providers/exec.md), so the program only passes requests on. It listens in the
//! network of the container engine, where the Pods are.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::{Mutex, oneshot};

use super::engine::{Docker, Engine};
use super::inside::{self, Open};

/// Runs until it is dropped.
pub struct MachineService {
    /// Where Pods reach it.
    pub address: SocketAddr,
    _open: Open,
}

/// The only machine, and how it is switched on and off.
struct Room {
    node: &'static str,
    docker: Docker,
    made: Mutex<Option<Made>>,
}

/// What the request to make it said.
struct Made {
    machine: String,
    pool: Value,
    template_hash: Value,
    cluster: Value,
}

impl MachineService {
    /// Starts the service on `gateway`, an address of the engine's network.
    pub(super) async fn start(engine: &Engine, gateway: Ipv4Addr, node: &'static str) -> Result<Self> {
        let room = Arc::new(Room { node, docker: engine.client(), made: Mutex::new(None) });
        let serve = move |ready, closed| serve(room, gateway, ready, closed);
        let (address, open) = inside::run(engine.pid(), "kind-machines", serve).await?;
        Ok(Self { address, _open: open })
    }
}

async fn serve(
    room: Arc<Room>,
    gateway: Ipv4Addr,
    ready: oneshot::Sender<Result<SocketAddr>>,
    closed: oneshot::Receiver<()>,
) {
    let listen = async {
        let listener = tokio::net::TcpListener::bind((gateway, 0)).await?;
        anyhow::Ok((listener.local_addr()?, listener))
    };
    let listener = match listen.await {
        Ok((address, listener)) => {
            ready.send(Ok(address)).ok();
            listener
        }
        Err(error) => {
            ready.send(Err(error)).ok();
            return;
        }
    };
    let router = Router::new().route("/", post(answer)).with_state(room);
    let served = axum::serve(listener, router).with_graceful_shutdown(async move {
        closed.await.ok();
    });
    served.await.ok();
}

/// Any failure is one that may pass, and its text comes to the operator.
async fn answer(State(room): State<Arc<Room>>, Json(request): Json<Value>) -> Json<Value> {
    let answered = room.answer(&request).await;
    Json(answered.unwrap_or_else(|error| json!({"error": {"message": format!("{error:#}")}})))
}

impl Room {
    async fn answer(&self, request: &Value) -> Result<Value> {
        let mut made = self.made.lock().await;
        let pool = json!([request["namespace"], request["pool"]]);
        let machine = request["machine"].as_str().unwrap_or_default();
        Ok(match (request["operation"].as_str(), &*made) {
            (Some("list"), Some(there)) if there.pool == pool => json!({"complete": true, "machines": [{
                "name": there.machine,
                "state": "Running",
                "providerID": format!("kind://docker/{}/{}", super::NAME, self.node),
                "templateHash": there.template_hash,
                "cluster": there.cluster,
            }]}),
            (Some("list"), _) => json!({"complete": true, "machines": []}),
            (Some("create"), Some(there)) if there.pool == pool && there.machine == machine => json!({}),
            (Some("create"), Some(_)) => {
                json!({"error": {"reason": "QuotaExceeded", "message": "there is one machine, and it is in use"}})
            }
            (Some("create"), None) => {
                switch(&self.docker, self.node, true).await?;
                *made = Some(Made {
                    machine: machine.to_owned(),
                    pool,
                    template_hash: request["templateHash"].clone(),
                    cluster: request["cluster"].clone(),
                });
                json!({"readyInSeconds": 20})
            }
            (Some("delete"), Some(there)) if there.pool == pool && there.machine == machine => {
                switch(&self.docker, self.node, false).await?;
                *made = None;
                json!({"state": "Gone"})
            }
            (Some("delete"), _) => json!({"state": "Gone"}),
            (operation, _) => {
                json!({"error": {"reason": "Invalid", "message": format!("operation {operation:?}")}})
            }
        })
    }
}

/// Starts the kubelet of a node, or ends it with all its containers, as a machine ends with all its programs.
pub(super) async fn switch(docker: &Docker, node: &str, on: bool) -> Result<()> {
    let script = if on {
        "systemctl start kubelet"
    } else {
        "systemctl stop kubelet && crictl --timeout 60s rmp --all --force >/dev/null"
    };
    docker.run(&["exec", node, "sh", "-c", script]).await.map(|_| ())
}
