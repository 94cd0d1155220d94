//! A live list, for decisions that no cache is good enough for. Each object is read for itself, as a cache does it.

use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::watch::{self, Decoded, Unreadable};

/// What a live list brought.
#[derive(Clone, Debug)]
pub struct Listed<K> {
    /// What can be read.
    pub items: Vec<K>,
    /// What cannot.
    pub unreadable: Vec<Unreadable>,
}

/// Lists live, and reads each object for itself. It takes as long as the API server likes.
pub async fn list<K>(api: &Api<K>, params: &ListParams) -> Result<Listed<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
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
