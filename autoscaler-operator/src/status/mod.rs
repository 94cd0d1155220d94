//! How decisions are reported: the Autoscaler's part of a pool's status, the status of an autoscaler, and events.
//! Nothing is written to an object here; `report` does that.

pub(crate) mod autoscaler_status;
pub(crate) mod events;
pub(crate) mod pod_events;
pub(crate) mod pool_status;
mod unreported;

pub(crate) use self::pod_events::Told;
pub(crate) use self::unreported::Unreported;
