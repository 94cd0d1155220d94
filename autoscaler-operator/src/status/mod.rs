//! How decisions are reported: the Autoscaler's part of a pool's status, the status of an autoscaler, and events. Pure:
//! `report` writes and publishes.

pub(crate) mod autoscaler_status;
pub(crate) mod events;
pub(crate) mod pod_events;
pub(crate) mod pool_status;
