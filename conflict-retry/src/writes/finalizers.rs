//! Adds a finalizer to an object and removes it.

use kube::Api;
use serde_json::{Value, json};

use super::kind::ReadsFirst;
use super::snapshot::Raw;
use super::target::WriteTarget;
use super::update::with_version;
use super::write::Write;
use super::write_loop::{Decided, WriteDecision, WriteSteps};
use super::{Writable, guard, wire};
use crate::operation::{Subresource, Verb};
use crate::outcome::WriteError;

/// Adds `finalizer` to an object, so that the object stays until [`remove_finalizer`]. Finalizers of other controllers
/// are kept, even those added concurrently.
///
/// An object that is being deleted accepts no new finalizer: [`WriteError::Aborted`].
pub fn add_finalizer<'a, K: Writable>(
    api: &'a Api<K>,
    name: &'a str,
    finalizer: &'a str,
) -> Write<'a, K, Finalizer<'a>> {
    Write::new(api, name, Subresource::Main, Finalizer { finalizer, is_wanted: true })
}

/// Removes `finalizer` from an object; when the last finalizer of a deleted object is removed, the object disappears.
/// Finalizers of other controllers are kept, even those added concurrently. An object that does not exist is
/// [`WriteError::Gone`].
pub fn remove_finalizer<'a, K: Writable>(
    api: &'a Api<K>,
    name: &'a str,
    finalizer: &'a str,
) -> Write<'a, K, Finalizer<'a>> {
    Write::new(api, name, Subresource::Main, Finalizer { finalizer, is_wanted: false })
}

/// The kind of write of [`add_finalizer`] and [`remove_finalizer`].
pub struct Finalizer<'a> {
    finalizer: &'a str,
    is_wanted: bool,
}

impl ReadsFirst for Finalizer<'_> {}

impl<K: Writable> WriteSteps<K> for Finalizer<'_> {
    type Seen = Raw<K>;
    type Body = Value;
    type Failure = WriteError;

    fn verb(&self) -> Verb {
        Verb::MergePatch
    }

    fn decide(&mut self, seen: Raw<K>, target: WriteTarget<'_, K>) -> Decided<K, Self> {
        let Raw { object: seen, stored } = seen;
        guard::named(&seen, target.api, target.name)?;
        let held = finalizers(&seen);
        if held.iter().any(|one| one == self.finalizer) == self.is_wanted {
            // A copy may be from before the finalizer was added, or lack what its cache has pruned.
            let is_told = self.is_wanted || stored.is_some();
            return Ok(if is_told { WriteDecision::Keep(seen) } else { WriteDecision::ReadLive });
        }
        let body = if !self.is_wanted {
            patch(held.iter().map(String::as_str).filter(|one| *one != self.finalizer))
        } else if seen.meta().deletion_timestamp.is_some() {
            return Ok(WriteDecision::Abort);
        } else {
            patch(held.iter().map(String::as_str).chain([self.finalizer]))
        };
        let fields = guard::patch(body, Subresource::Main)?;
        let version = guard::version(seen.meta().resource_version.as_deref())?;
        Ok(WriteDecision::Send(with_version(fields, version)))
    }

    fn send(target: WriteTarget<'_, K>, body: &Value) -> impl Future<Output = Result<K, kube::Error>> + Send {
        wire::merge(target.api, target.name, target.subresource, target.options, body)
    }
}

fn finalizers<K: Writable>(object: &K) -> &[String] {
    object.meta().finalizers.as_deref().unwrap_or_default()
}

/// A merge patch replaces the whole list; the resourceVersion in the patch protects the entries of other controllers.
fn patch<'a>(finalizers: impl Iterator<Item = &'a str>) -> Value {
    json!({ "metadata": { "finalizers": finalizers.collect::<Vec<_>>() } })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::freshness::Source;
    use crate::outcome::Outcome;
    use crate::writes::tests::{Reply, body, conflict, map, maps, ok, options, verbs};

    fn held(version: &str, finalizers: &[&str]) -> Value {
        let mut map = map(version, "x");
        map["metadata"]["finalizers"] = json!(finalizers);
        map
    }

    fn copy(value: Value) -> Source<'static, ConfigMap> {
        Source::Copy(serde_json::from_value(value).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn finalizers_added_concurrently_are_kept() {
        let replies = vec![conflict(), ok(held("2", &["theirs"])), ok(held("3", &["theirs", "ours"]))];
        let (api, seen) = maps(replies);
        let outcome = add_finalizer(&api, "m", "ours")
            .with(&options())
            .from(copy(held("1", &[])))
            .outcome()
            .await
            .unwrap();
        assert_eq!(outcome.label(), "written");
        assert_eq!(verbs(&seen), ["PATCH", "GET", "PATCH"]);
        assert_eq!(
            body(&seen, 2)["metadata"],
            json!({"finalizers": ["theirs", "ours"], "resourceVersion": "2"})
        );
        let (api, seen) = maps(vec![ok(held("4", &["theirs"]))]);
        let both = copy(held("3", &["theirs", "ours"]));
        assert_eq!(
            remove_finalizer(&api, "m", "ours").with(&options()).from(both).outcome().await.unwrap().label(),
            "written"
        );
        assert_eq!(body(&seen, 0)["metadata"]["finalizers"], json!(["theirs"]));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_without_a_change_and_a_deleting_object_gets_no_finalizer() {
        let (api, seen) = maps(vec![ok(held("1", &[]))]);
        let has = || copy(held("1", &["ours"]));
        assert_eq!(
            add_finalizer(&api, "m", "ours").with(&options()).from(has()).outcome().await.unwrap().label(),
            "unchanged"
        );
        // A copy may be from before it was added, so the server is asked.
        let none = copy(held("1", &[]));
        assert_eq!(
            remove_finalizer(&api, "m", "ours").with(&options()).from(none).outcome().await.unwrap().label(),
            "unchanged"
        );
        let mut going = held("1", &["theirs"]);
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let outcome =
            add_finalizer(&api, "m", "ours").with(&options()).from(copy(going)).outcome().await.unwrap();
        assert_eq!(outcome, Outcome::Aborted);
        assert_eq!(verbs(&seen), ["GET"]);
        let gone = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "details": {"name": "m"}});
        let (api, _) = maps(vec![Reply::Json(404, gone)]);
        assert_eq!(
            remove_finalizer(&api, "m", "ours").with(&options()).from(has()).outcome().await.unwrap(),
            Outcome::Gone
        );
    }
}
