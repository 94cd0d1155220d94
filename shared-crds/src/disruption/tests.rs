//! Tests of what budgets allow together, of what they say, and of their windows across daylight saving.

use serde_json::{Value, json};

use super::*;
use crate::schedule::conversions;
use crate::v1alpha1::DisruptionReason::{Expiry, Repair, Rollout, ScaleDown};

/// A quiet day: noon in UTC, 13:00 in Berlin, a Thursday.
const NOON: &str = "2026-01-15T12:00:00Z";

fn budgets(json: Value) -> Vec<DisruptionBudget> {
    serde_json::from_value(json).unwrap()
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn account(json: Value, wanted: usize, disrupted: &[DisruptionReason], now: &str) -> Account {
    Account::new(&budgets(json), wanted, disrupted.iter().copied(), at(now))
}

fn rooms(account: &Account) -> [usize; 4] {
    DisruptionReason::ALL.map(|reason| account.room(reason))
}

const ANY: usize = usize::MAX;

#[test]
fn nodes_that_are_added_count_like_those_that_were_there() {
    let limits = json!([{ "nodes": 5, "reasons": [] }, { "nodes": 2, "reasons": ["Repair"] }]);
    for count in [0, 1, 5, 9] {
        let one_by_one = account(limits.clone(), 10, &vec![Rollout; count], NOON);
        let at_once = account(limits.clone(), 10, &[], NOON).with(Rollout, count);
        assert_eq!(rooms(&at_once), rooms(&one_by_one), "{count}");
    }
}

#[test]
fn a_node_whose_reason_is_not_known_counts_once_in_every_budget() {
    let limit = |nodes: i32, reasons: Value| json!({ "nodes": nodes, "reasons": reasons });
    let limits = json!([limit(5, json!([])), limit(2, json!(["ScaleDown"])), limit(3, json!(["Repair"]))]);
    let known = account(limits, 10, &[ScaleDown], NOON);
    let of = |account: &Account| [ScaleDown, Rollout, Repair, Expiry].map(|reason| account.room(reason));
    assert_eq!(of(&known), [1, 4, 3, 4]);
    assert_eq!(of(&known.with_unknown(ScaleDown, 1)), [1, 4, 2, 4]);
}

#[test]
fn what_must_not_wait_for_ever_waits_for_no_window_and_goes_one_at_a_time_at_least() {
    let limit = |nodes: Value| json!([{ "nodes": nodes }]);
    let night =
        json!({ "effect": "AllowOnly", "nodes": 1, "schedule": "0 22 * * *", "durationSeconds": 3600 });
    let day = json!({ "effect": "Limit", "nodes": 0, "schedule": "0 0 * * *", "durationSeconds": 80_000 });
    let unreadable = json!({ "effect": "Limit", "nodes": 5, "schedule": "0 0 * * *" });
    for (what, budgets, disrupted, goes, said) in [
        ("no budget", json!([]), 100, true, ""),
        ("a limit that has room", limit(json!(2)), 1, true, ""),
        ("one that is used up", limit(json!(2)), 2, false, "allows 2 nodes at a time"),
        ("one of nothing", limit(json!(0)), 0, true, ""),
        ("one of nothing, and one goes", limit(json!("0%")), 1, false, "it allows 0 nodes"),
        ("windows that are closed", json!([night]), 7, true, ""),
        ("a window in which none goes", json!([day]), 7, true, ""),
        ("one that cannot be followed", json!([unreadable]), 0, true, ""),
        ("one that cannot be followed, and one goes", json!([unreadable]), 1, false, "cannot be followed"),
        ("one for something else", json!([{ "nodes": 0, "reasons": ["Rollout"] }]), 7, true, ""),
        ("the least of two", json!([{ "nodes": 3 }, { "nodes": 1 }]), 3, false, "budgets[1]"),
    ] {
        let mut account = account(budgets, 10, &vec![Expiry; disrupted], NOON);
        let refusal = account.urgent_refusal(Expiry).map(|refusal| refusal.to_string());
        assert_eq!(refusal.is_none(), goes, "{what}: {refusal:?}");
        assert!(refusal.unwrap_or_default().contains(said), "{what}");
        assert_eq!(account.take_urgent(Expiry).is_ok(), goes, "{what}");
    }
    let mut account = account(limit(json!(0)), 10, &[], NOON);
    assert!(account.take_urgent(Expiry).is_ok() && account.take_urgent(Expiry).is_err(), "one at a time");
}

#[test]
fn budgets_bound_what_they_are_for_and_nothing_else() {
    // Open all day; opens at 22:00; closed at noon.
    let day = |effect: &str, nodes: Value, reasons: &[&str]| json!({ "effect": effect, "nodes": nodes, "reasons": reasons, "schedule": "0 0 * * *", "durationSeconds": 80_000 });
    let night = |effect: &str, nodes: Value, reasons: &[&str]| json!({ "effect": effect, "nodes": nodes, "reasons": reasons, "schedule": "0 22 * * *", "durationSeconds": 3600 });
    let limit = |nodes: Value, reasons: &[&str]| json!({ "nodes": nodes, "reasons": reasons });
    // Rooms in the order ScaleDown, Rollout, Repair, Expiry.
    for (what, budgets, disrupted, expected) in [
        ("no budget bounds nothing", json!([]), &[Repair][..], [ANY; 4]),
        ("a limit of all", json!([limit(json!(3), &[])]), &[Repair, Rollout], [1; 4]),
        ("a percentage is rounded up", json!([limit(json!("11%"), &[])]), &[], [2; 4]),
        (
            "the reasons of a budget share its number",
            json!([limit(json!(3), &["Rollout", "Expiry"])]),
            &[Rollout, Repair],
            [ANY, 2, ANY, 2],
        ),
        (
            "of limits the least holds",
            json!([limit(json!(3), &[]), limit(json!("10%"), &["Repair"])]),
            &[],
            [3, 3, 1, 3],
        ),
        ("more are disrupted than allowed", json!([limit(json!(1), &[])]), &[Repair, Repair], [0; 4]),
        ("a limit in its window", json!([day("Limit", json!(2), &[])]), &[], [2; 4]),
        ("a limit outside its window", json!([night("Limit", json!(0), &[])]), &[], [ANY; 4]),
        ("allowed in the window", json!([day("AllowOnly", json!(2), &["Rollout"])]), &[], [ANY, 2, ANY, ANY]),
        (
            "outside it, not at all",
            json!([night("AllowOnly", json!(2), &["Rollout"])]),
            &[],
            [ANY, 0, ANY, ANY],
        ),
        (
            "windows that allow add up",
            json!([night("AllowOnly", json!(9), &["Rollout"]), day("AllowOnly", json!(2), &["Rollout"])]),
            &[],
            [ANY, 2, ANY, ANY],
        ),
        (
            "of open windows the largest number counts",
            json!([day("AllowOnly", json!(1), &[]), day("AllowOnly", json!(4), &["Repair"])]),
            &[Repair],
            [0, 0, 3, 0],
        ),
        (
            "limits hold in open windows too",
            json!([day("AllowOnly", json!(4), &[]), limit(json!(1), &["Repair"])]),
            &[],
            [4, 4, 1, 4],
        ),
        (
            "a limit that cannot be followed holds its reasons",
            json!([{ "nodes": 5, "reasons": ["Expiry"], "schedule": "every day at 9", "durationSeconds": 60 }]),
            &[],
            [ANY, ANY, ANY, 0],
        ),
        (
            "a window that cannot be followed does not open",
            json!([
                day("AllowOnly", json!(1), &["Repair"]),
                day("AllowOnly", json!("many"), &["Repair", "Rollout"])
            ]),
            &[],
            [ANY, 0, 1, ANY],
        ),
    ] {
        assert_eq!(rooms(&account(budgets, 10, disrupted, NOON)), expected, "{what}");
    }
}

#[test]
fn one_pass_draws_on_one_account_in_the_order_of_the_caller() {
    let all = json!([{ "nodes": 3 }, { "nodes": 1, "reasons": ["ScaleDown", "Rollout"] }]);
    let mut account = account(all, 10, &[], NOON);
    let granted = |reason| account.take(reason).is_ok();
    assert_eq!(
        [Repair, Rollout, Rollout, ScaleDown, Expiry, Repair].map(granted),
        [true, true, false, false, true, false]
    );
    assert_eq!(rooms(&account), [0; 4]);
}

#[test]
fn a_node_that_is_free_again_frees_its_budget() {
    let all = || json!([{ "nodes": 1 }]);
    assert!(account(all(), 10, &[Repair], NOON).take(Rollout).is_err());
    assert!(account(all(), 10, &[], NOON).take(Rollout).is_ok());
}

#[test]
fn a_refusal_names_the_budget_and_what_ends_it() {
    let night = |nodes: Value, reasons: &[&str], zone: &str| json!({ "effect": "AllowOnly", "nodes": nodes, "reasons": reasons, "schedule": "0 22 * * *", "timeZone": zone, "durationSeconds": 3600 });
    for (budgets, disrupted, said) in [
        (
            json!([{ "nodes": 9 }, { "nodes": "10%" }]),
            &[Repair][..],
            "spec.disruption.budgets[1] allows 1 node at a time (10% of 8), and 1 is being disrupted",
        ),
        (
            json!([{ "nodes": 2, "reasons": ["Rollout", "Repair", "Expiry"] }]),
            &[Repair, Rollout, Expiry, ScaleDown],
            "spec.disruption.budgets[0] allows 2 nodes at a time for Rollout, Repair and Expiry, and 3 are being disrupted",
        ),
        (
            json!([{ "nodes": 0 }]),
            &[],
            "spec.disruption.budgets[0] holds everything: it allows 0 nodes, at all times",
        ),
        (
            json!([{ "nodes": "0%", "reasons": ["Rollout"], "schedule": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "durationSeconds": 36_000 }]),
            &[],
            "spec.disruption.budgets[0] holds Rollout: it allows 0 nodes, at least until 2026-01-15T18:00:00+01:00[Europe/Berlin]",
        ),
        (
            // Windows without a gap end together.
            json!([{ "nodes": 0, "schedule": "0 9-14 * * *", "durationSeconds": 3600 }]),
            &[],
            "spec.disruption.budgets[0] holds everything: it allows 0 nodes, at least until 2026-01-15T15:00:00+00:00[UTC]",
        ),
        (
            json!([night(json!(1), &["Rollout"], "Europe/Berlin")]),
            &[],
            "no window of spec.disruption.budgets[0] allows Rollout now; the next one begins 2026-01-15T22:00:00+01:00[Europe/Berlin]",
        ),
        (
            json!([{ "nodes": 1 }, night(json!(1), &[], "America/New_York"), night(json!(1), &[], "Asia/Tokyo")]),
            &[Repair],
            "no window of spec.disruption.budgets[1] and [2] allows Rollout now; the next one begins 2026-01-15T22:00:00+09:00[Asia/Tokyo]",
        ),
        (
            json!([{ "effect": "AllowOnly", "nodes": 1, "schedule": "0 12 * * *", "durationSeconds": 3600 }]),
            &[Repair],
            "spec.disruption.budgets[0] allows 1 node at a time, and 1 is being disrupted",
        ),
        (
            json!([night(json!(1), &["Rollout"], "Europe/Berln")]),
            &[],
            "spec.disruption.budgets[0] cannot be followed, so it opens no window for Rollout: \"Europe/Berln\" is no time zone of the IANA database; did you mean Europe/Berlin?",
        ),
        (
            json!([{ "nodes": 0 }, { "nodes": "5" }]),
            &[],
            "spec.disruption.budgets[1] cannot be followed, so it holds everything: nodes is \"5\"; write a number from 0 on, or a percentage from 0% to 100%",
        ),
        (
            json!([{ "nodes": 0 }, night(json!(1), &[], "UTC")]),
            &[],
            "spec.disruption.budgets[0] holds everything: it allows 0 nodes, at all times",
        ),
    ] {
        let mut account = account(budgets, 8, disrupted, NOON);
        let refusal = account.take(Rollout).unwrap_err();
        assert_eq!(refusal.to_string(), said);
        assert_eq!(account.refusal(Rollout), Some(refusal));
    }
}

#[test]
fn what_the_schema_refuses_disrupts_nothing() {
    for budget in [
        json!({ "nodes": -1 }),
        json!({ "nodes": 1, "schedule": "0 0 * * *" }),
        json!({ "nodes": 1, "durationSeconds": 60 }),
        json!({ "nodes": 1, "timeZone": "UTC" }),
        json!({ "nodes": 1, "schedule": "0 0 * * *", "durationSeconds": 0 }),
        json!({ "nodes": 1, "effect": "AllowOnly" }),
        json!({ "nodes": 0, "effect": "AllowOnly", "schedule": "0 0 * * *", "durationSeconds": 86_400 }),
    ] {
        let account = account(json!([budget]), 10, &[], NOON);
        assert_eq!(rooms(&account), [0; 4], "{budget}");
        assert!(matches!(&account.problems()[..], [BudgetProblem::Unreadable { .. }]), "{budget}");
    }
}

#[test]
fn budgets_that_leave_no_moment_are_named_once() {
    let windows = |effect: &str, nodes: i32, schedule: &str, seconds: i32| json!({ "effect": effect, "nodes": nodes, "reasons": ["Rollout", "Expiry"], "schedule": schedule, "durationSeconds": seconds });
    let problems = |budgets| -> Vec<String> {
        account(budgets, 10, &[], NOON).problems().iter().map(ToString::to_string).collect()
    };
    for (what, budgets) in [
        ("a hold is what the user says", json!([{ "nodes": 0 }])),
        ("windows that leave a gap", json!([windows("Limit", 0, "0 8 * * *", 86_399)])),
        (
            "some nights are free",
            json!([windows("AllowOnly", 1, "0 22 * * *", 3600), windows("Limit", 0, "0 20 * * 1-5", 36_000)]),
        ),
        (
            "a window that is longer than the one that forbids",
            json!([windows("AllowOnly", 1, "0 22 * * *", 3601), windows("Limit", 0, "0 22 * * *", 3600)]),
        ),
        (
            "a freeze of a month",
            json!([windows("AllowOnly", 1, "0 22 * * *", 3600), windows("Limit", 0, "0 0 1 1 *", 2_678_400)]),
        ),
        ("many short windows until the evening", json!([windows("Limit", 0, "* 0-20 * * *", 60)])),
    ] {
        assert_eq!(problems(budgets), [""; 0], "{what}");
    }
    let said = problems(json!([windows("AllowOnly", 1, "0 22 * * *", 3600), { "nodes": 9 }, { "nodes": 0 }]));
    assert_eq!(
        said,
        [
            "with spec.disruption.budgets[0] and [2], there is no moment at which a node may be disrupted for Rollout and Expiry"
        ]
    );
    for budgets in [
        json!([windows("AllowOnly", 1, "0 22 * * *", 3600), windows("Limit", 0, "0 20 * * *", 36_000)]),
        json!([windows("Limit", 0, "0 0 * * *", 43_200), windows("Limit", 0, "0 12 * * *", 43_200)]),
    ] {
        let said = problems(budgets);
        assert_eq!(said.len(), 1);
        let starts = "with spec.disruption.budgets[0] and [1], there is no moment before 2026-04-2";
        assert!(said[0].starts_with(starts), "{said:?}");
    }
    let bad = windows("Limit", 3, "0 25 * * *", 3600);
    let said = problems(
        json!([bad, windows("AllowOnly", 1, "0 22 * * *", 3600), { "nodes": 0, "reasons": ["Rollout"] }]),
    );
    assert_eq!(said.len(), 1, "nothing more is said of reasons that the first one holds: {said:?}");
    assert!(
        said[0]
            .starts_with("spec.disruption.budgets[0] cannot be followed, so it holds Rollout and Expiry: ")
    );
}

#[test]
fn as_many_budgets_as_there_may_be_cost_few_conversions_of_times() {
    let of = |effect: &str, nodes: i32, schedule: &str, seconds: i32| json!({ "effect": effect, "nodes": nodes, "reasons": [], "schedule": schedule, "durationSeconds": seconds, "timeZone": "Europe/Berlin" });
    // With one for each reason, so that each reason is looked at for itself.
    let all = |budget: Value| -> Value {
        let own = ["ScaleDown", "Rollout", "Repair", "Expiry"].map(|reason| {
            let mut own = budget.clone();
            own["reasons"] = json!([reason]);
            own
        });
        own.into_iter().chain(vec![budget; 28]).collect()
    };
    let and = |budgets: Value, last: Value| -> Value {
        let Value::Array(mut budgets) = budgets else { panic!() };
        budgets[31] = last;
        budgets.into()
    };
    for (what, budgets) in [
        ("a limit at every minute", all(of("Limit", 1, "* * * * *", 60))),
        ("of an hour", all(of("Limit", 1, "* * * * *", 3600))),
        ("that forbids", all(of("Limit", 0, "* * * * *", 60))),
        ("that forbids for hours", all(of("Limit", 0, "* * * * *", 7200))),
        ("allowed at every minute", all(of("AllowOnly", 1, "* * * * *", 60))),
        (
            "allowed at every minute, and never",
            and(all(of("AllowOnly", 1, "* * * * *", 30)), of("Limit", 0, "* * * * *", 60)),
        ),
        (
            "allowed at night, and never then",
            and(all(of("AllowOnly", 1, "0 22 * * *", 3600)), of("Limit", 0, "0 20 * * *", 36_000)),
        ),
        ("on leap days", and(all(of("AllowOnly", 1, "0 0 29 2 *", 60)), of("Limit", 0, "0 0 29 2 *", 90))),
    ] {
        let budgets = self::budgets(budgets);
        // Also in the hours in which clocks change.
        for now in [NOON, "2026-03-28T22:00:00Z", "2026-03-29T01:30:00Z", "2026-10-25T00:30:00Z"] {
            let before = conversions();
            let account = Account::new(&budgets, 10, [], at(now));
            let problems = account.problems();
            let cost = conversions() - before;
            assert!(cost < 10_000, "{what}: {cost} at {now}, {problems:?}");
        }
    }
}

#[test]
fn the_examples_of_the_guide_can_be_followed() {
    let guide = include_str!("../../../docs/guides/disruption.md");
    let blocks = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut examples: Vec<String> = Vec::new();
    for block in blocks {
        match block
            .strip_prefix("spec:\n  disruption:\n")
            .unwrap_or(block)
            .trim_start()
            .strip_prefix("budgets:")
        {
            Some(budgets) => examples.push(budgets.to_owned()),
            // It goes on with the one before.
            None => examples.last_mut().unwrap().push_str(block),
        }
    }
    // Rooms of a pool of 11 on a Thursday at 13:00 in Berlin.
    let expected = [[2; 4], [2; 4], [ANY, 0, ANY, 0], [0, ANY, 1, ANY], [0; 4]];
    assert_eq!(examples.len(), expected.len());
    for (example, expected) in examples.iter().zip(expected) {
        let budgets: Vec<DisruptionBudget> = serde_saphyr::from_str(example).unwrap();
        let account = Account::new(&budgets, 11, [], at(NOON));
        assert_eq!((rooms(&account), account.problems()), (expected, Vec::new()), "{example}");
    }
}

/// When a budget changes between allowing nodes and allowing none, and whether it does then.
fn changes(budget: &Value, from: &str, to: &str) -> Vec<(String, bool)> {
    let budgets = budgets(json!([budget]));
    let mut found = Vec::new();
    let mut now = at(from);
    let mut before = Account::new(&budgets, 10, [], now).room(Rollout) > 0;
    while let Some(next) = Account::new(&budgets, 10, [], now).next().filter(|next| *next < at(to)) {
        assert!(next > now);
        let allows = Account::new(&budgets, 10, [], next).room(Rollout) > 0;
        if allows != before {
            found.push((next.to_string(), allows));
        }
        (now, before) = (next, allows);
    }
    found
}

#[test]
fn windows_open_once_and_for_their_whole_length_where_clocks_change() {
    let open = |text: &str| (text.to_owned(), true);
    let shut = |text: &str| (text.to_owned(), false);
    for (what, schedule, zone, seconds, from, to, expected) in [
        (
            "02:00 does not exist: it opens when the gap ends, at 03:00",
            "0 2 * * *",
            "Europe/Berlin",
            3600,
            "2026-03-28T12:00:00Z",
            "2026-03-30T12:00:00Z",
            vec![
                open("2026-03-29T01:00:00Z"),
                shut("2026-03-29T02:00:00Z"),
                open("2026-03-30T00:00:00Z"),
                shut("2026-03-30T01:00:00Z"),
            ],
        ),
        (
            "02:00 comes twice: it opens the first time",
            "0 2 * * *",
            "Europe/Berlin",
            3600,
            "2026-10-24T12:00:00Z",
            "2026-10-26T12:00:00Z",
            vec![
                open("2026-10-25T00:00:00Z"),
                shut("2026-10-25T01:00:00Z"),
                open("2026-10-26T01:00:00Z"),
                shut("2026-10-26T02:00:00Z"),
            ],
        ),
        (
            "across midnight and a night of 23 hours: until 07:00 on the clock",
            "0 22 * * *",
            "Europe/Berlin",
            28_800,
            "2026-03-28T12:00:00Z",
            "2026-03-29T12:00:00Z",
            vec![open("2026-03-28T21:00:00Z"), shut("2026-03-29T05:00:00Z")],
        ),
        (
            "half an hour is skipped: 02:15 opens at 02:30",
            "15 2 * * *",
            "Australia/Lord_Howe",
            1800,
            "2026-10-03T00:00:00Z",
            "2026-10-04T00:00:00Z",
            vec![open("2026-10-03T15:30:00Z"), shut("2026-10-03T16:00:00Z")],
        ),
        (
            "half an hour comes twice",
            "45 1 * * *",
            "Australia/Lord_Howe",
            1800,
            "2026-04-04T00:00:00Z",
            "2026-04-05T00:00:00Z",
            vec![open("2026-04-04T14:45:00Z"), shut("2026-04-04T15:15:00Z")],
        ),
        (
            "a whole day does not exist",
            "0 9 30 12 *",
            "Pacific/Apia",
            3600,
            "2011-12-28T00:00:00Z",
            "2012-01-02T00:00:00Z",
            vec![open("2011-12-30T10:00:00Z"), shut("2011-12-30T11:00:00Z")],
        ),
        (
            "windows longer than their period are always open",
            "0 * * * *",
            "America/New_York",
            3600,
            "2026-03-07T12:00:00Z",
            "2026-03-09T12:00:00Z",
            vec![],
        ),
        (
            "a day's length leaves an hour shut where the day has 25",
            "0 0 * * *",
            "America/New_York",
            86_400,
            "2026-10-31T12:00:00Z",
            "2026-11-03T12:00:00Z",
            vec![shut("2026-11-02T04:00:00Z"), open("2026-11-02T05:00:00Z")],
        ),
    ] {
        let of = |effect: &str, nodes: i32| json!({ "effect": effect, "nodes": nodes, "schedule": schedule, "timeZone": zone, "durationSeconds": seconds });
        assert_eq!(changes(&of("AllowOnly", 1), from, to), expected, "{what}");
        let inverse: Vec<_> = expected.into_iter().map(|(time, open)| (time, !open)).collect();
        assert_eq!(changes(&of("Limit", 0), from, to), inverse, "{what}");
    }
}
