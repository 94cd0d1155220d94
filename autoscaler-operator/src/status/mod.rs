//! How decisions are reported: the Autoscaler's part of a pool's status, the status of an autoscaler, and events.
//! Nothing is written to an object here; `report` does that.

pub mod autoscaler_status;
pub mod events;
pub mod pod_events;
pub mod pool_status;
mod unreported;

pub use self::pod_events::Told;
pub use self::unreported::Unreported;
