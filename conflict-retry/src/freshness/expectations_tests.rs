//! What is pending, what is stale and what is forgotten.

use super::*;

const NOW: Duration = Duration::ZERO;

fn a() -> Key {
    (None, "a".to_owned())
}

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

#[test]
fn an_older_copy_is_stale_and_the_written_one_is_fresh() {
    let mut writes = OwnWrites::default();
    writes.record(a(), Some("u"), version("10"), ChangeKind::Updated, NOW);
    assert!(writes.is_stale(&a(), Some("u"), Some("9")));
    assert!(!writes.is_stale(&a(), Some("u"), Some("10")));
    assert!(!writes.is_stale(&(None, "b".to_owned()), Some("v"), Some("1")));
}

#[test]
fn any_later_event_of_the_kind_settles_a_write() {
    let mut writes = OwnWrites::default();
    writes.record(a(), Some("u"), version("10"), ChangeKind::Created, NOW);
    writes.applied(&(None, "b".to_owned()), Some("v"), Some("9"), NOW);
    assert_eq!(writes.pending().len(), 1);
    writes.applied(&(None, "b".to_owned()), Some("v"), Some("11"), NOW);
    assert!(writes.pending().is_empty());
}

#[test]
fn an_event_before_the_answer_leaves_nothing_pending() {
    let mut writes = OwnWrites::default();
    writes.applied(&a(), Some("u"), Some("10"), NOW);
    writes.record(a(), Some("u"), version("10"), ChangeKind::Created, NOW);
    assert!(writes.pending().is_empty());
    writes.announce(a(), "u", NOW);
    writes.deleted(&a(), Some("u"), Some("12"), NOW);
    assert!(writes.pending().is_empty());
}

#[test]
fn a_deleted_object_in_the_cache_is_stale_and_its_successor_is_not() {
    let mut writes = OwnWrites::default();
    writes.announce(a(), "u", NOW);
    assert!(writes.is_stale(&a(), Some("u"), Some("9")));
    assert!(!writes.is_stale(&a(), Some("v"), Some("12")));
    writes.applied(&a(), Some("v"), Some("12"), NOW);
    assert!(writes.pending().is_empty());
}

#[test]
fn only_a_list_that_began_after_the_write_settles_it() {
    let mut writes = OwnWrites::default();
    writes.list_began();
    writes.announce(a(), "u", NOW);
    writes.list_ended(NOW);
    assert_eq!(writes.pending().len(), 1, "the list may have been read before the deletion");
    writes.list_began();
    assert_eq!(writes.pending().len(), 1, "the list has not been taken in yet");
    writes.list_ended(NOW);
    assert!(writes.pending().is_empty());
}

#[test]
fn versions_in_a_list_count_only_when_it_is_complete() {
    let mut writes = OwnWrites::default();
    writes.list_began();
    writes.record(a(), Some("u"), version("10"), ChangeKind::Created, NOW);
    writes.listed(Some("12"));
    assert_eq!(writes.pending().len(), 1);
    writes.list_ended(NOW);
    assert!(writes.pending().is_empty());
}

#[test]
fn a_later_write_raises_the_expected_version_and_an_earlier_answer_does_not_lower_it() {
    let mut writes = OwnWrites::default();
    writes.record(a(), Some("u"), version("20"), ChangeKind::Updated, NOW);
    writes.record(a(), Some("u"), version("10"), ChangeKind::Updated, NOW);
    assert!(writes.is_stale(&a(), Some("u"), Some("15")));
}

#[test]
fn a_write_the_watch_never_brings_is_forgotten_after_five_minutes() {
    let mut writes = OwnWrites::default();
    writes.record(a(), Some("u"), version("10"), ChangeKind::Created, NOW);
    assert!(writes.expire(EXPIRY.saturating_sub(Duration::from_secs(1))).is_empty());
    assert_eq!(writes.expire(EXPIRY).len(), 1);
    assert!(writes.pending().is_empty());
}

#[test]
fn a_copy_taken_before_the_watch_brought_the_write_is_still_stale() {
    let mut writes = OwnWrites::default();
    writes.record(a(), Some("u"), version("10"), ChangeKind::Updated, NOW);
    writes.applied(&a(), Some("u"), Some("10"), NOW);
    assert!(writes.pending().is_empty());
    assert!(writes.is_stale(&a(), Some("u"), Some("9")));
    assert!(!writes.is_stale(&a(), Some("u"), Some("10")));
    assert!(writes.expire(LINGER).is_empty());
    assert!(writes.writes.is_empty());
}

#[test]
fn memory_is_bounded() {
    let mut writes = OwnWrites::default();
    for n in 0..MOST + 10 {
        let now = Duration::from_millis(u64::try_from(n).unwrap());
        writes.record((None, format!("n{n}")), None, version("10"), ChangeKind::Created, now);
    }
    assert_eq!(writes.writes.len(), MOST);
    assert!(!writes.writes.contains_key(&(None, "n0".to_owned())));
}

#[test]
fn a_failed_deletion_keeps_the_expectation_of_an_earlier_write() {
    let mut writes = OwnWrites::default();
    writes.record(a(), Some("u"), version("10"), ChangeKind::Updated, NOW);
    writes.announce(a(), "u", NOW);
    assert_eq!(writes.pending()[0].change, ChangeKind::Deleted);
    assert!(writes.is_stale(&a(), Some("u"), Some("10")));
    writes.answered(&a(), "u", false);
    assert_eq!(writes.pending()[0].change, ChangeKind::Updated);
    assert!(writes.is_stale(&a(), Some("u"), Some("9")));
    assert!(!writes.is_stale(&a(), Some("u"), Some("10")));
}

#[test]
fn an_answer_that_is_late_does_not_hide_a_deletion() {
    let mut writes = OwnWrites::default();
    writes.announce(a(), "u", NOW);
    writes.answered(&a(), "u", true);
    writes.record(a(), Some("u"), version("10"), ChangeKind::Updated, NOW);
    assert!(writes.is_stale(&a(), Some("u"), Some("10")));
    assert_eq!(writes.pending().len(), 1);
    assert_eq!(writes.pending()[0].change, ChangeKind::Deleted);
}

#[test]
fn of_two_deletions_a_failed_one_does_not_cancel_the_other() {
    let mut writes = OwnWrites::default();
    writes.announce(a(), "u", NOW);
    writes.announce(a(), "u", NOW);
    writes.answered(&a(), "u", false);
    assert!(writes.is_stale(&a(), Some("u"), Some("9")), "the other one has no answer yet");
    writes.answered(&a(), "u", true);
    assert!(writes.is_stale(&a(), Some("u"), Some("9")));

    writes.announce(a(), "u", NOW);
    writes.answered(&a(), "u", false);
    assert!(writes.is_stale(&a(), Some("u"), Some("9")), "the earlier one was acknowledged");
}

#[test]
fn an_answer_about_another_object_of_the_same_name_changes_nothing() {
    let mut writes = OwnWrites::default();
    writes.announce(a(), "u", NOW);
    writes.answered(&a(), "v", false);
    assert!(writes.is_stale(&a(), Some("u"), Some("9")));
}

#[test]
fn a_deletion_that_the_watch_brought_before_its_answer_was_lost_still_counts() {
    let mut writes = OwnWrites::default();
    writes.announce(a(), "u", NOW);
    writes.deleted(&a(), Some("u"), Some("12"), NOW);
    writes.answered(&a(), "u", false);
    assert!(writes.pending().is_empty());
    assert!(writes.is_stale(&a(), Some("u"), Some("9")), "a caller may still hold an older copy");
}
