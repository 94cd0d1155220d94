//! What the process remembers between passes. None of it is needed after a restart: it saves requests, makes a step
//! wait a little longer, or is about pools that no new process visits.

pub(crate) mod drains;
pub(crate) mod gone_pools;
pub(crate) mod list_budget;
pub(crate) mod orphans;
pub(crate) mod places;
pub(crate) mod protections;
pub(crate) mod tracker;
pub(crate) mod unread_pools;
