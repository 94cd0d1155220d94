//! What holds for any budgets, also around the nights in which clocks change.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::prelude::*;

use super::*;

/// Instants near which clocks are put forward or back in one of [`ZONES`], or a day is skipped.
const CHANGES: [&str; 8] = [
    "2026-03-29T01:00:00Z",
    "2026-10-25T01:00:00Z",
    "2026-03-08T07:00:00Z",
    "2026-11-01T06:00:00Z",
    "2026-04-04T15:00:00Z",
    "2026-10-03T15:30:00Z",
    "2011-12-30T10:00:00Z",
    "2010-09-26T11:00:00Z",
];
const ZONES: [&str; 4] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"];
const SCHEDULES: [&str; 8] = [
    "0 2 * * *",
    "30 1 * * *",
    "15 2 * * 0",
    "0 22 * * 1-5",
    "*/40 * * * *",
    "0 0 * * *",
    "0 9 30 12 *",
    "0 25 * * *",
];

fn reason() -> impl Strategy<Value = DisruptionReason> {
    prop::sample::select(DisruptionReason::ALL.to_vec())
}

fn budget() -> impl Strategy<Value = DisruptionBudget> {
    let nodes = prop_oneof![
        6 => (0..6_i32).prop_map(IntOrString::Int),
        6 => (0..=100_i32).prop_map(|percent| IntOrString::String(format!("{percent}%"))),
        1 => Just(IntOrString::String("some".to_owned())),
    ];
    let windows =
        (prop::sample::select(SCHEDULES.to_vec()), prop::sample::select(ZONES.to_vec()), 600..100_000_i32);
    let effect = prop::sample::select(vec![DisruptionEffect::Limit, DisruptionEffect::AllowOnly]);
    (nodes, prop::collection::btree_set(reason(), 0..3), effect, prop::option::weighted(0.8, windows))
        .prop_map(|(nodes, reasons, effect, windows)| DisruptionBudget {
            nodes,
            reasons: reasons.into_iter().collect(),
            effect,
            schedule: windows.map(|(schedule, _, _)| schedule.to_owned()),
            time_zone: windows.map(|(_, zone, _)| zone.to_owned()),
            duration_seconds: windows.map(|(_, _, seconds)| seconds),
        })
}

/// Within two days of a change of clocks.
fn instant() -> impl Strategy<Value = Timestamp> {
    (prop::sample::select(CHANGES.to_vec()), -172_800..172_800_i64).prop_map(|(change, seconds)| {
        let change: Timestamp = change.parse().unwrap();
        Timestamp::from_second(change.as_second() + seconds).unwrap()
    })
}

/// Budgets, nodes wanted, reasons of nodes being disrupted, and the time.
fn case() -> impl Strategy<Value = (Vec<DisruptionBudget>, usize, Vec<DisruptionReason>, Timestamp)> {
    (prop::collection::vec(budget(), 0..5), 0..40_usize, prop::collection::vec(reason(), 0..6), instant())
}

fn open(
    (budgets, wanted, disrupted, now): &(Vec<DisruptionBudget>, usize, Vec<DisruptionReason>, Timestamp),
) -> Account {
    Account::new(budgets, *wanted, disrupted.iter().copied(), *now)
}

fn rooms(account: &Account) -> [usize; 4] {
    DisruptionReason::ALL.map(|reason| account.room(reason))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn never_more_than_the_least_limit(case in case(), asked in prop::collection::vec(reason(), 0..60)) {
        let mut account = open(&case);
        let (budgets, wanted, mut disrupted, now) = case;
        for reason in asked {
            let room = account.room(reason);
            let taken = account.take(reason);
            prop_assert_eq!(taken.is_ok(), room > 0);
            if taken.is_ok() {
                disrupted.push(reason);
                prop_assert!(room == usize::MAX || account.room(reason) == room - 1);
                for limit in budgets.iter().filter(|it| it.effect == DisruptionEffect::Limit && it.schedule.is_none()) {
                    let counted = disrupted.iter().filter(|reason| limit.concerns(**reason)).count();
                    let bound = limit.nodes_of(wanted).unwrap_or(0);
                    prop_assert!(!limit.concerns(reason) || counted <= bound, "{:?}: {} of {}", limit, counted, bound);
                }
            }
        }
        // An account that is opened with what was taken says the same.
        let again = Account::new(&budgets, wanted, disrupted, now);
        prop_assert_eq!(rooms(&again), rooms(&account));
    }

    #[test]
    fn one_more_limit_never_allows_more(case in case(), limit in budget(), place in 0..5_usize) {
        let before = rooms(&open(&case));
        let (mut budgets, wanted, disrupted, now) = case;
        budgets.insert(place.min(budgets.len()), DisruptionBudget { effect: DisruptionEffect::Limit, ..limit });
        let after = rooms(&open(&(budgets, wanted, disrupted, now)));
        prop_assert!(after.iter().zip(before).all(|(after, before)| *after <= before), "{:?} {:?}", before, after);
    }

    #[test]
    fn a_window_that_allows_only_adds_to_others_and_else_takes_away(case in case(), window in budget()) {
        let before = open(&case);
        let (mut budgets, wanted, disrupted, now) = case;
        let window = DisruptionBudget { effect: DisruptionEffect::AllowOnly, ..window };
        budgets.push(window.clone());
        let after = open(&(budgets.clone(), wanted, disrupted, now));
        for reason in DisruptionReason::ALL {
            let has_others = budgets[..budgets.len() - 1]
                .iter()
                .any(|it| it.effect == DisruptionEffect::AllowOnly && it.concerns(reason));
            let (before, after) = (before.room(reason), after.room(reason));
            if !window.concerns(reason) {
                prop_assert_eq!(before, after);
            } else if has_others {
                prop_assert!(after >= before, "{:?}: {} {}", reason, before, after);
            } else {
                prop_assert!(after <= before, "{:?}: {} {}", reason, before, after);
            }
        }
    }

    #[test]
    fn nothing_changes_before_next(case in case(), part in 0..1000_i64) {
        let account = open(&case);
        let (budgets, wanted, disrupted, now) = case;
        let until = account.next().unwrap_or_else(|| Timestamp::from_second(now.as_second() + 40_000_000).unwrap());
        prop_assert!(until > now);
        let last = until.as_second() - 1;
        for between in [now.as_second() + (last - now.as_second()) * part / 999, last] {
            let between = Timestamp::from_second(between).unwrap();
            let later = open(&(budgets.clone(), wanted, disrupted.clone(), between));
            prop_assert_eq!(rooms(&later), rooms(&account), "{}", between);
            prop_assert_eq!(later.next(), account.next(), "{}", between);
        }
    }

    #[test]
    fn a_refused_node_is_told_why_in_few_words(case in case()) {
        let account = open(&case);
        for reason in DisruptionReason::ALL {
            let refusal = account.refusal(reason);
            prop_assert_eq!(refusal.is_some(), account.room(reason) == 0);
            let said = refusal.map(|refusal| refusal.to_string()).unwrap_or_default();
            prop_assert!(said.len() < 400 && !said.ends_with('.'), "{}", said);
        }
        let problems = account.problems();
        prop_assert!(problems.len() <= case.0.len() + DisruptionReason::ALL.len());
    }

    #[test]
    fn what_closed_windows_promise_comes(case in case()) {
        let account = open(&case);
        let (budgets, wanted, _, _) = case;
        for reason in DisruptionReason::ALL {
            if let Some(BudgetRefusal::Closed { begins: Some(begins), .. }) = account.refusal(reason) {
                let then = Account::new(&budgets, wanted, [], begins.timestamp());
                let refusal = then.refusal(reason);
                prop_assert!(!matches!(refusal, Some(BudgetRefusal::Closed { .. })), "{:?}", refusal);
            }
        }
    }
}
