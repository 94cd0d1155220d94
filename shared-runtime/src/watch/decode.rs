//! Decoding the API server's answers, one object at a time: an object that this version cannot read must not affect the
//! others of its kind.

use std::fmt::Debug;

use kube::runtime::reflector::{Lookup, ObjectRef};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object, or its identity and why it cannot be read.
#[derive(Clone, Debug)]
pub enum Decoded<W> {
    /// The object.
    Read(W),
    /// An object that its type does not allow.
    Unreadable(Unreadable),
}

/// An object that cannot be read: a value that a newer version wrote, a time that our calendar types cannot represent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID; `None` if it is missing or unreadable.
    pub uid: Option<String>,
    /// Its resourceVersion; `None` if it is missing or unreadable.
    pub version: Option<String>,
    /// For a Pod, the node it is bound to; `None` otherwise.
    pub node_name: Option<String>,
    /// The field and what is wrong with it.
    pub error: String,
}

impl Unreadable {
    /// The key of the object in a store of its kind.
    pub fn key<K: Lookup<DynamicType = ()>>(&self) -> ObjectRef<K> {
        let key = ObjectRef::new(&self.name);
        match &self.namespace {
            Some(namespace) => key.within(namespace),
            None => key,
        }
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

impl<W> Decoded<W> {
    /// The resourceVersion of an unreadable object; `of` returns that of a readable one.
    pub(super) fn version<'a>(&'a self, of: impl FnOnce(&'a W) -> Option<&'a str>) -> Option<&'a str> {
        match self {
            Self::Read(object) => of(object),
            Self::Unreadable(unreadable) => unreadable.version.as_deref(),
        }
    }
}

impl<'de, W: DeserializeOwned> Deserialize<'de> for Decoded<W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(decode(raw.get()))
    }
}

/// Decodes one object. Only an unreadable one is decoded a second time, to name the field.
fn decode<W: DeserializeOwned>(text: &str) -> Decoded<W> {
    if let Ok(object) = serde_json::from_str(text) {
        return Decoded::Read(object);
    }
    let mut again = serde_json::Deserializer::from_str(text);
    let error = match serde_path_to_error::deserialize::<_, W>(&mut again) {
        Err(failed) => format!("{}: {}", failed.path(), plain(failed.inner())),
        Ok(_) => "something follows the object".to_owned(),
    };
    // Each separately: an error in one does not hide the other.
    let Named { metadata } = serde_json::from_str(text).unwrap_or_default();
    let Placed { spec } = serde_json::from_str(text).unwrap_or_default();
    Decoded::Unreadable(Unreadable {
        namespace: metadata.namespace,
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid,
        version: metadata.resource_version,
        node_name: spec.node_name,
        error,
    })
}

/// The message without the line and column, which mean nothing in a log.
fn plain(failed: &serde_json::Error) -> String {
    let text = failed.to_string();
    let place = format!(" at line {} column {}", failed.line(), failed.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

/// The part of an object that identifies it; the rest of it may be invalid.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Identity,
}

/// The node of a pod, whatever else is in its spec.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Placed {
    spec: Placement,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Identity {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Placement {
    node_name: Option<String>,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DaemonSet;
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::WatchEvent;
    use serde_json::json;

    use super::*;

    /// A year that the API server accepts and this process cannot represent.
    fn daemon_set() -> serde_json::Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": "kube-system", "uid": "u", "resourceVersion": "7"},
            "spec": {
                "selector": {},
                "template": {"metadata": {"creationTimestamp": "9999-12-31T23:59:59-23:00"}},
            },
        })
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_field_and_what_can_is_read() {
        let Decoded::<DaemonSet>::Unreadable(unreadable) = decode(&daemon_set().to_string()) else {
            panic!("it can be read")
        };
        assert_eq!(unreadable.to_string(), "kube-system/agent");
        assert_eq!((unreadable.uid.as_deref(), unreadable.version.as_deref()), (Some("u"), Some("7")));
        assert!(
            unreadable.error.starts_with("spec.template.metadata.creationTimestamp: "),
            "{}",
            unreadable.error
        );
        assert!(!unreadable.error.contains("line"), "{}", unreadable.error);
        assert!(matches!(decode::<DaemonSet>(r#"{"metadata": {"name": "a"}}"#), Decoded::Read(_)));
    }

    #[test]
    fn an_event_of_a_watch_is_read_and_its_kind_kept_when_its_object_cannot_be() {
        let line = json!({"type": "DELETED", "object": daemon_set()});
        // The API server writes the type first.
        let line = format!(r#"{{"type":"DELETED","object":{}}}"#, line["object"]);
        let event: WatchEvent<Decoded<DaemonSet>> = serde_json::from_str(&line).unwrap();
        assert!(matches!(event, WatchEvent::Deleted(Decoded::Unreadable(_))));
    }

    #[test]
    fn of_a_pod_the_node_is_told() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n", "containers": 3}});
        let Decoded::<Pod>::Unreadable(pod) = decode(&pod.to_string()) else { panic!("it can be read") };
        assert_eq!(pod.node_name.as_deref(), Some("n"));
    }
}
