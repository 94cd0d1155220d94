//! What holds for every field of the generated schemas.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

mod api_conventions;
mod ownership_is_total;
mod walk;
