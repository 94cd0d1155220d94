//! How many calls a second something gets: the token bucket of `conflict-retry`, for what is no API server.

pub use conflict_retry::protect::{InvalidRate, Rate, RateLimiter};
