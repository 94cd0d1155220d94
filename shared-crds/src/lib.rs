//! The contract between Tandem's two operators: the custom resources, their conditions, the names they put on nodes, and
//! **who owns which field** ([`ownership`]).
//!
//! Types and data only. There is no client, no runtime and no clock in here, so another program that reads or writes
//! Tandem's objects can depend on this crate alone.

pub mod conditions;
pub mod disruption;
pub mod firewall;
pub mod names;
mod owner;
pub mod ownership;
pub mod places;
pub mod protection;
mod qualified_name;
pub mod quantity;
pub mod reported;
pub mod schedule;
pub mod schema;
pub mod v1alpha1;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

pub use qualified_name::QualifiedName;
pub use v1alpha1::{NodePool, NodePoolAutoscaler};

/// The definitions could not be written out; a test of this crate rules it out for a released version.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// A schema is not valid JSON.
    #[error("a generated schema is not valid json")]
    Json(#[from] serde_json::Error),
    /// A definition cannot be written as YAML.
    #[error("a definition cannot be written as yaml")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// Every custom resource definition of Tandem, in the order to install them, with schemas as the API server should
/// hold them (see [`schema::tidy`]).
pub fn all() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    Ok([NodePool::crd(), NodePoolAutoscaler::crd()]
        .into_iter()
        .map(schema::tidy)
        .collect::<Result<_, _>>()?)
}

/// [`all`] as one multi-document YAML text, which `kubectl apply -f -` takes.
pub fn yaml() -> Result<String, CrdError> {
    let mut text = String::new();
    for crd in all()? {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd)?);
    }
    Ok(text)
}
