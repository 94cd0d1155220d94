//! The selection of objects for the page.

use std::str::FromStr;

use crate::line::ObjectRef;

/// Resources that are left out when a whole namespace is selected, because they show nothing about concurrent writers.
const NOISE: [&str; 2] = ["namespaces", "events"];
/// Objects that Kubernetes itself creates in every namespace.
const DEFAULT_OBJECTS: [(&str, &str); 2] =
    [("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")];

/// `RESOURCE[.GROUP][/NAME]`, as in the `objectRef` of an audit event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The resource in the plural.
    pub(crate) resource: String,
    /// Its API group, if given.
    pub(crate) group: Option<String>,
    /// One object; `None` for all of them.
    pub(crate) name: Option<String>,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/');
        let kind = parts.next().unwrap_or_default().trim();
        let name = parts.next().map(str::trim);
        if parts.next().is_some() {
            return Err(
                "say RESOURCE or RESOURCE/NAME; a subresource is on the page of its object".to_owned()
            );
        }
        if kind.is_empty() || name == Some("") {
            return Err("say RESOURCE or RESOURCE/NAME, as in nodepools/workers".to_owned());
        }
        let (resource, group) = kind.split_once('.').map_or((kind, None), |(r, g)| (r, Some(g.to_owned())));
        Ok(Self { resource: resource.to_lowercase(), group, name: name.map(str::to_owned) })
    }
}

impl Wanted {
    fn covers(&self, object: &ObjectRef) -> bool {
        self.is_kind(object) && self.name.as_ref().is_none_or(|name| *name == object.name)
    }

    /// Whether it is this resource, whatever the name.
    fn is_kind(&self, object: &ObjectRef) -> bool {
        self.resource == object.resource && self.group.as_ref().is_none_or(|group| *group == object.api_group)
    }

    /// The text as it was typed.
    pub(crate) fn text(&self) -> String {
        let group = self.group.as_ref().map_or_else(String::new, |group| format!(".{group}"));
        let name = self.name.as_ref().map_or_else(String::new, |name| format!("/{name}"));
        format!("{}{group}{name}", self.resource)
    }
}

/// The selected part of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Objects or resources; empty means everything in `namespaces`.
    pub(crate) objects: Vec<Wanted>,
    /// Namespaces; empty means all. It does not restrict objects without a namespace.
    pub(crate) namespaces: Vec<String>,
    /// Selects everything in the namespaces, in addition to `objects`.
    pub(crate) whole_namespaces: bool,
}

impl Selection {
    /// Whether requests about `object` are shown.
    pub(crate) fn covers(&self, object: &ObjectRef) -> bool {
        let here = self.has_namespace(&object.namespace);
        if self.whole_namespaces && here && !object.namespace.is_empty() {
            let resource = object.resource.as_str();
            return !NOISE.contains(&resource)
                && !DEFAULT_OBJECTS.contains(&(resource, object.name.as_str()));
        }
        here && self.objects.iter().any(|wanted| wanted.covers(object))
    }

    /// Whether requests about `object` are shown, or may be once its name is known: a create with `generateName` has it
    /// only in the answer.
    pub(crate) fn may_cover(&self, object: &ObjectRef) -> bool {
        self.covers(object)
            || (object.name.is_empty()
                && self.has_namespace(&object.namespace)
                && self.objects.iter().any(|wanted| wanted.is_kind(object)))
    }

    /// Whether `namespace` is selected, or empty.
    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.namespaces.is_empty() || self.namespaces.iter().any(|n| n == namespace)
    }

    /// The selection as text.
    pub(crate) fn text(&self) -> String {
        let objects: Vec<String> = self.objects.iter().map(Wanted::text).collect();
        let within = self.namespaces.join(", ");
        match (self.whole_namespaces, objects.is_empty(), within.is_empty()) {
            (true, _, _) => format!("namespace {within}"),
            (false, _, true) => objects.join(", "),
            (false, _, false) => format!("{} in {within}", objects.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(resource: &str, namespace: &str, name: &str) -> ObjectRef {
        ObjectRef {
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..ObjectRef::default()
        }
    }

    #[test]
    fn an_object_is_a_resource_with_or_without_group_and_name() {
        let wanted: Wanted = "NodePools.tandem.dev/x".parse().unwrap();
        assert_eq!(wanted.text(), "nodepools.tandem.dev/x");
        assert_eq!("pods".parse::<Wanted>().unwrap().name, None);
        for wrong in ["", "/x", "pods/", "pods/x/status"] {
            assert!(wrong.parse::<Wanted>().unwrap_err().contains("RESOURCE"), "{wrong}");
        }
    }

    #[test]
    fn a_namespace_restricts_only_namespaced_objects() {
        let selection = Selection {
            objects: vec!["nodepools/x".parse().unwrap(), "nodes".parse().unwrap()],
            namespaces: vec!["a".into()],
            whole_namespaces: false,
        };
        assert!(selection.covers(&object("nodepools", "a", "x")));
        assert!(!selection.covers(&object("nodepools", "b", "x")));
        assert!(!selection.covers(&object("nodepools", "a", "y")));
        assert!(selection.covers(&object("nodes", "", "n1")));
    }

    #[test]
    fn a_whole_namespace_is_shown_without_its_default_objects() {
        let selection =
            Selection { namespaces: vec!["a".into()], whole_namespaces: true, ..Selection::default() };
        assert!(selection.covers(&object("pods", "a", "x")));
        assert!(!selection.covers(&object("events", "a", "x")));
        assert!(!selection.covers(&object("configmaps", "a", "kube-root-ca.crt")));
        assert!(!selection.covers(&object("nodes", "", "n")));
    }
}
