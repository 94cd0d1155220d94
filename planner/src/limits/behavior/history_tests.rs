//! Tests of the remembered history; shortening it never allows more.

use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn entries(entries: &[(i32, i64)]) -> Vec<Recommendation> {
    entries.iter().map(|&(replicas, second)| Recommendation { replicas, time: Time(at(second)) }).collect()
}

fn numbers(all: &[Recommendation], window: i32, now: i64) -> Vec<i32> {
    within(all, window, at(now)).map(|(number, _)| number).collect()
}

#[test]
fn a_number_is_remembered_when_it_changes_and_not_while_it_stays() {
    let none = recommended(&[], 3, 3, 60, at(0));
    assert_eq!(none, []);
    let first = recommended(&none, 3, 5, 60, at(10));
    assert_eq!(first, entries(&[(3, 10), (5, 10)]), "what there was before counts from its end");
    assert_eq!(recommended(&first, 3, 5, 60, at(1000)), first, "time alone changes nothing");
    let second = recommended(&first, 3, 4, 60, at(40));
    assert_eq!(second, entries(&[(3, 10), (5, 10), (4, 40)]));
    assert_eq!(recommended(&second, 3, 6, 60, at(70)), entries(&[(5, 10), (4, 40), (6, 70)]), "3 has left");
    assert_eq!(recommended(&second, 3, 6, 0, at(70)), [], "without a window nothing is remembered");
}

#[test]
fn a_number_leaves_the_window_when_the_next_one_is_as_old_as_the_window() {
    let all = entries(&[(3, 10), (5, 10), (4, 40)]);
    for (now, counting) in
        [(40, &[3, 5, 4][..]), (69, &[3, 5, 4]), (70, &[5, 4]), (99, &[5, 4]), (100, &[4]), (9999, &[4])]
    {
        assert_eq!(numbers(&all, 60, now), counting, "{now}");
    }
}

#[test]
fn changes_are_remembered_for_the_longest_period_and_dropped_only_with_a_new_one() {
    let event = |change, second| ScaleEvent { change, time: Time(at(second)) };
    let first = changed(&[], 2, 60, at(0));
    assert_eq!(first, [event(2, 0)]);
    assert_eq!(changed(&first, 0, 60, at(1000)), first);
    assert_eq!(changed(&first, 2, 60, at(0)), [event(4, 0)], "two changes of one second are both counted");
    assert_eq!(changed(&first, -1, 60, at(59)), [event(2, 0), event(-1, 59)]);
    assert_eq!(changed(&first, -1, 60, at(60)), [event(-1, 60)]);
    assert_eq!(changed(&first, 1, 0, at(1)), []);
    let half = at(0).checked_add(k8s_openapi::jiff::SignedDuration::from_millis(500)).unwrap();
    assert_eq!(changed(&[], 1, 60, half), [event(1, 0)], "as the API keeps it");
}

#[test]
fn a_list_of_changes_never_grows_too_long() {
    let mut all = Vec::new();
    for second in 0..400 {
        all = changed(&all, 1, 3600, at(second));
    }
    assert_eq!(all.len(), MOST_ENTRIES);
    assert_eq!(all.iter().map(|event| event.change).sum::<i32>(), 400, "none is forgotten");
}

/// Numbers with the time between one and the next; the second variant swings in ever smaller steps.
fn history() -> impl Strategy<Value = Vec<(i32, i64)>> {
    let any = prop::collection::vec((0_i32..9, 1_i64..9), 1..60);
    let swing = (3_usize..40).prop_map(|count| {
        let step = |at: usize| {
            let off = i32::try_from(count - at).unwrap();
            if at.is_multiple_of(2) { 100 + off } else { 100 - off }
        };
        (0..count).map(|at| (step(at), 1)).collect()
    });
    prop_oneof![any, swing].prop_map(|steps: Vec<(i32, i64)>| {
        let mut second = 0;
        let placed = steps.into_iter().map(|(number, gap)| {
            second += gap;
            (number, second)
        });
        placed.collect()
    })
}

proptest! {
    #[test]
    fn a_shortened_history_never_allows_more(history in history(), limit in 3_usize..8, window in 1_i32..60) {
        let exact = entries(&history);
        let short = coarsened(exact.clone(), limit);
        prop_assert!(short.len() <= limit);
        prop_assert!(short.windows(2).all(|pair| pair[0].time <= pair[1].time));
        let last = history.last().unwrap().1;
        for now in last..=last + i64::from(window) {
            let (exact, short) = (numbers(&exact, window, now), numbers(&short, window, now));
            prop_assert!(short.iter().min() <= exact.iter().min(), "{exact:?} {short:?} at {now}");
            prop_assert!(short.iter().max() >= exact.iter().max(), "{exact:?} {short:?} at {now}");
            prop_assert_eq!(short.last(), exact.last());
        }
    }

    #[test]
    fn a_history_that_is_kept_step_by_step_holds_what_counts(history in history(), window in 1_i32..60) {
        let mut kept = Vec::new();
        let mut exact: Vec<(i32, i64)> = Vec::new();
        for &(number, second) in &history {
            if exact.is_empty() {
                exact.push((50, second));
            }
            if exact.last().unwrap().0 != number {
                exact.push((number, second));
            }
            kept = recommended(&kept, 50, number, window, at(second));
            let extremes = |all: &[Recommendation]| {
                let numbers = numbers(all, window, second);
                (numbers.iter().min().copied(), numbers.iter().max().copied())
            };
            let expected = if exact.len() == 1 { (None, None) } else { extremes(&entries(&exact)) };
            prop_assert_eq!(extremes(&kept), expected);
        }
    }
}
