//! Added pods, from a Pod or from any object with a pod template. Fields that the API server would default are
//! defaulted.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use planner::Observed;
use planner::input::PodInfo;
use serde_json::{Map, Value, json};

use super::EditError;
use super::nodes::make_pending;
use crate::input::{At, DEFAULT_NAMESPACE, InputError, documents, title};

/// The label by which a Deployment distinguishes its versions; topology spread constraints name it in `matchLabelKeys`.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Adds `count` pods (without it, as many as the object has replicas) for every object in `file` that makes pods.
pub(super) fn add(
    observed: &mut Observed,
    file: &Path,
    count: Option<u32>,
) -> Result<Vec<String>, EditError> {
    let name = title(file);
    let no_pods = |problem: String| EditError::NoPods { file: name.clone(), problem };
    let mut notes = Vec::new();
    let key = |pod: &Arc<PodInfo>| {
        let (namespace, name) = pod.key();
        (namespace.to_owned(), name.to_owned())
    };
    let mut taken: BTreeSet<(String, String)> = observed.pods.iter().map(key).collect();
    let mut others = BTreeSet::new();
    for (index, document) in documents(file).map_err(EditError::Input)?.iter().enumerate() {
        for (item, value) in items(document) {
            let kind = value.get("kind").and_then(Value::as_str).unwrap_or("pod template").to_owned();
            if kind == "DaemonSet" {
                return Err(no_pods(
                    "a DaemonSet's pods go to every node; give the DaemonSet with -f".to_owned(),
                ));
            }
            let at = At { file: &name, document: index + 1, item };
            let Some(source) = Source::of(&kind, value, at).map_err(EditError::Input)? else {
                others.insert(kind);
                continue;
            };
            let count = count.or(source.replicas).unwrap_or(1);
            if count > super::MOST_PODS {
                return Err(no_pods(format!(
                    "{count} replicas are more than {}; use --count",
                    super::MOST_PODS
                )));
            }
            notes.extend(source.add(observed, &mut taken, count));
        }
    }
    if notes.is_empty() {
        let found: Vec<_> = others.into_iter().collect();
        let found = if found.is_empty() { "no object".to_owned() } else { found.join(", ") };
        return Err(no_pods(format!("has {found}, and nothing that makes pods")));
    }
    if !others.is_empty() {
        let kinds: Vec<_> = others.into_iter().collect();
        notes.push(format!("{name}: makes no pods and plays no part: {}", kinds.join(", ")));
    }
    Ok(notes)
}

/// The objects of a document: itself, or a list's items.
fn items(document: &Value) -> Vec<(Option<usize>, &Value)> {
    match document.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().enumerate().map(|(at, item)| (Some(at), item)).collect(),
        None => vec![(None, document)],
    }
}

/// The pod or pod template, with its origin.
struct Source {
    kind: String,
    name: String,
    pod: PodInfo,
    replicas: Option<u32>,
}

impl Source {
    /// Finds the pod, or the pod template, of an object; `None` for kinds that make no pods.
    fn of(kind: &str, value: &Value, at: At<'_>) -> Result<Option<Self>, InputError> {
        let Some((path, template)) = template(value) else { return Ok(None) };
        let is_pod = path.is_empty();
        let text =
            |pointer: &str| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = text("/metadata/name").or(text("/metadata/generateName").map(|n| n.trim_end_matches('-')));
        let name = name.unwrap_or("added").to_owned();
        let namespace = text("/metadata/namespace").unwrap_or(DEFAULT_NAMESPACE).to_owned();
        let mut pod = json!({ "metadata": template.get("metadata").cloned().unwrap_or(Value::Object(Map::new())), "spec": template.get("spec") });
        if pod["metadata"].is_null() {
            pod["metadata"] = json!({});
        }
        let mut pod: Pod = serde_path_to_error::deserialize(&pod).map_err(|error| {
            let field = format!("{path}{}", error.path());
            at.error(Some(&format!("{kind} {namespace}/{name}")), &field, error.inner().to_string())
        })?;
        let version = text("/apiVersion").unwrap_or_default().to_owned();
        let owners = if is_pod {
            pod.metadata.owner_references.take()
        } else {
            Some(vec![owner(kind, &version, &name)])
        };
        let owners =
            owners.map(|owners| owners.into_iter().filter(|owner| owner.kind != "DaemonSet").collect());
        let ObjectMeta { labels, annotations, .. } = pod.metadata;
        let mut labels = labels.unwrap_or_default();
        if kind == "Deployment" {
            labels.entry(TEMPLATE_HASH.to_owned()).or_insert_with(|| "simulated".to_owned());
        }
        pod.metadata = ObjectMeta {
            namespace: Some(namespace),
            labels: Some(labels),
            annotations,
            owner_references: owners,
            ..ObjectMeta::default()
        };
        if let Some(spec) = pod.spec.as_mut() {
            default_spec(spec);
        }
        let mut pod = PodInfo::from(pod);
        make_pending(&mut pod);
        let number = |pointer: &str| {
            value.pointer(pointer).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok())
        };
        let replicas = number("/spec/replicas").or_else(|| number("/spec/parallelism")).filter(|n| *n > 0);
        Ok(Some(Self { kind: kind.to_owned(), name, pod, replicas: replicas.filter(|_| !is_pod) }))
    }

    /// Adds the pods under free names, and returns a message about them.
    fn add(self, observed: &mut Observed, taken: &mut BTreeSet<(String, String)>, count: u32) -> Vec<String> {
        let Self { kind, name, pod, replicas: _ } = self;
        let namespace = pod.key().0.to_owned();
        let mut names = (0_u64..).map(|at| format!("{name}-{at}"));
        let mut added = Vec::new();
        while added.len() < usize::try_from(count).unwrap_or(usize::MAX) {
            let Some(name) = names.next() else { break };
            if !taken.insert((namespace.clone(), name.clone())) {
                continue;
            }
            let mut pod = pod.clone();
            pod.identify(&name, &format!("added-{namespace}-{name}"));
            observed.pods.push(Arc::new(pod));
            added.push(name);
        }
        let range = match added.as_slice() {
            [] => String::new(),
            [one] => one.clone(),
            [first, .., last] => format!("{first} to {last}"),
        };
        let pods = if count == 1 { "pod" } else { "pods" };
        let mut notes =
            vec![format!("what if there were {count} more {pods} of {kind} {namespace}/{name}: {range}")];
        let gates = pod.spec().and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|g| !g.is_empty());
        if gates {
            notes.push(format!(
                "{kind} {namespace}/{name} has spec.schedulingGates: its pods are not planned until the gates are removed"
            ));
        }
        notes
    }
}

/// The path of the pod's fields in an object, and the object at that path: in a Pod, in a template, in a `CronJob`'s
/// Job template.
fn template(value: &Value) -> Option<(&'static str, &Value)> {
    let places = [
        ("spec.jobTemplate.spec.template.", "/spec/jobTemplate/spec/template"),
        ("spec.template.", "/spec/template"),
        ("template.", "/template"),
        ("", ""),
    ];
    places
        .into_iter()
        .filter_map(|(path, pointer)| Some((path, value.pointer(pointer)?)))
        .find(|(_, place)| place.pointer("/spec/containers").is_some())
}

fn owner(kind: &str, version: &str, name: &str) -> OwnerReference {
    OwnerReference {
        api_version: version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: format!("added-{kind}-{name}"),
        controller: Some(true),
        ..OwnerReference::default()
    }
}

/// Defaults the fields that the planner reads: requests from limits, host ports of pods on the host's network.
fn default_spec(spec: &mut PodSpec) {
    let on_host = spec.host_network == Some(true);
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        default_container(container, on_host);
    }
}

fn default_container(container: &mut Container, on_host: bool) {
    if let Some(resources) = container.resources.as_mut() {
        for (name, limit) in resources.limits.clone().unwrap_or_default() {
            resources.requests.get_or_insert_default().entry(name).or_insert(limit);
        }
    }
    if on_host {
        for port in container.ports.iter_mut().flatten() {
            port.host_port.get_or_insert(port.container_port);
        }
    }
}
