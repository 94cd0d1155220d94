//! Reads the objects of `simulate` from files: YAML or JSON, many documents, Lists. Every problem names the file, the
//! document and the field.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use shared_crds::{NodePool, NodePoolAutoscaler};
use thiserror::Error;

use crate::plan::{Observed, Recommendations};

/// The namespace of objects that name none, kubectl's.
const DEFAULT_NAMESPACE: &str = "default";

/// A file that cannot be used.
#[derive(Debug, Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("{file}: cannot be read")]
    Unreadable {
        /// Which file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The text is neither YAML nor JSON.
    #[error("{file}, document {document}: is neither YAML nor JSON: {problem}")]
    Syntax {
        /// Which file.
        file: String,
        /// Which document, from 1; empty ones do not count.
        document: usize,
        /// The parser's words.
        problem: String,
    },
    /// A document is no object, or a field of it is not what its kind says.
    #[error("{file}, document {document}{item}: {field}: {problem}")]
    Object {
        /// Which file.
        file: String,
        /// Which document, from 1; empty ones do not count.
        document: usize,
        /// Which item of a list and which object, as far as known.
        item: String,
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// What was read.
#[derive(Debug)]
pub(super) struct Objects {
    /// The objects; the time is still to be set.
    pub observed: Observed,
    /// What was read and left aside.
    pub warnings: Vec<String>,
}

/// Reads all files; `-` is standard input. Where an object occurs twice, the later one counts.
pub(super) fn read(files: &[PathBuf]) -> Result<Objects, InputError> {
    let mut collected = Collected::default();
    for file in files {
        let name =
            if file.as_os_str() == "-" { "standard input".to_owned() } else { file.display().to_string() };
        let text = text(file).map_err(|source| InputError::Unreadable { file: name.clone(), source })?;
        collected.file(&name, &text)?;
    }
    Ok(collected.finish())
}

#[cfg(test)]
pub(super) fn read_text(text: &str) -> Result<Objects, InputError> {
    let mut collected = Collected::default();
    collected.file("test.yaml", text)?;
    Ok(collected.finish())
}

fn text(file: &Path) -> io::Result<String> {
    if file.as_os_str() != "-" {
        return fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}

/// Where an object stands, for error messages.
#[derive(Clone, Copy)]
struct At<'a> {
    file: &'a str,
    document: usize,
    item: Option<usize>,
}

impl At<'_> {
    fn error(self, object: Option<&str>, field: &str, problem: impl Into<String>) -> InputError {
        let mut item = self.item.map(|at| format!(", items[{at}]")).unwrap_or_default();
        if let Some(object) = object {
            item.push_str(&format!(" ({object})"));
        }
        let field =
            if field.is_empty() || field == "." { "the document".to_owned() } else { field.to_owned() };
        InputError::Object {
            file: self.file.to_owned(),
            document: self.document,
            item,
            field,
            problem: problem.into(),
        }
    }
}

#[derive(Default)]
struct Collected {
    pools: BTreeMap<(String, String), Arc<NodePool>>,
    autoscalers: BTreeMap<(String, String), Arc<NodePoolAutoscaler>>,
    nodes: BTreeMap<(String, String), Arc<k8s_openapi::api::core::v1::Node>>,
    pods: BTreeMap<(String, String), Arc<k8s_openapi::api::core::v1::Pod>>,
    unknown: BTreeMap<String, usize>,
    warnings: Vec<String>,
}

impl Collected {
    fn file(&mut self, file: &str, text: &str) -> Result<(), InputError> {
        for (index, document) in documents(file, text)?.into_iter().enumerate() {
            self.object(At { file, document: index + 1, item: None }, document, None)?;
        }
        Ok(())
    }

    /// Takes an object, or every item of a list. Items of a typed list, such as a `PodList`, need not say what they are.
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
        match (version.as_str(), kind.as_str()) {
            ("v1", "Node") => insert(&mut self.nodes, &mut self.warnings, at, value, &kind, ""),
            ("v1", "Pod") => insert(&mut self.pods, &mut self.warnings, at, value, &kind, DEFAULT_NAMESPACE),
            ("tandem.dev/v1alpha1", "NodePool") => {
                let known =
                    insert(&mut self.pools, &mut self.warnings, at, value.clone(), &kind, DEFAULT_NAMESPACE);
                known.and_then(|()| self.unknown_fields::<NodePool>(at, &value))
            }
            ("tandem.dev/v1alpha1", "NodePoolAutoscaler") => {
                let known = insert(
                    &mut self.autoscalers,
                    &mut self.warnings,
                    at,
                    value.clone(),
                    &kind,
                    DEFAULT_NAMESPACE,
                );
                known.and_then(|()| self.unknown_fields::<NodePoolAutoscaler>(at, &value))
            }
            _ => {
                *self.unknown.entry(format!("{version} {kind}")).or_default() += 1;
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

    /// Warns of fields of our own kinds that this version does not know: a typing error would change the plan in silence.
    fn unknown_fields<K: DeserializeOwned + Serialize>(
        &mut self,
        at: At<'_>,
        value: &Value,
    ) -> Result<(), InputError> {
        let known: Result<Value, _> =
            serde_json::from_value::<K>(value.clone()).and_then(|object| serde_json::to_value(object));
        let known = known.map_err(|error| at.error(None, "", error.to_string()))?;
        let mut unknown = BTreeSet::new();
        for part in ["spec", "status"] {
            differences(part, value.get(part), known.get(part), &mut unknown);
        }
        let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
        self.warnings.extend(unknown.into_iter().map(|field| {
            format!(
                "{}, document {}: {kind} {name}: {field} is not a field of this version and plays no part",
                at.file, at.document
            )
        }));
        Ok(())
    }

    fn finish(self) -> Objects {
        let Self { pools, autoscalers, nodes, pods, unknown, mut warnings } = self;
        warnings.extend(unknown.into_iter().map(|(kind, count)| {
            let objects = if count == 1 { "object" } else { "objects" };
            format!("{kind} plays no part in this version's plan: {count} {objects} left aside")
        }));
        let observed = Observed {
            now: Timestamp::UNIX_EPOCH,
            pools: pools.into_values().collect(),
            autoscalers: autoscalers.into_values().collect(),
            nodes: nodes.into_values().collect(),
            pods: pods.into_values().collect(),
            recommendations: Recommendations::Include,
        };
        Objects { observed, warnings }
    }
}

/// The documents of a text. JSON is tried first where the text looks like it: it is read much faster.
fn documents(file: &str, text: &str) -> Result<Vec<Value>, InputError> {
    if text.trim_start().starts_with('{') {
        let json: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(documents) = json {
            return Ok(documents);
        }
    }
    let mut documents = Vec::new();
    let mut bytes = text.as_bytes();
    // The reader's limits are for hostile input, and a dump of a large cluster is large. A node may be called `n`.
    let options = serde_saphyr::options! { budget: None, strict_booleans: true };
    for document in serde_saphyr::read_with_options::<_, Value>(&mut bytes, options) {
        let number = documents.len() + 1;
        documents.push(document.map_err(|error| InputError::Syntax {
            file: file.to_owned(),
            document: number,
            problem: error.without_snippet().to_string(),
        })?);
    }
    Ok(documents)
}

fn insert<K: DeserializeOwned>(
    into: &mut BTreeMap<(String, String), Arc<K>>,
    warnings: &mut Vec<String>,
    at: At<'_>,
    mut value: Value,
    kind: &str,
    default_namespace: &str,
) -> Result<(), InputError> {
    let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(at.error(Some(kind), "metadata.name", "is missing"));
    }
    let namespace =
        value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or(default_namespace).to_owned();
    if !default_namespace.is_empty() {
        value["metadata"]["namespace"] = Value::String(namespace.clone());
    }
    let full =
        if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") };
    let object = serde_path_to_error::deserialize(value)
        .map_err(|error| at.error(Some(&full), &error.path().to_string(), error.inner().to_string()))?;
    if into.insert((namespace, name), Arc::new(object)).is_some() {
        warnings
            .push(format!("{}, document {}: {full} was given before; this one counts", at.file, at.document));
    }
    Ok(())
}

/// Paths of fields in `given` that did not survive in `known`. Empty values are no loss: they are written as nothing.
fn differences(path: &str, given: Option<&Value>, known: Option<&Value>, unknown: &mut BTreeSet<String>) {
    match (given, known) {
        (Some(Value::Object(given)), Some(Value::Object(known))) => {
            for (key, value) in given {
                differences(&format!("{path}.{key}"), Some(value), known.get(key), unknown);
            }
        }
        (Some(Value::Array(given)), Some(Value::Array(known))) => {
            for (at, (given, known)) in given.iter().zip(known).enumerate() {
                differences(&format!("{path}[{at}]"), Some(given), Some(known), unknown);
            }
        }
        (Some(given), None) if !is_empty(given) => {
            unknown.insert(path.to_owned());
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
