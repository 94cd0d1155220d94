//! What of a machine is there for pods.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use shared_crds::quantity::{Exact, InvalidQuantity};

/// An amount in a pool's template is not a valid quantity, or is negative. The text is for the user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.template.spec.{list}.{resource}: {source}")]
pub struct InvalidAmount {
    /// `capacity` or `reserved`.
    list: &'static str,
    /// Name of the resource.
    resource: String,
    /// What is wrong with it.
    source: InvalidQuantity,
}

/// What pods can have of a node: its capacity less what is reserved, by resource name. Fails with the first amount that is
/// not a valid quantity.
pub fn allocatable(
    capacity: &BTreeMap<String, Quantity>,
    reserved: &BTreeMap<String, Quantity>,
) -> Result<BTreeMap<String, Quantity>, InvalidAmount> {
    let mut allocatable = BTreeMap::new();
    for (resource, whole) in capacity {
        let amount = amount("capacity", resource, whole)?;
        let part = reserved.get(resource).map(|part| self::amount("reserved", resource, part)).transpose()?;
        let rest = amount.minus(part.unwrap_or_default());
        allocatable.insert(resource.clone(), Quantity(rest.written_like(&whole.0)));
    }
    Ok(allocatable)
}

fn amount(list: &'static str, resource: &str, quantity: &Quantity) -> Result<Exact, InvalidAmount> {
    let text = &quantity.0;
    let read = Exact::parse(text).ok().filter(|amount| !amount.is_negative());
    read.ok_or_else(|| InvalidAmount {
        list,
        resource: resource.to_owned(),
        source: InvalidQuantity { text: text.clone() },
    })
}
