//! What is written to a program, and what it may answer: version `exec.tandem.dev/v1alpha1` of the protocol that
//! `docs/providers/exec.md` describes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use node_lifecycle::keys::{ClusterId, PoolKey};
use node_lifecycle::supply::KnownAs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shared_crds::v1alpha1::{NodePoolSpec, NodeTemplate};

use crate::{ListedMachine, Progress, ProviderError};

/// Version of the protocol.
const API_VERSION: &str = "exec.tandem.dev/v1alpha1";

/// A request, as it is written to the program.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    api_version: &'static str,
    cluster: &'a str,
    namespace: &'a str,
    pool: &'a str,
    #[serde(flatten)]
    operation: Operation<'a>,
}

/// What the program is asked to do.
#[derive(Debug, Serialize)]
#[serde(tag = "operation", rename_all = "lowercase")]
pub(super) enum Operation<'a> {
    /// Make a machine.
    Create {
        /// The name of the machine.
        machine: &'a str,
        /// `spec.provider.exec.parameters`.
        parameters: &'a BTreeMap<String, String>,
        /// What its Node should look like.
        template: &'a NodeTemplate,
        /// What the machine is made from, to be given back in a list; absent where the spec cannot be written as JSON.
        #[serde(rename = "templateHash", skip_serializing_if = "Option::is_none")]
        template_hash: Option<String>,
    },
    /// List the machines of the pool.
    List,
    /// Delete a machine.
    Delete {
        /// The name of the machine.
        machine: &'a str,
    },
}

/// No parameters.
static NONE: BTreeMap<String, String> = BTreeMap::new();

impl<'a> Operation<'a> {
    /// Make the machine that `spec` describes.
    pub(super) fn create(spec: &'a NodePoolSpec, machine: &'a str) -> Self {
        let parameters = spec.provider.exec.as_ref().map_or(&NONE, |exec| &exec.parameters);
        Self::Create { machine, parameters, template: &spec.template, template_hash: spec.template_hash() }
    }
}

impl Operation<'_> {
    /// Whether it makes or deletes a machine.
    pub(super) const fn is_change(&self) -> bool {
        match self {
            Self::Create { .. } | Self::Delete { .. } => true,
            Self::List => false,
        }
    }
}

impl<'a> Request<'a> {
    /// A request about `pool`, which is in `cluster`.
    pub(super) fn new(cluster: &'a ClusterId, pool: &'a PoolKey, operation: Operation<'a>) -> Self {
        let cluster = cluster.as_str();
        Self { api_version: API_VERSION, cluster, namespace: &pool.namespace, pool: &pool.name, operation }
    }

    /// The request as text. Each field is on a line of its own, so that a shell script can find it.
    pub(super) fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// The answer to one operation.
pub(super) trait Answer: DeserializeOwned {}

/// The answer to [`Operation::Create`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateAnswer {
    /// When the machine is expected to run; absent when the program does not know.
    pub ready_in_seconds: Option<u32>,
}

/// The answer to [`Operation::List`].
#[derive(Debug, Deserialize)]
pub(super) struct ListAnswer {
    /// The machines of the pool.
    pub machines: Vec<MachineAnswer>,
    /// Whether a machine that is not among them does not exist.
    #[serde(default)]
    pub complete: bool,
    /// What the program would make a machine of the pool from now, in words of its own; absent where it does not say so.
    pub revision: Option<String>,
}

/// A machine in a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineAnswer {
    name: String,
    state: MachineState,
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    ready_in_seconds: Option<u32>,
    message: Option<String>,
    template_hash: Option<String>,
    /// What it was made from, in the words of [`ListAnswer::revision`].
    revision: Option<String>,
    cluster: Option<String>,
    #[serde(default)]
    addresses: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum MachineState {
    Starting,
    Running,
    Failed,
    Deleting,
}

/// The answer to [`Operation::Delete`].
#[derive(Debug, Deserialize)]
pub(super) struct DeleteAnswer {
    /// How far the deletion is.
    pub state: DeletionState,
}

/// How far a deletion is.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) enum DeletionState {
    /// The machine is gone, or never was.
    Gone,
    /// It will be.
    Deleting,
}

impl Answer for CreateAnswer {}
impl Answer for ListAnswer {}
impl Answer for DeleteAnswer {}

impl MachineAnswer {
    /// The machine, where `expected` turns a number of seconds into a time. Machines are made from `current` now, if the program
    /// says so.
    pub(super) fn listed(
        self,
        current: Option<&str>,
        expected: impl Fn(Option<u32>) -> Option<Timestamp>,
    ) -> ListedMachine {
        let own = self.revision.as_deref().filter(|own| !own.is_empty());
        let is_outdated = own.zip(current).is_some_and(|(own, current)| own != current);
        let progress = match self.state {
            MachineState::Starting => Progress::Starting(expected(self.ready_in_seconds)),
            MachineState::Running => Progress::Running,
            MachineState::Deleting => Progress::Deleting,
            MachineState::Failed => {
                let message = self.message.as_deref().unwrap_or("no message");
                Progress::Failed(ProviderError::Transient(format!("machine {} failed: {message}", self.name)))
            }
        };
        let provider_id = self.provider_id.filter(|id| !id.is_empty());
        ListedMachine {
            name: self.name,
            progress,
            provider_id,
            template_hash: self.template_hash.filter(|hash| !hash.is_empty()),
            is_outdated,
            cluster: self.cluster.filter(|cluster| !cluster.is_empty()),
            known_as: KnownAs { node: None, addresses: self.addresses },
        }
    }
}

/// An error that the program itself reports.
#[derive(Debug, Deserialize)]
struct Failed {
    error: ReportedError,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedError {
    #[serde(default)]
    reason: ErrorReason,
    message: String,
    /// Read apart: a program that gets this wrong has still said what failed.
    #[serde(default)]
    retry_after_seconds: Option<serde_json::Value>,
}

impl ReportedError {
    /// For how long the program asks to be left alone.
    fn retry_after(&self) -> Option<Duration> {
        let seconds = self.retry_after_seconds.as_ref()?.as_f64()?;
        Duration::try_from_secs_f64(seconds.ceil()).ok().filter(|after| !after.is_zero())
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum ErrorReason {
    QuotaExceeded,
    Invalid,
    Unauthorized,
    /// It is not known what the request did.
    Unreachable,
    #[default]
    #[serde(other)]
    Unavailable,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// What failed is known.
    Failed(ProviderError),
    /// The program has begun, and does not say what it did. The text says what is seen of it.
    Unsaid(String),
}

impl Unanswered {
    /// The error of the request, which `is_change` or only reads. A change may have been made; of a list nothing remains.
    pub(super) fn into_error(self, is_change: bool) -> ProviderError {
        match self {
            Self::Failed(error) => error,
            Self::Unsaid(seen) if is_change => ProviderError::Unreachable(seen),
            Self::Unsaid(seen) => ProviderError::Transient(seen),
        }
    }
}

/// The answer in what a program printed.
pub(super) fn read<A: Answer>(output: &[u8]) -> Result<A, Unanswered> {
    if let Some(error) = reported(output) {
        return Err(Unanswered::Failed(error));
    }
    serde_json::from_slice(output).map_err(|error| {
        let shown: String = String::from_utf8_lossy(output).trim().chars().take(80).collect();
        Unanswered::Unsaid(format!("its answer cannot be read: {error}; it begins with {shown:?}"))
    })
}

/// The error that a program printed; `None` when it printed none.
pub(super) fn reported(output: &[u8]) -> Option<ProviderError> {
    let Failed { error } = serde_json::from_slice(output).ok()?;
    let retry_after = error.retry_after();
    let ReportedError { reason, message, retry_after_seconds: _ } = error;
    Some(match reason {
        ErrorReason::QuotaExceeded => ProviderError::Quota(message),
        ErrorReason::Invalid => ProviderError::Invalid(message),
        ErrorReason::Unauthorized => ProviderError::Unauthorized(message),
        ErrorReason::Unreachable => ProviderError::Unreachable(message),
        ErrorReason::Unavailable => match retry_after {
            Some(after) => ProviderError::throttled(message, after),
            None => ProviderError::Transient(message),
        },
    })
}
