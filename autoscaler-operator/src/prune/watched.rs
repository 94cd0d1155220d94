//! Objects that are watched as what they are kept as: the type of the API is left while an answer is read.

use std::borrow::Cow;

use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope,
    api::core::v1::{PersistentVolume, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;

use crate::plan::{pod_info::PodInfo, volume_info::VolumeInfo};

/// Says that the API server knows `$kept` as `$whole`.
macro_rules! watched {
    ($kept:ty as $whole:ty, $scope:ty) => {
        impl Resource for $kept {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$whole>::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                <$whole>::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                <$whole>::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                <$whole>::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                self.identity()
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                self.identity_mut()
            }
        }
    };
}

watched!(PodInfo as Pod, NamespaceResourceScope);
watched!(VolumeInfo as PersistentVolume, ClusterResourceScope);
