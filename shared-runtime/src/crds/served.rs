//! What the served definitions lack, as the parts of an operator see it that report it or write.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{Stream, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use shared_crds::conditions::{ConditionType, Reason, Statement};
use tokio::sync::{Notify, watch};

use super::schema::MissingFields;

/// Number of fields that a message names.
const NAMED: usize = 8;

/// The fields that each served definition lacks. Cheap to clone; all clones see the same.
#[derive(Clone, Debug, Default)]
pub struct ServedFields(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    missing: watch::Sender<BTreeMap<&'static str, Arc<MissingFields>>>,
    doubted: Notify,
}

impl ServedFields {
    /// The fields that the definition called `name` lacks; none if it was not read.
    pub fn missing(&self, name: &str) -> Arc<MissingFields> {
        self.0.missing.borrow().get(name).cloned().unwrap_or_default()
    }

    /// What to say about the definition called `name`; `None` if it lacks nothing.
    pub fn problem(&self, name: &str) -> Option<String> {
        problem(name, &self.missing(name))
    }

    /// The same as a condition of the objects that it defines.
    pub fn statement(&self, name: &str) -> Option<Statement> {
        let message = self.problem(name)?;
        Some(Statement::new(ConditionType::CrdCurrent, false, Reason::CrdOutdated, message))
    }

    /// An item whenever a definition begins or ceases to lack fields.
    pub fn changes(&self) -> impl Stream<Item = ()> + Send + 'static {
        let mut seen = self.0.missing.subscribe();
        seen.mark_unchanged();
        // The sender lives as long as this clone of it.
        stream::unfold((self.clone(), seen), async |(served, mut seen)| {
            seen.changed().await.ok()?;
            Some(((), (served, seen)))
        })
    }

    /// The API server has refused a field as one that the definition lacks, so what is known of it is outdated.
    pub(crate) fn doubt(&self) {
        self.0.doubted.notify_one();
    }

    /// Returns after [`Self::doubt`], also if that was called before.
    pub(crate) async fn doubted(&self) {
        self.0.doubted.notified().await;
    }

    /// Whether no definition lacks a field.
    pub(super) fn is_complete(&self) -> bool {
        self.0.missing.borrow().values().all(|missing| missing.is_empty())
    }

    /// Compares a served definition with the one that is known of it. Whether the result has changed.
    pub(crate) fn learn(
        &self,
        name: &'static str,
        known: &CustomResourceDefinition,
        served: &CustomResourceDefinition,
    ) -> bool {
        self.set(name, Arc::new(MissingFields::of(known, served)))
    }

    fn set(&self, name: &'static str, missing: Arc<MissingFields>) -> bool {
        self.0.missing.send_if_modified(|all| {
            let has_changed = all.get(name).cloned().unwrap_or_default() != missing;
            all.insert(name, missing);
            has_changed
        })
    }
}

fn problem(name: &str, missing: &MissingFields) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let named: Vec<String> = missing.names().take(NAMED).collect();
    let more = match missing.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "the installed definition {name} is older than this operator and lacks {}{more}: the API server drops these fields, so settings in them have no effect and nothing is reported in them; install the definitions of this release",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _};
    use shared_crds::NodePool;

    use super::*;

    const NAME: &str = "nodepools.tandem.dev";

    /// What a definition without any field lacks.
    fn everything() -> MissingFields {
        use kube::CustomResourceExt as _;
        let mut bare = NodePool::crd();
        for version in &mut bare.spec.versions {
            let schema = version.schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
            for part in schema.properties.as_mut().unwrap().values_mut() {
                part.properties = None;
            }
        }
        MissingFields::of(&NodePool::crd(), &bare)
    }

    #[test]
    fn a_long_list_is_counted_instead_of_told() {
        let text = problem(NAME, &everything()).unwrap();
        assert!(text.len() < 1024 && text.contains(" more: "), "{text}");
        assert_eq!(problem(NAME, &MissingFields::default()), None);
    }

    #[test]
    fn only_a_change_is_one() {
        let served = ServedFields::default();
        let mut changes = std::pin::pin!(served.changes());
        assert!(!served.set(NAME, Arc::default()));
        assert!(changes.next().now_or_never().is_none());
        assert!(served.set(NAME, Arc::new(everything())) && !served.set(NAME, Arc::new(everything())));
        assert!(!served.is_complete() && served.statement(NAME).is_some());
        assert!(changes.next().now_or_never().is_some() && changes.next().now_or_never().is_none());
        assert!(served.set(NAME, Arc::default()) && served.is_complete());
        assert!(changes.next().now_or_never().is_some());
    }
}
