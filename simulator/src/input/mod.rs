//! The objects that `simulate` and `explain` work on, by kind: from documents of files, or from lists of the API
//! server. Every problem names the file, the document and the field.

mod documents;
pub(crate) mod live;
pub(crate) mod source;
mod unknown;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shared_crds::{NodePool, NodePoolAutoscaler};

pub use documents::InputError;
pub(crate) use documents::{At, read as documents, title};
use planner::Observed;
use planner::input::{ClaimInfo, VolumeInfo, key, transform};
use unknown::UnknownFields;

/// The namespace of objects without one, as in kubectl.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// Objects of a kind by namespace and name.
pub(crate) type Set<K> = BTreeMap<(String, String), Arc<K>>;

/// Everything that was read. Where an object occurs twice, the later one counts.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) pools: Set<NodePool>,
    pub(crate) autoscalers: Set<NodePoolAutoscaler>,
    pub(crate) nodes: Set<Node>,
    pub(crate) pods: Set<Pod>,
    pub(crate) daemon_sets: Set<DaemonSet>,
    pub(crate) budgets: Set<PodDisruptionBudget>,
    pub(crate) volumes: Set<PersistentVolume>,
    pub(crate) claims: Set<PersistentVolumeClaim>,
    pub(crate) storage_classes: Set<StorageClass>,
    pub(crate) namespaces: Set<Namespace>,
    pub(crate) priority_classes: Set<PriorityClass>,
    /// Warnings about what was read.
    pub(crate) warnings: Vec<String>,
    unknown_kinds: BTreeMap<String, usize>,
    unknown_fields: UnknownFields,
}

/// The input of a plan, with its warnings.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) observed: Observed,
    pub(crate) priority_classes: Vec<Arc<PriorityClass>>,
    pub(crate) warnings: Vec<String>,
}

/// Puts listed objects into `set`.
pub(crate) fn put<K: Resource>(set: &mut Set<K>, objects: impl IntoIterator<Item = K>) {
    for object in objects {
        let (namespace, name) = key(object.meta());
        set.insert((namespace.to_owned(), name.to_owned()), Arc::new(object));
    }
}

impl Objects {
    /// Reads all objects of a file; `-` is standard input.
    pub(crate) fn file(&mut self, file: &Path) -> Result<(), InputError> {
        self.documents(&title(file), documents::read(file)?)
    }

    /// Reads all objects of a text.
    #[cfg(test)]
    pub(crate) fn text(text: &str) -> Result<Self, InputError> {
        let mut objects = Self::default();
        objects.documents("test.yaml", documents::parse("test.yaml", text)?)?;
        Ok(objects)
    }

    fn documents(&mut self, file: &str, documents: Vec<Value>) -> Result<(), InputError> {
        for (index, document) in documents.into_iter().enumerate() {
            self.object(At { file, document: index + 1, item: None }, document, None)?;
        }
        Ok(())
    }

    /// Reads an object, or every item of a list. Items of a typed list, such as a `PodList`, may omit their kind.
    fn object(&mut self, at: At<'_>, value: Value, implied: Option<(&str, &str)>) -> Result<(), InputError> {
        let Value::Object(fields) = &value else { return Err(at.error(None, "", "is not an object")) };
        let own = |field| fields.get(field).and_then(Value::as_str).map(str::to_owned);
        let kind = own("kind").or(implied.map(|i| i.1.to_owned()));
        let version = own("apiVersion").or(implied.map(|i| i.0.to_owned()));
        let kind = kind.ok_or_else(|| at.error(None, "kind", "is missing"))?;
        let version = version.ok_or_else(|| at.error(None, "apiVersion", "is missing"))?;
        if let (Some(of), true) = (kind.strip_suffix("List"), fields.contains_key("items")) {
            return self.list(at, value, &version, of);
        }
        let mut reading = Reading {
            at,
            kind: &kind,
            warnings: &mut self.warnings,
            unknown_fields: &mut self.unknown_fields,
        };
        match (version.as_str(), kind.as_str()) {
            ("v1", "Node") => reading.of_cluster(&mut self.nodes, &value),
            ("v1", "Namespace") => reading.of_cluster(&mut self.namespaces, &value),
            ("v1", "PersistentVolume") => reading.of_cluster(&mut self.volumes, &value),
            ("storage.k8s.io/v1", "StorageClass") => reading.of_cluster(&mut self.storage_classes, &value),
            ("scheduling.k8s.io/v1", "PriorityClass") => {
                reading.of_cluster(&mut self.priority_classes, &value)
            }
            ("v1", "Pod") => reading.of_namespace(&mut self.pods, value),
            ("v1", "PersistentVolumeClaim") => reading.of_namespace(&mut self.claims, value),
            ("apps/v1", "DaemonSet") => reading.of_namespace(&mut self.daemon_sets, value),
            ("policy/v1", "PodDisruptionBudget") => reading.of_namespace(&mut self.budgets, value),
            ("tandem.dev/v1alpha1", "NodePool") => reading.of_namespace(&mut self.pools, value),
            ("tandem.dev/v1alpha1", "NodePoolAutoscaler") => {
                reading.of_namespace(&mut self.autoscalers, value)
            }
            _ => {
                *self.unknown_kinds.entry(format!("{version} {kind}")).or_default() += 1;
                Ok(())
            }
        }
    }

    fn list(&mut self, at: At<'_>, mut list: Value, version: &str, of: &str) -> Result<(), InputError> {
        let items = match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            Some(Value::Null) | None => return Ok(()),
            Some(_) => return Err(at.error(None, "items", "is not a list")),
        };
        let implied = (!of.is_empty()).then_some((version, of));
        for (index, item) in items.into_iter().enumerate() {
            self.object(At { item: Some(index), ..at }, item, implied)?;
        }
        Ok(())
    }

    /// The input of a plan at `now`.
    pub(crate) fn finish(self, now: Timestamp) -> Input {
        let Self {
            pools,
            autoscalers,
            nodes,
            pods,
            daemon_sets,
            budgets,
            volumes,
            claims,
            storage_classes,
            namespaces,
            priority_classes,
            mut warnings,
            unknown_kinds,
            unknown_fields,
        } = self;
        warnings.extend(unknown_fields.warnings());
        warnings.extend(unknown_kinds.into_iter().map(|(kind, count)| {
            let objects = if count == 1 { "object" } else { "objects" };
            format!("{kind} plays no part in this version's plan: {count} {objects} left aside")
        }));
        let mut keep = transform::pods();
        let observed = Observed {
            now,
            pools: pools.into_values().collect(),
            autoscalers: autoscalers.into_values().collect(),
            nodes: nodes.into_values().collect(),
            pods: pods.into_values().map(|pod| Arc::new(keep(Arc::unwrap_or_clone(pod)))).collect(),
            daemon_sets: daemon_sets.into_values().collect(),
            budgets: budgets.into_values().collect(),
            volumes: volumes.into_values().map(kept_as::<_, VolumeInfo>).collect(),
            claims: claims.into_values().map(kept_as::<_, ClaimInfo>).collect(),
            storage_classes: storage_classes.into_values().collect(),
            namespaces: namespaces.into_values().collect(),
            ..Observed::default()
        };
        Input { observed, priority_classes: priority_classes.into_values().collect(), warnings }
    }
}

fn kept_as<W: Clone, K: From<W>>(whole: Arc<W>) -> Arc<K> {
    Arc::new(K::from(Arc::unwrap_or_clone(whole)))
}

/// One object while it is read.
struct Reading<'a> {
    at: At<'a>,
    kind: &'a str,
    warnings: &'a mut Vec<String>,
    unknown_fields: &'a mut UnknownFields,
}

impl Reading<'_> {
    fn of_cluster<K: DeserializeOwned + Serialize>(
        &mut self,
        into: &mut Set<K>,
        value: &Value,
    ) -> Result<(), InputError> {
        let name = self.name(value)?;
        let full = format!("{} {name}", self.kind);
        self.insert(into, (String::new(), name), &full, value)
    }

    fn of_namespace<K: DeserializeOwned + Serialize>(
        &mut self,
        into: &mut Set<K>,
        mut value: Value,
    ) -> Result<(), InputError> {
        let name = self.name(&value)?;
        let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = namespace.filter(|n| !n.is_empty()).unwrap_or(DEFAULT_NAMESPACE).to_owned();
        value["metadata"]["namespace"] = Value::String(namespace.clone());
        let full = format!("{} {namespace}/{name}", self.kind);
        self.insert(into, (namespace, name), &full, &value)
    }

    fn name(&self, value: &Value) -> Result<String, InputError> {
        let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            return Err(self.at.error(Some(self.kind), "metadata.name", "is missing"));
        }
        Ok(name.to_owned())
    }

    fn insert<K: DeserializeOwned + Serialize>(
        &mut self,
        into: &mut Set<K>,
        key: (String, String),
        full: &str,
        value: &Value,
    ) -> Result<(), InputError> {
        let at = self.at;
        let object: K = serde_path_to_error::deserialize(value)
            .map_err(|error| at.error(Some(full), &error.path().to_string(), error.inner().to_string()))?;
        self.unknown_fields.compare(at, self.kind, value, &object);
        if into.insert(key, Arc::new(object)).is_some() {
            self.warnings.push(format!(
                "{}, document {}: {full} was given before; this one counts",
                at.file, at.document
            ));
        }
        Ok(())
    }
}
