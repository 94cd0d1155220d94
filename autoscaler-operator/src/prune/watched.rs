//! What caches find the planner's own types by.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Resource, runtime::reflector::Lookup};

use crate::plan::{claim_info::ClaimInfo, pod_info::PodInfo, volume_info::VolumeInfo};

/// Says that the API server knows `$kept` as `$whole`, and under which key. A version would only cost room: nothing is
/// written to these objects.
macro_rules! found {
    ($kept:ty as $whole:ty, $key:expr, $uid:expr) => {
        impl Lookup for $kept {
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
                let key: fn(&Self) -> (&str, &str) = $key;
                Some(Cow::Borrowed(key(self).1))
            }

            fn namespace(&self) -> Option<Cow<'_, str>> {
                let key: fn(&Self) -> (&str, &str) = $key;
                Some(Cow::Borrowed(key(self).0)).filter(|namespace| !namespace.is_empty())
            }

            fn resource_version(&self) -> Option<Cow<'_, str>> {
                None
            }

            fn uid(&self) -> Option<Cow<'_, str>> {
                let uid: fn(&Self) -> &str = $uid;
                Some(Cow::Borrowed(uid(self)))
            }
        }
    };
}

found!(PodInfo as Pod, PodInfo::key, PodInfo::uid);
found!(VolumeInfo as PersistentVolume, |volume| ("", &volume.name), |volume| &volume.uid);
found!(ClaimInfo as PersistentVolumeClaim, ClaimInfo::key, |claim| &claim.uid);
