//! Adds a finalizer to an object and removes it.

use kube::Api;
use serde_json::{Value, json};

use super::{Writable, merge_patch};
use crate::freshness::Source;
use crate::operation::Subresource;
use crate::options::WriteOptions;
use crate::outcome::{Outcome, WriteError};

/// Adds `finalizer` to an object, so that the object stays until [`remove_finalizer`]. Finalizers of other controllers
/// are kept, even those added concurrently.
///
/// An object that is being deleted accepts no new finalizer: the result is [`Outcome::Aborted`].
pub async fn add_finalizer<K: Writable>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    source: Source<'_, K>,
    finalizer: &str,
) -> Result<Outcome<K>, WriteError> {
    let mut going = false;
    let outcome = merge_patch(api, name, Subresource::Main, options, source, |object| {
        let held = finalizers(object);
        if held.iter().any(|one| one == finalizer) {
            return None;
        }
        going = object.meta().deletion_timestamp.is_some();
        (!going).then(|| patch(held.iter().map(String::as_str).chain([finalizer])))
    })
    .await?;
    Ok(if going { Outcome::Aborted } else { outcome })
}

/// Removes `finalizer` from an object; when the last finalizer of a deleted object is removed, the object disappears.
/// Finalizers of other controllers are kept, even those added concurrently. An object that is already gone is
/// [`Outcome::Gone`].
pub async fn remove_finalizer<K: Writable>(
    api: &Api<K>,
    name: &str,
    options: &WriteOptions,
    source: Source<'_, K>,
    finalizer: &str,
) -> Result<Outcome<K>, WriteError> {
    merge_patch(api, name, Subresource::Main, options, source, |object| {
        let held = finalizers(object);
        let others = held.iter().map(String::as_str).filter(|one| *one != finalizer);
        held.iter().any(|one| one == finalizer).then(|| patch(others))
    })
    .await
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
        let outcome = add_finalizer(&api, "m", &options(), copy(held("1", &[])), "ours").await.unwrap();
        assert_eq!(outcome.label(), "written");
        assert_eq!(verbs(&seen), ["PATCH", "GET", "PATCH"]);
        assert_eq!(
            body(&seen, 2)["metadata"],
            json!({"finalizers": ["theirs", "ours"], "resourceVersion": "2"})
        );
        let (api, seen) = maps(vec![ok(held("4", &["theirs"]))]);
        let both = copy(held("3", &["theirs", "ours"]));
        assert_eq!(remove_finalizer(&api, "m", &options(), both, "ours").await.unwrap().label(), "written");
        assert_eq!(body(&seen, 0)["metadata"]["finalizers"], json!(["theirs"]));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_without_a_change_and_a_deleting_object_gets_no_finalizer() {
        let (api, seen) = maps(vec![]);
        let has = || copy(held("1", &["ours"]));
        assert_eq!(add_finalizer(&api, "m", &options(), has(), "ours").await.unwrap().label(), "unchanged");
        let none = copy(held("1", &[]));
        assert_eq!(remove_finalizer(&api, "m", &options(), none, "ours").await.unwrap().label(), "unchanged");
        let mut going = held("1", &["theirs"]);
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let outcome = add_finalizer(&api, "m", &options(), copy(going), "ours").await.unwrap();
        assert_eq!(outcome, Outcome::Aborted);
        assert!(verbs(&seen).is_empty());
        let gone = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "details": {"name": "m"}});
        let (api, _) = maps(vec![Reply::Json(404, gone)]);
        assert_eq!(remove_finalizer(&api, "m", &options(), has(), "ours").await.unwrap(), Outcome::Gone);
    }
}
