//! Every way in which the API server refuses, delays or loses a write, provoked on a real one: the form of the error,
//! its [`Class`], how the write functions handle it, and how many requests that costs. No operator runs.
//!
//! One test goes through all cases, because the table that it prints (`--nocapture`) is read as a whole; wrong rows are
//! collected, and fail it at the end. Finally the API server's audit log is compared with the requests that the write
//! functions reported to their observer.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

mod bench;
mod creations;
mod deletions;
mod denials;
mod faults;
mod kinds;
mod partial;
mod quotas;
mod refused;
mod too_large;
mod undecodable;

use conflict_retry::{Class, Verb};

use crate::bench::{AGENT, Bench, PATIENCE, Table};
use crate::creations::{created_once, ensured};
use crate::deletions::deletions;
use crate::denials::denials;
use crate::faults::{
    evictions, expired, frozen, full, killed, lost, restarted, throttled, unavailable, webhooks,
};
use crate::quotas::quota_races;
use crate::refused::{
    field_managers, invalid, json_patches, missing_and_existing, no_rights, not_served, other_uids,
    stale_versions,
};
use crate::too_large::too_large;
use crate::undecodable::undecodable;

/// Compares the API server's audit log with the requests reported to the observer, in order.
async fn check_against_the_audit_log(bench: &Bench, table: &mut Table) {
    let reported: Vec<(&str, bool)> = table
        .counts
        .all
        .lock()
        .unwrap()
        .iter()
        // An unauthenticated request is logged at a stage that the audit policy omits.
        .filter(|(_, failed)| *failed != Some(Class::Unauthorized.label()))
        .map(|(verb, failed)| {
            let verb = match verb {
                Verb::Get => "get",
                Verb::Put => "update",
                Verb::JsonPatch | Verb::MergePatch | Verb::Apply => "patch",
                Verb::Create | Verb::Evict => "create",
                Verb::Delete => "delete",
                other => unreachable!("{other} is not in this test"),
            };
            (verb, failed.is_none())
        })
        .collect();
    let audit = bench.cluster.audit_log().unwrap();
    let same = audit.wait_for(0, PATIENCE, "the log agrees", |events| {
        let ours = events.iter().filter(|event| event.user_agent == AGENT);
        let logged: Vec<_> = ours.map(|event| (event.verb.as_str(), event.succeeded())).collect();
        (logged == reported).then_some(())
    });
    if same.await.is_ok() {
        table.lines.push(format!("the audit log agrees about all {} requests", reported.len()));
        return;
    }
    let events = audit.read_all().unwrap();
    let ours = events.iter().filter(|event| event.user_agent == AGENT);
    let logged: Vec<_> = ours.map(|event| (event.verb.as_str(), event.succeeded())).collect();
    let at = logged.iter().zip(&reported).position(|(a, b)| a != b);
    table.wrong(&format!("{} logged, {} reported, first difference at {at:?}", logged.len(), reported.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_has_its_class_and_every_write_its_outcome() {
    let bench = &Bench::start().await;
    let table = &mut Table::new();
    stale_versions(bench, table).await;
    field_managers(bench, table).await;
    other_uids(bench, table).await;
    missing_and_existing(bench, table).await;
    json_patches(bench, table).await;
    invalid(bench, table).await;
    not_served(bench, table).await;
    too_large(bench, table).await;
    no_rights(bench, table).await;
    throttled(bench, table).await;
    evictions(bench, table).await;
    deletions(bench, table).await;
    expired(bench, table).await;
    unavailable(bench, table).await;
    webhooks(bench, table).await;
    denials(bench, table).await;
    quota_races(bench, table).await;
    full(bench, table).await;
    check_against_the_audit_log(bench, table).await;
    undecodable(bench, table).await;
    lost(bench, table).await;
    ensured(bench, table).await;
    created_once(bench, table).await;
    frozen(bench, table).await;
    restarted(bench, table).await;
    killed(bench, table).await;
    println!("{}", table.lines.join("\n"));
    assert!(table.wrong.is_empty(), "{} wrong:\n{}", table.wrong.len(), table.wrong.join("\n"));
}
