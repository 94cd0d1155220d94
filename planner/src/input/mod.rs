//! The cluster as the caches hold it: objects, and what is read from each once for all passes.

pub(crate) mod addresses;
pub mod by_name;
pub mod claim_info;
pub mod last_template;
pub mod nodes;
pub mod observed;
pub mod pod_info;
pub mod pods;
pub mod promise;
pub mod selection;
pub mod transform;
pub mod unplanned;
pub mod volume_info;
