//! The cluster as the caches hold it: objects, and what is read from each once for all passes.

pub(crate) mod addresses;
pub(crate) mod by_name;
pub(crate) mod claim_info;
pub(crate) mod earlier_status;
pub(crate) mod last_template;
pub mod nodes;
pub(crate) mod observed;
pub(crate) mod pod_info;
pub mod pods;
pub(crate) mod promise;
pub(crate) mod selection;
pub mod transform;
pub mod unplanned;
pub(crate) mod volume_info;

pub use claim_info::ClaimInfo;
pub use observed::key;
pub use pod_info::PodInfo;
pub use selection::selects;
pub use volume_info::VolumeInfo;
