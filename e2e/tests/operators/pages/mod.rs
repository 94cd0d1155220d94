//! Tables of the guides that a run gives: each row is played on a real API server with the operators, and the table is compared
//! with the one that is committed. The tables of deletions with other providers are in the tests of these.
//!
//! `TANDEM_WRITE_PAGES=1 cargo test -p e2e --test operators pages::` writes them instead.

mod deletion;
mod drain;
mod drain_rows;

/// These tests, as arguments of `cargo test -p e2e`.
const TESTS: &str = "--test operators pages::";
