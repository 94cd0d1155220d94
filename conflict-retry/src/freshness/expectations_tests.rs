//! What is pending, what is stale and what is forgotten.

use super::*;

const NOW: Duration = Duration::ZERO;

fn a() -> Key {
    (None, "a".to_owned())
}

fn floor(version: &str) -> Version {
    Version::parse(version).unwrap()
}

#[test]
fn an_older_copy_is_stale_and_the_written_one_is_fresh() {
    let mut ledger = Ledger::default();
    ledger.record(a(), Some("u"), floor("10"), ChangeKind::Updated, NOW);
    assert!(ledger.is_stale(&a(), Some("u"), Some("9")));
    assert!(!ledger.is_stale(&a(), Some("u"), Some("10")));
    assert!(!ledger.is_stale(&(None, "b".to_owned()), Some("v"), Some("1")));
}

#[test]
fn any_later_event_of_the_kind_settles_a_write() {
    let mut ledger = Ledger::default();
    ledger.record(a(), Some("u"), floor("10"), ChangeKind::Created, NOW);
    ledger.applied(&(None, "b".to_owned()), Some("v"), Some("9"), NOW);
    assert_eq!(ledger.pending().len(), 1);
    ledger.applied(&(None, "b".to_owned()), Some("v"), Some("11"), NOW);
    assert!(ledger.pending().is_empty());
}

#[test]
fn an_event_faster_than_the_answer_leaves_nothing_behind() {
    let mut ledger = Ledger::default();
    ledger.applied(&a(), Some("u"), Some("10"), NOW);
    ledger.record(a(), Some("u"), floor("10"), ChangeKind::Created, NOW);
    assert!(ledger.pending().is_empty());
    ledger.announce(a(), "u", NOW);
    ledger.deleted(&a(), Some("u"), Some("12"), NOW);
    assert!(ledger.pending().is_empty());
}

#[test]
fn a_deleted_object_in_the_cache_is_stale_and_its_successor_is_not() {
    let mut ledger = Ledger::default();
    ledger.announce(a(), "u", NOW);
    assert!(ledger.is_stale(&a(), Some("u"), Some("9")));
    assert!(!ledger.is_stale(&a(), Some("v"), Some("12")));
    ledger.applied(&a(), Some("v"), Some("12"), NOW);
    assert!(ledger.pending().is_empty());
}

#[test]
fn only_a_list_that_began_after_the_write_settles_it() {
    let mut ledger = Ledger::default();
    ledger.list_began();
    ledger.announce(a(), "u", NOW);
    ledger.list_ended(NOW);
    assert_eq!(ledger.pending().len(), 1, "the list may have been read before the deletion");
    ledger.list_began();
    assert_eq!(ledger.pending().len(), 1, "the list has not been taken in yet");
    ledger.list_ended(NOW);
    assert!(ledger.pending().is_empty());
}

#[test]
fn versions_in_a_list_count_only_when_it_is_whole() {
    let mut ledger = Ledger::default();
    ledger.list_began();
    ledger.record(a(), Some("u"), floor("10"), ChangeKind::Created, NOW);
    ledger.listed(Some("12"));
    assert_eq!(ledger.pending().len(), 1);
    ledger.list_ended(NOW);
    assert!(ledger.pending().is_empty());
}

#[test]
fn a_later_write_raises_the_floor_and_an_earlier_answer_does_not_lower_it() {
    let mut ledger = Ledger::default();
    ledger.record(a(), Some("u"), floor("20"), ChangeKind::Updated, NOW);
    ledger.record(a(), Some("u"), floor("10"), ChangeKind::Updated, NOW);
    assert!(ledger.is_stale(&a(), Some("u"), Some("15")));
}

#[test]
fn a_write_the_watch_never_brings_is_forgotten_after_five_minutes() {
    let mut ledger = Ledger::default();
    ledger.record(a(), Some("u"), floor("10"), ChangeKind::Created, NOW);
    assert!(ledger.expire(EXPIRY.saturating_sub(Duration::from_secs(1))).is_empty());
    assert_eq!(ledger.expire(EXPIRY).len(), 1);
    assert!(ledger.pending().is_empty());
}

#[test]
fn a_copy_taken_before_the_watch_brought_the_write_is_still_stale() {
    let mut ledger = Ledger::default();
    ledger.record(a(), Some("u"), floor("10"), ChangeKind::Updated, NOW);
    ledger.applied(&a(), Some("u"), Some("10"), NOW);
    assert!(ledger.pending().is_empty());
    assert!(ledger.is_stale(&a(), Some("u"), Some("9")));
    assert!(!ledger.is_stale(&a(), Some("u"), Some("10")));
    assert!(ledger.expire(LINGER).is_empty());
    assert!(ledger.writes.is_empty());
}

#[test]
fn memory_is_bounded() {
    let mut ledger = Ledger::default();
    for n in 0..MOST + 10 {
        let now = Duration::from_millis(u64::try_from(n).unwrap());
        ledger.record((None, format!("n{n}")), None, floor("10"), ChangeKind::Created, now);
    }
    assert_eq!(ledger.writes.len(), MOST);
    assert!(!ledger.writes.contains_key(&(None, "n0".to_owned())));
}

#[test]
fn a_deletion_that_failed_leaves_the_floor_of_an_earlier_write() {
    let mut ledger = Ledger::default();
    ledger.record(a(), Some("u"), floor("10"), ChangeKind::Updated, NOW);
    ledger.announce(a(), "u", NOW);
    assert_eq!(ledger.pending()[0].change, ChangeKind::Deleted);
    assert!(ledger.is_stale(&a(), Some("u"), Some("10")));
    ledger.answered(&a(), "u", false);
    assert_eq!(ledger.pending()[0].change, ChangeKind::Updated);
    assert!(ledger.is_stale(&a(), Some("u"), Some("9")));
    assert!(!ledger.is_stale(&a(), Some("u"), Some("10")));
}

#[test]
fn an_answer_that_is_late_does_not_hide_a_deletion() {
    let mut ledger = Ledger::default();
    ledger.announce(a(), "u", NOW);
    ledger.answered(&a(), "u", true);
    ledger.record(a(), Some("u"), floor("10"), ChangeKind::Updated, NOW);
    assert!(ledger.is_stale(&a(), Some("u"), Some("10")));
    assert_eq!(ledger.pending().len(), 1);
    assert_eq!(ledger.pending()[0].change, ChangeKind::Deleted);
}

#[test]
fn of_two_deletions_one_that_fails_does_not_take_the_other_back() {
    let mut ledger = Ledger::default();
    ledger.announce(a(), "u", NOW);
    ledger.announce(a(), "u", NOW);
    ledger.answered(&a(), "u", false);
    assert!(ledger.is_stale(&a(), Some("u"), Some("9")), "the other one has no answer yet");
    ledger.answered(&a(), "u", true);
    assert!(ledger.is_stale(&a(), Some("u"), Some("9")));

    ledger.announce(a(), "u", NOW);
    ledger.answered(&a(), "u", false);
    assert!(ledger.is_stale(&a(), Some("u"), Some("9")), "the earlier one was acknowledged");
}

#[test]
fn an_answer_about_a_namesake_changes_nothing() {
    let mut ledger = Ledger::default();
    ledger.announce(a(), "u", NOW);
    ledger.answered(&a(), "v", false);
    assert!(ledger.is_stale(&a(), Some("u"), Some("9")));
}

#[test]
fn a_deletion_that_the_watch_brought_before_its_answer_was_lost_still_counts() {
    let mut ledger = Ledger::default();
    ledger.announce(a(), "u", NOW);
    ledger.deleted(&a(), Some("u"), Some("12"), NOW);
    ledger.answered(&a(), "u", false);
    assert!(ledger.pending().is_empty());
    assert!(ledger.is_stale(&a(), Some("u"), Some("9")), "somebody may hold a copy from just before");
}
