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

impl<K> Listed<K> {
    fn of(objects: Vec<Decoded<K>>) -> Self {
        let mut listed = Self { items: Vec::new(), unreadable: Vec::new() };
        for object in objects {
            match object {
                Decoded::Read(object) => listed.items.push(object),
                Decoded::Unreadable(unreadable) => listed.unreadable.push(unreadable),
            }
        }
        listed
    }
}

/// Lists live, and decodes each object separately. There is no timeout.
pub async fn list<K>(api: &Api<K>, params: &ListParams) -> Result<Listed<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
{
    list_as(api, params).await
}

/// The same, in pages, and of each object only what `keep` leaves: a list of thousands of objects takes the memory of what is kept
/// and of one page. All pages are of one moment; where the API server no longer has it, the error is its 410.
pub async fn list_kept<K>(
    api: &Api<K>,
    params: &ListParams,
    keep: fn(&mut K),
) -> Result<Listed<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
{
    Ok(Listed::of(watch::list_in_pages(api, params, keep).await?))
}

/// The same, with each object decoded as a `W`, which may have fewer fields: the others take no memory.
pub async fn list_as<K, W>(api: &Api<K>, params: &ListParams) -> Result<Listed<W>, kube::Error>
where
    K: Resource + Clone,
    W: DeserializeOwned,
{
    Ok(Listed::of(watch::list(api, params).await?))
}
