//! What the process remembers between passes: refused writes, decisions that no status shows yet, and events that were
//! published. A restart loses it; what has to survive one is in the status of pools.

pub(crate) mod event_deduplicator;
pub(crate) mod owed_nodes;
pub(crate) mod pending_status;
pub(crate) mod write_backoff;
