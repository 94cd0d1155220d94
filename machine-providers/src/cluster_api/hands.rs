//! The hands of the contract for Cluster API: an API server with a set `md` in each of two namespaces, whose controllers act when
//! they are told to.

use http::{Method, request};
use serde_json::{Value, json};
use shared_crds::v1alpha1::{ClusterApiProvider, MachineDeploymentReference};

use super::tests::{DELETE, SET, Shared, machine, objects, serve, writer};
use super::*;
use crate::hands::{Answer, Hands, STRANGER, Trouble, api_server, told};
use crate::provisioner::Provisioner;
use crate::testing::cluster;

/// The API server.
struct World {
    /// The objects of the namespace `default`.
    own: Shared,
    /// Those of the namespace `other`.
    other: Shared,
    trouble: SyncMutex<Option<Trouble>>,
}

impl World {
    fn answer(&self, mut parts: request::Parts, body: &[u8]) -> Answer {
        let trouble = *self.trouble.lock().unwrap();
        let uri = parts.uri.to_string();
        if trouble == Some(Trouble::Silence) && uri.contains("/namespaces/default/") {
            return Answer::Never;
        }
        let objects = if uri.contains("/namespaces/other/") { &self.other } else { &self.own };
        parts.uri = uri.replace("/namespaces/other/", "/namespaces/default/").parse().unwrap();
        let (code, answer) = serve(&mut objects.lock().unwrap(), &parts, body);
        match trouble {
            Some(Trouble::LostCreation | Trouble::LostDeletion) if parts.method == Method::PUT => {
                Answer::Lost
            }
            _ if parts.method == Method::GET && parts.uri.path().ends_with("/machines") => {
                told(trouble, answer)
            }
            _ => (code, answer).into(),
        }
    }
}

/// The maker's world.
pub(crate) struct ClusterApiHands(Arc<World>);

impl ClusterApiHands {
    pub(crate) fn new() -> Self {
        let world = World { own: objects(0, &[]), other: objects(0, &[]), trouble: SyncMutex::default() };
        Self(Arc::new(world))
    }
}

impl Hands for ClusterApiHands {
    fn maker(&self) -> &'static str {
        "clusterApi"
    }

    fn provisioner(&self) -> Provisioner {
        let world = Arc::clone(&self.0);
        let client = api_server(move |parts, body| world.answer(parts, body));
        let writer = writer(client.clone());
        let management = Management::Own(client.clone(), writer.clone());
        Provisioner::new(&cluster(), client, writer, management, vec![])
    }

    fn spec(&self) -> ProviderSpec {
        let machine_deployment_ref = MachineDeploymentReference { name: "md".to_owned() };
        let cluster_api = Some(ClusterApiProvider { machine_deployment_ref });
        ProviderSpec { cluster_api, ..ProviderSpec::default() }
    }

    fn no_sense(&self, trouble: Trouble) -> Option<&'static str> {
        let accepts_all =
            "a MachineDeployment takes every number, and a machine without room is one that starts";
        (trouble == Trouble::NoRoom).then_some(accepts_all)
    }

    fn make(&self, trouble: Trouble) {
        if trouble == Trouble::Stranger {
            let mut stranger = machine(STRANGER);
            stranger["metadata"]["labels"] = json!({ SET: "of-another-pool" });
            self.0.own.lock().unwrap().machines.push(stranger);
        }
        *self.0.trouble.lock().unwrap() = Some(trouble);
    }

    fn end(&self) {
        *self.0.trouble.lock().unwrap() = None;
    }

    fn settle(&self) {
        for objects in [&self.0.own, &self.0.other] {
            objects.lock().unwrap().act();
        }
    }

    fn machines(&self) -> Vec<String> {
        let shown = |machine: &Value| {
            let mark = if machine["metadata"]["annotations"][DELETE].is_string() { " marked" } else { "" };
            format!("{}{mark}", machine["metadata"]["name"].as_str().unwrap())
        };
        let mut names: Vec<_> = self.0.own.lock().unwrap().machines.iter().map(shown).collect();
        names.sort();
        names
    }

    fn no_room(&self) -> &'static str {
        ""
    }
}
