//! Where the machine of a pool can be looked up apart from its Node.

use anyhow::Result;
use kube::Api;
use kube::api::DynamicObject;

use crate::machines::Machines;
use crate::test_env::TestEnv;
use crate::{cluster_api, karpenter};

/// Who has the machines of a pool.
#[derive(Clone, Copy)]
pub enum MachineSource<'a> {
    /// Nothing but the API server: a machine is its Node.
    Nodes,
    /// A program.
    Program(&'a Machines),
    /// Karpenter, as `NodeClaim`s.
    Claims,
    /// Cluster API, as the Machines of the `MachineDeployment` that is called like the pool.
    Set,
}

/// A machine that is there.
#[derive(Clone, Debug)]
pub(super) struct FoundMachine {
    /// Tells it from an earlier one of its name.
    pub(super) id: String,
    /// Whether its end was asked for.
    pub(super) is_ending: bool,
}

impl MachineSource<'_> {
    /// The machine of this name of a pool; `None` when it is not there.
    pub(super) async fn find(
        self,
        env: &TestEnv,
        namespace: &str,
        pool: &str,
        machine: &str,
    ) -> Result<Option<FoundMachine>> {
        let client = env.client.clone();
        match self {
            Self::Nodes => Ok(None),
            Self::Program(machines) => {
                let made = machines.made(namespace, pool, machine)?;
                Ok(made.map(|time| FoundMachine { id: format!("{time:?}"), is_ending: false }))
            }
            Self::Claims => find_object(&karpenter::claims(client), machine).await,
            Self::Set => find_object(&cluster_api::machines(client, namespace), machine).await,
        }
    }
}

async fn find_object(objects: &Api<DynamicObject>, name: &str) -> Result<Option<FoundMachine>> {
    let object = objects.get_opt(name).await?;
    Ok(object.map(|object| FoundMachine {
        id: object.metadata.uid.unwrap_or_default(),
        is_ending: object.metadata.deletion_timestamp.is_some(),
    }))
}
