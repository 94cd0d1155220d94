//! The objects of a log, for messages about objects that were not found.

use std::collections::{BTreeMap, BTreeSet};

use crate::line::ObjectRef;
use crate::select::{Selection, Wanted};

/// Maximum number of remembered names of a resource.
const MOST: usize = 1_000;
/// Maximum number of names in a message.
const LISTED: usize = 8;

/// The objects of a log.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Names (with namespace) by resource.
    names: BTreeMap<String, BTreeSet<(String, String)>>,
    /// Number of 409s by object.
    conflicts: BTreeMap<(String, String, String), usize>,
}

impl Seen {
    pub(crate) fn add(&mut self, object: &ObjectRef, code: u16) {
        if object.resource.is_empty() {
            return;
        }
        if !self.names.contains_key(&object.resource) {
            self.names.insert(object.resource.clone(), BTreeSet::new());
        }
        let Some(names) = self.names.get_mut(&object.resource) else { return };
        if !object.name.is_empty() && names.len() < MOST {
            names.insert((object.namespace.clone(), object.name.clone()));
        }
        if code == 409 && !object.name.is_empty() && self.conflicts.len() < MOST {
            let key = (object.resource.clone(), object.namespace.clone(), object.name.clone());
            *self.conflicts.entry(key).or_default() += 1;
        }
    }

    /// Explains that nothing was found, and names what exists.
    pub(crate) fn explain(&self, selection: &Selection) -> String {
        if self.names.is_empty() {
            return "the log has no request about an object".to_owned();
        }
        if selection.objects.is_empty() {
            return format!("nothing in the log is in {}", selection.text());
        }
        let texts: Vec<String> =
            selection.objects.iter().map(|wanted| self.explain_one(wanted, selection)).collect();
        texts.join("; ")
    }

    fn explain_one(&self, wanted: &Wanted, selection: &Selection) -> String {
        let Some(names) = self.names.get(&wanted.resource) else {
            let near = nearest(&wanted.resource, self.names.keys().map(String::as_str));
            let meant = near.map_or_else(|| ".".to_owned(), |near| format!("; did you mean {near}?"));
            let all = some(self.names.keys().cloned());
            return format!("no request in the log is about {}{meant} The log has {all}", wanted.resource);
        };
        let Some(name) = &wanted.name else {
            let spaces = some(names.iter().map(|(namespace, _)| namespace.clone()).collect::<BTreeSet<_>>());
            return format!(
                "no {} match {}; the log has some in {spaces}",
                wanted.resource,
                selection.text()
            );
        };
        let elsewhere: Vec<&str> =
            names.iter().filter(|(_, of)| of == name).map(|(namespace, _)| namespace.as_str()).collect();
        if !elsewhere.is_empty() {
            return format!(
                "{} is in namespace {}, not in {}",
                wanted.text(),
                elsewhere.join(", "),
                selection.namespaces.join(", ")
            );
        }
        let near = nearest(name, names.iter().map(|(_, name)| name.as_str()));
        let meant =
            near.map_or_else(|| ".".to_owned(), |near| format!("; did you mean {}/{near}?", wanted.resource));
        let all = some(names.iter().map(|(_, name)| format!("{}/{name}", wanted.resource)));
        format!("no request in the log is about {}{meant} The log has {all}", wanted.text())
    }

    /// A suggestion if no object was selected.
    pub(crate) fn suggest(&self) -> String {
        let mut contested: Vec<_> = self.conflicts.iter().collect();
        contested.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        if contested.is_empty() {
            return format!(
                "the log has {}; no request in it was answered 409",
                some(self.names.keys().cloned())
            );
        }
        let lines: Vec<String> = contested
            .into_iter()
            .take(LISTED)
            .map(|((resource, namespace, name), count)| {
                let within =
                    if namespace.is_empty() { String::new() } else { format!(" --namespace {namespace}") };
                format!("\n  --object {resource}/{name}{within}    ({count} × 409)")
            })
            .collect();
        format!("the most contested are:{}", lines.concat())
    }
}

fn nearest<'a>(to: &str, among: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    among
        .map(|name| (strsim::jaro_winkler(to, name), name))
        .filter(|(near, _)| *near > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

fn some(names: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = names.into_iter().collect();
    let texts = all.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    match all.len().checked_sub(LISTED) {
        Some(more) if more > 0 => format!("{texts} and {more} more"),
        _ => texts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let mut seen = Seen::default();
        for (resource, namespace, name, code) in
            [("nodepools", "a", "workers", 409), ("nodepools", "b", "gpu", 200), ("nodes", "", "n1", 200)]
        {
            let object = ObjectRef {
                resource: resource.into(),
                namespace: namespace.into(),
                name: name.into(),
                ..ObjectRef::default()
            };
            seen.add(&object, code);
        }
        seen
    }

    fn explain(object: &str, namespaces: &[&str]) -> String {
        seen().explain(&Selection {
            objects: vec![object.parse().unwrap()],
            namespaces: namespaces.iter().map(|n| (*n).to_owned()).collect(),
            whole_namespaces: false,
        })
    }

    #[test]
    fn a_missing_object_is_named_with_the_existing_ones() {
        for (object, namespaces, said) in [
            (
                "nodepool",
                &[][..],
                "no request in the log is about nodepool; did you mean nodepools? The log has nodepools, nodes",
            ),
            ("zzz", &[], "no request in the log is about zzz. The log has nodepools, nodes"),
            (
                "nodepools/worker",
                &[],
                "no request in the log is about nodepools/worker; did you mean nodepools/workers? \
                 The log has nodepools/workers, nodepools/gpu",
            ),
            ("nodepools/gpu", &["a"], "nodepools/gpu is in namespace b, not in a"),
        ] {
            assert_eq!(explain(object, namespaces), said);
        }
        assert_eq!(Seen::default().explain(&Selection::default()), "the log has no request about an object");
    }

    #[test]
    fn when_nothing_was_asked_for_the_most_contested_is_suggested() {
        assert!(seen().suggest().contains("--object nodepools/workers --namespace a    (1 × 409)"));
    }
}
