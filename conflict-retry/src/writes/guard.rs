//! Checks made before anything is sent: a change must not touch the identity of an object, nor fields that the server
//! would silently drop.

use std::io;

use kube::Api;
use serde_json::{Map, Value};

use super::Writable;
use super::overwrite::Decided;
use crate::operation::Subresource;
use crate::outcome::Refusal;

/// Fields of `metadata` that identify the object and its version.
const IDENTITY: [&str; 4] = ["name", "namespace", "uid", "resourceVersion"];

/// Rejects a copy of an object other than the named one.
pub(super) fn named<K: Writable>(object: &K, api: &Api<K>, wanted: &str) -> Result<(), Refusal> {
    let namespaces = (object.meta().namespace.as_deref().filter(|it| !it.is_empty()), api.namespace());
    if let (Some(found), None) = namespaces {
        return Err(Refusal::AllNamespaces(found.to_owned()));
    }
    if let (Some(found), Some(namespace)) = namespaces
        && found != namespace
    {
        return Err(Refusal::WrongObject {
            wanted: format!("{namespace}/{wanted}"),
            found: format!("{found}/…"),
        });
    }
    match object.meta().name.as_deref() {
        Some(found) if found == wanted => Ok(()),
        found => Err(Refusal::WrongObject {
            wanted: wanted.to_owned(),
            found: found.unwrap_or_default().to_owned(),
        }),
    }
}

/// Rejects a write without a resourceVersion to guard it.
pub(super) fn version(version: Option<&str>) -> Result<&str, Refusal> {
    version.filter(|version| !version.is_empty()).ok_or(Refusal::NoVersion)
}

/// What changes from `before` to `after`; `None` when nothing changes. Rejected when it changes the identity, or
/// something that a write to `subresource` drops.
pub(super) fn changed<K: Writable>(
    before: &K,
    after: &K,
    subresource: Subresource,
) -> Result<Option<Decided>, Refusal> {
    identity(before, after)?;
    let seen = serde_json::to_value(before).map_err(Refusal::Encode)?;
    let wanted = serde_json::to_value(after).map_err(Refusal::Encode)?;
    if seen == wanted {
        return Ok(None);
    }
    if subresource == Subresource::Status {
        let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let (before, after) = (fields(&seen), fields(&wanted));
        let dropped = after
            .keys()
            .chain(before.keys())
            .find(|field| *field != "status" && before.get(*field) != after.get(*field));
        if let Some(field) = dropped {
            return Err(Refusal::Dropped { field: field.clone(), subresource });
        }
    }
    Ok(Some(Decided { seen, wanted }))
}

/// Rejects a change of what identifies the object.
pub(super) fn identity<K: Writable>(before: &K, after: &K) -> Result<(), Refusal> {
    let (old, new) = (before.meta(), after.meta());
    let identity = [
        old.name == new.name,
        old.namespace == new.namespace,
        old.uid == new.uid,
        old.resource_version == new.resource_version,
    ];
    if let Some((field, _)) = IDENTITY.iter().zip(identity).find(|(_, same)| !same) {
        return Err(Refusal::Identity(field));
    }
    Ok(())
}

/// Rejects an object that does not turn into JSON. kube's error of that, before anything is sent, is the same as of an
/// answer that cannot be decoded.
pub(super) fn encodable<K: Writable>(object: &K) -> Result<(), Refusal> {
    serde_json::to_writer(io::sink(), object).map_err(Refusal::Encode)
}

/// Rejects a type that holds only metadata where a whole object is sent.
pub(super) fn whole<K: Writable>() -> Result<(), Refusal> {
    if K::metadata_api() { Err(Refusal::MetadataOnly) } else { Ok(()) }
}

/// The patch as an object, rejected when it contains identity fields or something that `subresource` drops.
pub(super) fn patch(patch: Value, subresource: Subresource) -> Result<Map<String, Value>, Refusal> {
    let Value::Object(fields) = patch else {
        return Err(Refusal::Body("of a merge patch is not an object; give the fields to change"));
    };
    if let Some(field) = IDENTITY.iter().find(|field| {
        fields
            .get("metadata")
            .and_then(Value::as_object)
            .is_some_and(|metadata| metadata.contains_key(**field))
    }) {
        return Err(Refusal::Identity(field));
    }
    if subresource == Subresource::Status
        && let Some(field) = fields.keys().find(|field| *field != "status")
    {
        return Err(Refusal::Dropped { field: field.clone(), subresource });
    }
    Ok(fields)
}

/// Whether an RFC 7386 merge of `patch` into the object certainly changes nothing.
///
/// `seen` holds only the fields that the Rust type knows. A field that the type lacks may exist on the server, so
/// removing a field that is not in `seen` is treated as a change, except in `metadata`, which the type knows
/// completely.
pub(super) fn is_noop_patch(seen: &Value, patch: &Map<String, Value>) -> bool {
    patch.iter().all(|(key, wanted)| match seen.get(key) {
        Some(current) => is_noop_merge(current, wanted, key == "metadata"),
        None => false,
    })
}

fn is_noop_merge(target: &Value, patch: &Value, is_whole: bool) -> bool {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            patch.iter().all(|(key, wanted)| match (target.get(key), wanted) {
                (None, wanted) => is_whole && wanted.is_null(),
                (Some(current), wanted) => is_noop_merge(current, wanted, is_whole),
            })
        }
        (target, patch) => !patch.is_null() && !patch.is_object() && target == patch,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> ConfigMap {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_change_of_identity_is_refused_and_named() {
        let before =
            map(json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"}}));
        for (field, value) in [("name", "b"), ("namespace", "m"), ("uid", "v"), ("resourceVersion", "2")] {
            let mut changed_value = serde_json::to_value(&before).unwrap();
            changed_value["metadata"][field] = json!(value);
            let refusal = changed(&before, &map(changed_value), Subresource::Main).err().unwrap();
            assert!(matches!(refusal, Refusal::Identity(named) if named == field), "{field}: {refusal}");
        }
    }

    #[test]
    fn an_equal_object_is_no_change() {
        let before = map(json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
        assert!(changed(&before, &before.clone(), Subresource::Main).unwrap().is_none());
    }

    #[test]
    fn a_status_write_must_not_touch_the_rest() {
        let before: Pod = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        let status: Pod =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}}))
                .unwrap();
        assert!(changed(&before, &status, Subresource::Status).unwrap().is_some());
        let label: Pod =
            serde_json::from_value(json!({"metadata": {"name": "a", "labels": {"x": "y"}}})).unwrap();
        assert!(matches!(
            changed(&before, &label, Subresource::Status).err().unwrap(),
            Refusal::Dropped { field, .. } if field == "metadata"
        ));
    }

    #[test]
    fn a_patch_must_not_contain_a_resource_version() {
        let with_version = json!({"metadata": {"resourceVersion": "7"}, "spec": {}});
        assert!(matches!(patch(with_version, Subresource::Main), Err(Refusal::Identity("resourceVersion"))));
        assert!(matches!(patch(json!([1]), Subresource::Main), Err(Refusal::Body(_))));
        assert!(matches!(patch(json!({"spec": {}}), Subresource::Status), Err(Refusal::Dropped { .. })));
    }

    fn is_noop(patch: &Value) -> bool {
        let seen =
            json!({"metadata": {"labels": {"l": "1"}}, "a": 1, "b": {"c": [1, 2], "d": null}, "e": {}});
        is_noop_patch(&seen, patch.as_object().unwrap())
    }

    #[test]
    fn a_merge_that_changes_nothing_is_recognised() {
        for noop in [
            json!({}),
            json!({"a": 1}),
            json!({"b": {"c": [1, 2]}}),
            json!({"e": {}}),
            json!({"metadata": {"labels": {"l": "1", "gone": null}, "annotations": null}}),
        ] {
            assert!(is_noop(&noop), "{noop}");
        }
        for change in [
            json!({"a": 2}),
            json!({"a": null}),
            json!({"b": {"c": [1]}}),
            json!({"zz": {}}),
            json!({"a": {}}),
            json!({"metadata": {"labels": {"l": null}}}),
        ] {
            assert!(!is_noop(&change), "{change}");
        }
    }

    #[test]
    fn the_removal_of_a_field_that_the_type_may_lack_is_sent() {
        for removal in [json!({"zz": null}), json!({"b": {"zz": null}})] {
            assert!(!is_noop(&removal), "{removal}");
        }
    }
}
