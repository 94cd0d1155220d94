//! A pool of a cluster, for tests.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::{NodePoolSpec, NodeTemplate, NodeTemplateSpec, ProviderSpec, SimulatedProvider};
use shared_crds::{NodePool, names};

use crate::input::keys::{ClusterId, PoolKey};
use crate::input::slots::Slots;

/// A pool `web`.
pub fn key() -> PoolKey {
    PoolKey { namespace: "default".into(), name: "web".into() }
}

/// The cluster of [`key`].
pub fn cluster() -> ClusterId {
    "here".into()
}

/// The prefix of the names of [`key`]'s slots.
pub fn prefix() -> String {
    Slots::of(&cluster(), &key()).prefix().to_owned()
}

/// The name of [`key`]'s slot of this number.
pub fn slot(number: usize) -> String {
    format!("{}{number}", prefix())
}

/// So many seconds after the epoch.
pub fn at(second: i64) -> Timestamp {
    Timestamp::constant(second, 0)
}

/// The pool of [`key`], which already has its finalizer.
pub fn pool(replicas: i32) -> NodePool {
    let quantity = |text: &str| Quantity(text.into());
    NodePool {
        metadata: ObjectMeta {
            name: Some(key().name),
            namespace: Some(key().namespace),
            uid: Some("pool-uid".into()),
            generation: Some(1),
            finalizers: Some(vec![names::POOL_FINALIZER.into()]),
            ..ObjectMeta::default()
        },
        spec: NodePoolSpec {
            replicas: Some(replicas),
            min_replicas: 0,
            max_replicas: 1000,
            template: NodeTemplate {
                metadata: None,
                spec: NodeTemplateSpec {
                    capacity: BTreeMap::from([
                        ("cpu".into(), quantity("4")),
                        ("memory".into(), quantity("16Gi")),
                    ]),
                    ..NodeTemplateSpec::default()
                },
            },
            provider: ProviderSpec {
                simulated: Some(SimulatedProvider::default()),
                ..ProviderSpec::default()
            },
            provisioning_timeout_seconds: 900,
            ..NodePoolSpec::default()
        },
        status: None,
    }
}
