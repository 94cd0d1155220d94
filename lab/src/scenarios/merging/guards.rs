//! Every guard of a patch against every kind of intermediate write, measured one by one.

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::pool::{Pool, pool};

/// A patch from 3 replicas to 5.
pub(super) struct Guard {
    /// Its text in the table.
    pub(super) name: &'static str,
    short: &'static str,
    is_json: bool,
    body: fn(&Pool) -> Value,
    /// The answers, in the order of [`BETWEEN`].
    pub(super) wanted: [u16; 4],
    /// The conclusion.
    pub(super) claim: &'static str,
}

/// The other writer's intermediate writes: text and endpoint.
pub(super) struct Between {
    short: &'static str,
    body: fn() -> Value,
}

pub(super) const BETWEEN: [Between; 4] = [
    Between { short: "nothing", body: || Value::Null },
    Between { short: "status", body: || json!({"status": {"ready": 1}}) },
    Between { short: "machine", body: || json!({"spec": {"machine": "large"}}) },
    Between { short: "count", body: || json!({"spec": {"replicas": 2}}) },
];

pub(super) const ALL: [Guard; 5] = [
    Guard {
        name: "JSON Patch, no guard",
        short: "none",
        is_json: true,
        body: |_| json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]),
        wanted: [200, 200, 200, 200],
        claim: "granted, whatever was written in between",
    },
    Guard {
        name: "JSON Patch, test of the count",
        short: "value",
        is_json: true,
        body: |seen| tested("/spec/replicas", &json!(seen.spec.replicas)),
        wanted: [200, 200, 200, 422],
        claim: "refused after a change of the count, and of nothing else",
    },
    Guard {
        name: "JSON Patch, test of the generation",
        short: "generation",
        is_json: true,
        body: |seen| tested("/metadata/generation", &json!(seen.metadata.generation)),
        wanted: [200, 200, 422, 422],
        claim: "refused after any change of the spec, not after a report",
    },
    Guard {
        name: "merge patch, no version",
        short: "merge",
        is_json: false,
        body: |_| json!({"spec": {"replicas": 5}}),
        wanted: [200, 200, 200, 200],
        claim: "granted, whatever was written in between",
    },
    Guard {
        name: "merge patch with the version",
        short: "versioned",
        is_json: false,
        body: |seen| json!({"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": {"replicas": 5}}),
        wanted: [200, 409, 409, 409],
        claim: "refused after any write",
    },
];

fn tested(path: &str, value: &Value) -> Value {
    json!([
        {"op": "test", "path": path, "value": value},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
    ])
}

/// The status code of the patch's answer.
#[expect(clippy::disallowed_methods, reason = "each kind of patch is measured bare, by itself")]
pub(super) async fn answer(pools: &Api<Pool>, guard: &Guard, between: &Between) -> Result<u16> {
    let name = format!("{}-{}", guard.short, between.short);
    let seen = pools.create(&PostParams::default(), &pool(&name, 3)).await?;
    let (params, other) = (PatchParams::default(), (between.body)());
    if other.get("status").is_some() {
        pools.patch_status(&name, &params, &Patch::Merge(other)).await?;
    } else if !other.is_null() {
        pools.patch(&name, &params, &Patch::Merge(other)).await?;
    }
    let body = (guard.body)(&seen);
    let patch = if guard.is_json {
        Patch::Json(serde_json::from_value(body).context("no JSON Patch")?)
    } else {
        Patch::Merge(body)
    };
    code(pools.patch(&name, &params, &patch).await)
}

/// The code of an answer.
pub(super) fn code<T>(answer: Result<T, kube::Error>) -> Result<u16> {
    match answer {
        Ok(_) => Ok(200),
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(error) => Err(error.into()),
    }
}
