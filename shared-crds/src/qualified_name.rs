//! `namespace/name`, the way plans, messages and events name an object.

use std::fmt::{Display, Formatter};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Namespace and name of an object, displayed as `namespace/name`; the name alone where there is no namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName<'a> {
    /// Namespace of the object; empty for a cluster-scoped one.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
}

impl<'a> QualifiedName<'a> {
    /// The name of the object that `metadata` belongs to.
    pub fn of(metadata: &'a ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            name: metadata.name.as_deref().unwrap_or_default(),
        }
    }
}

impl<'a> From<(&'a str, &'a str)> for QualifiedName<'a> {
    fn from((namespace, name): (&'a str, &'a str)) -> Self {
        Self { namespace, name }
    }
}

impl Display for QualifiedName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { namespace, name } = self;
        if namespace.is_empty() { f.write_str(name) } else { write!(f, "{namespace}/{name}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_scoped_object_is_displayed_without_a_slash() {
        for (name, expected) in [(("demo", "small"), "demo/small"), (("", "node-1"), "node-1")] {
            assert_eq!(QualifiedName::from(name).to_string(), expected);
        }
        let metadata = ObjectMeta {
            namespace: Some("demo".to_owned()),
            name: Some("small".to_owned()),
            ..ObjectMeta::default()
        };
        assert_eq!(QualifiedName::of(&metadata).to_string(), "demo/small");
        assert_eq!(QualifiedName::of(&ObjectMeta::default()).to_string(), "");
    }
}
