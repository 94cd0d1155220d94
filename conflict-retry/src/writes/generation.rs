//! JSON Patches guarded by the generation they were decided from: a guard that cannot become true again, and that no
//! write to status or metadata makes fail.
//!
//! Why not guard on the observed value: a value can return. A request may be executed long after its sender gave up on
//! it; if the number has gone from 3 to 5 and back to 3 in the meantime, a guard on 3 lets it pass. A generation is
//! never reused for an object, and the UID guard ensures that it is the same object.

use kube::Api;
use serde_json::{Value, json};

use super::decide::{IntoDecision, PatchDecision};
use super::kind::{PatchesAPart, ReadsFirst};
use super::snapshot::Whole;
use super::target::WriteTarget;
use super::write::Write;
use super::write_loop::{Decided, WriteDecision, WriteSteps};
use super::{Writable, guard, wire};
use crate::operation::{Subresource, Verb};
use crate::outcome::Refusal;

/// Sends a JSON Patch that you build, guarded by the UID and the generation of the object it was decided from: for a
/// change of the spec that must not be executed late. After each conflict it decides again from a fresh live read.
///
/// A conflict is only a change of the spec (or a deletion, or another object of the same name), or a failure of the
/// `test` operations in the patch. Neither a late request nor a repeated one is executed after such a change, even if
/// the change was reverted. There is no equivalent for `/scale`, whose objects have no generation. The kind must count
/// generations: one with a status subresource does. [`on`](Write::on) sets another subresource:
/// [`Subresource::Status`]. For what `decide` must not do, see [`crate::update`].
pub fn patch_at_generation<'a, K, F, D>(
    api: &'a Api<K>,
    name: &'a str,
    decide: F,
) -> Write<'a, K, PatchAtGeneration<F>>
where
    K: Writable,
    F: FnMut(&K) -> D + Send,
    D: IntoDecision<PatchDecision>,
{
    Write::new(api, name, Subresource::Main, PatchAtGeneration(decide))
}

/// The kind of write of [`patch_at_generation`].
pub struct PatchAtGeneration<F>(F);

impl<F> ReadsFirst for PatchAtGeneration<F> {}

impl<F> PatchesAPart for PatchAtGeneration<F> {}

impl<K, F, D> WriteSteps<K> for PatchAtGeneration<F>
where
    K: Writable,
    F: FnMut(&K) -> D + Send,
    D: IntoDecision<PatchDecision>,
{
    type Seen = Whole<K>;
    type Body = Value;
    type Failure = D::Error;

    fn verb(&self) -> Verb {
        Verb::JsonPatch
    }

    fn check(&self, target: WriteTarget<'_, K>) -> Result<(), Refusal> {
        target.is_object_or_status("is for the object itself or its status; a scale has no generation")
    }

    fn decide(&mut self, seen: Whole<K>, target: WriteTarget<'_, K>) -> Decided<K, Self> {
        let Whole(seen) = seen;
        guard::named(&seen, target.api, target.name)?;
        let operations = match (self.0)(&seen).into_decision() {
            Err(failure) => return Ok(WriteDecision::Fail(failure)),
            Ok(PatchDecision::Patch(operations)) => operations,
            Ok(PatchDecision::Keep) => return Ok(WriteDecision::Keep(seen)),
            Ok(PatchDecision::Abort) => return Ok(WriteDecision::Abort),
        };
        let (Some(uid), Some(generation)) = (&seen.meta().uid, seen.meta().generation) else {
            return Err(Refusal::NoGeneration);
        };
        let mut guarded = vec![
            json!({ "op": "test", "path": "/metadata/uid", "value": uid }),
            json!({ "op": "test", "path": "/metadata/generation", "value": generation }),
        ];
        guarded.extend(operations);
        Ok(WriteDecision::Send(Value::Array(guarded)))
    }

    fn send(target: WriteTarget<'_, K>, body: &Value) -> impl Future<Output = Result<K, kube::Error>> + Send {
        wire::json_patch(target.api, target.name, target.subresource, target.options, body)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    use serde_json::json;

    use super::super::tests::{Reply, options, scripted};
    use super::*;
    use crate::freshness::Source;
    use crate::outcome::{Outcome, WriteError};

    fn object(generation: i64, version: &str, replicas: i32) -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Thing",
            "metadata": {"name": "t", "namespace": "ns", "uid": "u", "generation": generation, "resourceVersion": version},
            "spec": {"replicas": replicas},
        })
    }

    fn grow(seen: &DynamicObject) -> PatchDecision {
        match seen.data["spec"]["replicas"].as_i64() {
            Some(5) => PatchDecision::Keep,
            Some(9) => PatchDecision::Abort,
            _ => PatchDecision::Patch(vec![json!({"op": "add", "path": "/spec/replicas", "value": 5})]),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_patch_tests_what_it_was_decided_from_and_is_decided_again_after_a_conflict() {
        let failed = json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "details": {},
            "message": "the server rejected our request due to an error in our request"});
        let (client, seen) = scripted(vec![
            Reply::Json(422, failed),
            Reply::Json(200, object(8, "12", 3)),
            Reply::Json(200, object(9, "13", 5)),
        ]);
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Thing"));
        let api: Api<DynamicObject> = Api::namespaced_with(client, "ns", &kind);
        let copy: DynamicObject = serde_json::from_value(object(7, "11", 3)).unwrap();
        let outcome =
            patch_at_generation(&api, "t", grow).with(&options()).from(Source::Copy(copy)).outcome().await;
        assert!(matches!(outcome.unwrap(), Outcome::Written(_)));
        let seen = seen.lock().unwrap();
        for (request, generation) in [(0, 7), (2, 8)] {
            let tests = [
                json!({"op": "test", "path": "/metadata/uid", "value": "u"}),
                json!({"op": "test", "path": "/metadata/generation", "value": generation}),
            ];
            assert_eq!(seen[request].2.as_array().unwrap()[..2], tests);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_without_a_generation_or_a_decision() {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Thing"));
        let api: Api<DynamicObject> = Api::namespaced_with(scripted(Vec::new()).0, "ns", &kind);
        let write = async |object: Value| {
            let copy = serde_json::from_value(object).unwrap();
            patch_at_generation(&api, "t", grow).with(&options()).from(Source::Copy(copy)).outcome().await
        };
        assert!(matches!(write(object(7, "11", 5)).await, Ok(Outcome::Unchanged(_))));
        assert_eq!(write(object(7, "11", 9)).await.unwrap(), Outcome::Aborted);
        let mut uncounted = object(7, "11", 3);
        uncounted["metadata"]["generation"] = Value::Null;
        let refused = write(uncounted).await.unwrap_err();
        assert!(matches!(refused, WriteError::Refused { reason: Refusal::NoGeneration, .. }), "{refused}");
    }
}
