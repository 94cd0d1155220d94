//! The planner's own types as cache entries, found by the keys of the objects they were made from.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Resource;
use kube::runtime::reflector::{Lookup, Store};
use planner::input::{ClaimInfo, PodInfo, VolumeInfo};
use shared_runtime::reflect::Unreadable;

/// The part of an object that the planner reads, as a cache entry.
#[derive(Clone, Debug)]
pub(crate) struct Cached<T>(Arc<T>);

impl<T> Cached<T> {
    /// Wraps a conversion function so that it returns cache entries.
    pub(crate) fn as_made_by<W>(mut make: impl FnMut(W) -> T) -> impl FnMut(W) -> Self {
        move |whole| Self(Arc::new(make(whole)))
    }
}

/// All entries of a cache of the planner's own types.
pub(crate) fn state<T>(store: &Store<Cached<T>>) -> Vec<Arc<T>>
where
    Cached<T>: Lookup<DynamicType = ()> + Clone + 'static,
{
    store.state().iter().map(|cached| Arc::clone(&cached.0)).collect()
}

/// The cache entry of an unreadable pod: it runs on its node, and nothing shows that it could run elsewhere, so the
/// node stays. `None` for a pod without a node, which needs no node that could be planned.
pub(crate) fn stand_in(unreadable: &Unreadable) -> Option<Pod> {
    let node_name = unreadable.node_name.clone()?;
    let mut pod = Pod::default();
    pod.metadata.namespace.clone_from(&unreadable.namespace);
    pod.metadata.name = Some(unreadable.name.clone());
    pod.metadata.uid.clone_from(&unreadable.uid);
    pod.metadata.resource_version.clone_from(&unreadable.version);
    pod.spec.get_or_insert_default().node_name = Some(node_name);
    pod.status.get_or_insert_default().phase = Some("Running".to_owned());
    Some(pod)
}

/// Declares that the API server knows `$kept` as `$whole`, and under which key. A resourceVersion would only cost
/// memory: nothing is written to these objects.
macro_rules! found {
    ($kept:ty as $whole:ty, $key:expr, $uid:expr) => {
        impl Lookup for Cached<$kept> {
            type DynamicType = ();

            fn kind((): &()) -> Cow<'_, str> {
                <$whole as Resource>::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                <$whole as Resource>::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                <$whole as Resource>::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                <$whole as Resource>::plural(&())
            }

            fn name(&self) -> Option<Cow<'_, str>> {
                let key: fn(&$kept) -> (&str, &str) = $key;
                Some(Cow::Borrowed(key(&self.0).1))
            }

            fn namespace(&self) -> Option<Cow<'_, str>> {
                let key: fn(&$kept) -> (&str, &str) = $key;
                Some(Cow::Borrowed(key(&self.0).0)).filter(|namespace| !namespace.is_empty())
            }

            fn resource_version(&self) -> Option<Cow<'_, str>> {
                None
            }

            fn uid(&self) -> Option<Cow<'_, str>> {
                let uid: fn(&$kept) -> &str = $uid;
                Some(Cow::Borrowed(uid(&self.0)))
            }
        }
    };
}

found!(PodInfo as Pod, PodInfo::key, PodInfo::uid);
found!(VolumeInfo as PersistentVolume, |volume| ("", &volume.name), |volume| &volume.uid);
found!(ClaimInfo as PersistentVolumeClaim, ClaimInfo::key, |claim| &claim.uid);
