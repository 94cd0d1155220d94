//! A live list, for decisions that require more than a cache. Each object is decoded separately, as in a cache.

use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::watch::{self, Decoded, Unreadable};

/// The result of a live list.
#[derive(Clone, Debug)]
pub struct Listed<K> {
    /// The objects that can be read.
    pub items: Vec<K>,
    /// The objects that cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// Lists live, and decodes each object separately. There is no timeout.
pub async fn list<K>(api: &Api<K>, params: &ListParams) -> Result<Listed<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
{
    list_as(api, params).await
}

/// The same, with each object decoded as a `W`, which may have fewer fields: the others take no memory.
pub async fn list_as<K, W>(api: &Api<K>, params: &ListParams) -> Result<Listed<W>, kube::Error>
where
    K: Resource + Clone,
    W: DeserializeOwned,
{
    let mut listed = Listed { items: Vec::new(), unreadable: Vec::new() };
    for object in watch::list(api, params).await? {
        match object {
            Decoded::Read(object) => listed.items.push(object),
            Decoded::Unreadable(unreadable) => listed.unreadable.push(unreadable),
        }
    }
    Ok(listed)
}
