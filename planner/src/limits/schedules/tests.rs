//! Tests of which bounds schedules set and when, and of the messages for those that cannot be followed.

use serde_json::{Value, json};

use super::*;

fn schedule(
    name: &str,
    cron: &str,
    zone: Option<&str>,
    seconds: i32,
    bounds: (Option<i32>, Option<i32>),
) -> Schedule {
    Schedule {
        name: name.to_owned(),
        schedule: cron.to_owned(),
        time_zone: zone.map(str::to_owned),
        duration_seconds: seconds,
        min_replicas: bounds.0,
        max_replicas: bounds.1,
    }
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

#[test]
fn a_window_is_active_from_its_beginning_until_its_duration_has_passed() {
    let office = schedule("office", "0 8 * * 1-5", Some("Europe/Berlin"), 36_000, (Some(3), None));
    // Berlin is one hour ahead of UTC in January; the 2nd is a Friday.
    for (now, active, next) in [
        ("2026-01-02T06:59:59Z", false, "2026-01-02T07:00:00Z"),
        ("2026-01-02T07:00:00Z", true, "2026-01-02T17:00:00Z"),
        ("2026-01-02T16:59:59.9Z", true, "2026-01-02T17:00:00Z"),
        ("2026-01-02T17:00:00Z", false, "2026-01-05T07:00:00Z"),
        ("2026-01-04T12:00:00Z", false, "2026-01-05T07:00:00Z"),
        // In summer it is two.
        ("2026-07-01T06:00:00Z", true, "2026-07-01T16:00:00Z"),
    ] {
        let schedules = Schedules::of(std::slice::from_ref(&office), at(now));
        assert_eq!(schedules.bounds.min, active.then_some(3), "{now}");
        assert_eq!(schedules.next, Some(at(next)), "{now}");
    }
}

#[test]
fn a_window_may_last_longer_than_it_takes_to_begin_again() {
    let always = schedule("always", "*/30 * * * *", None, 3600, (Some(1), None));
    let month = schedule("month", "0 0 1 * *", None, 2_678_400, (Some(1), None));
    for now in ["2026-01-01T00:00:00Z", "2026-02-14T13:17:00Z", "2026-03-31T23:59:59Z"] {
        for schedule in [&always, &month] {
            let schedules = Schedules::of(std::slice::from_ref(schedule), at(now));
            assert_eq!(schedules.bounds.min, Some(1), "{} at {now}", schedule.name);
        }
    }
}

#[test]
fn a_duration_is_elapsed_time_also_where_clocks_change() {
    // Three hours from 01:00 end at 05:00 on the clock in spring, at 03:00 in autumn.
    let night = schedule("night", "0 1 * * *", Some("Europe/Berlin"), 10_800, (Some(1), None));
    for (now, active) in [
        ("2026-03-29T02:59:59Z", true),
        ("2026-03-29T03:00:00Z", false),
        ("2026-10-25T01:59:59Z", true),
        ("2026-10-25T02:00:00Z", false),
    ] {
        let schedules = Schedules::of(std::slice::from_ref(&night), at(now));
        assert_eq!(!schedules.bounds.names.is_empty(), active, "{now}");
    }
}

#[test]
fn overlapping_windows_take_the_highest_lower_and_the_lowest_upper_bound_in_any_order() {
    let all = [
        schedule("c", "0 0 * * *", None, 86_400, (Some(2), Some(9))),
        schedule("a", "0 0 * * *", None, 86_400, (Some(4), None)),
        schedule("b", "0 0 * * *", None, 86_400, (None, Some(7))),
        schedule("later", "0 23 * * *", None, 60, (Some(50), Some(60))),
    ];
    for rotated in 0..all.len() {
        let mut all = all.clone();
        all.rotate_left(rotated);
        let ScheduledBounds { min, max, names } = Schedules::of(&all, at("2026-01-01T12:00:00Z")).bounds;
        assert_eq!((min, max), (Some(4), Some(7)));
        assert_eq!(names, ["a", "b", "c"]);
    }
}

#[test]
fn what_cannot_be_read_plays_no_part_and_says_what_to_do() {
    for (cron, zone, seconds, said) in [
        ("0 25 * * *", None, 60, "no hour; write 0 to 23"),
        ("0 8 * * *", Some("Europe/Berln"), 60, "did you mean Europe/Berlin?"),
        ("0 8 * * *", Some("europe/berlin"), 60, ""),
        ("0 8 * * *", Some("Berlin"), 60, "did you mean Europe/Berlin?"),
        ("0 8 * * *", Some("America/New York"), 60, "did you mean America/New_York?"),
        ("0 8 * * *", Some("Mars/Olympus_Mons"), 60, "or leave timeZone out for UTC"),
        ("0 8 * * *", Some(""), 60, "no time zone"),
        ("0 8 * * *", None, 0, "write 1 or more"),
        ("0 8 * * *", None, -5, "write 1 or more"),
    ] {
        let good = schedule("good", "* * * * *", None, 60, (Some(1), None));
        let bad = schedule("bad", cron, zone, seconds, (Some(9), None));
        let schedules = Schedules::of(&[bad, good], at("2026-01-01T12:00:00Z"));
        assert_eq!(schedules.problems.is_empty(), said.is_empty(), "{cron} {zone:?}");
        if let Some(problem) = schedules.problems.first() {
            assert!(problem.starts_with("schedule bad: ") && problem.contains(said), "{problem}");
            assert_eq!(schedules.bounds.min, Some(1), "the other one is followed");
        }
    }
}

mod plans {
    use super::*;
    use crate::fixtures::{Read as _, TestCluster};
    use crate::{plan, plan_for_cluster};

    /// A pool of 1 to 5 with `replicas`, and schedules that are active all day.
    fn cluster(replicas: Option<i32>, schedules: &Value) -> TestCluster {
        TestCluster::new()
            .autoscaler("x", json!({ "schedules": schedules, "scaleDown": { "unneededSeconds": 0, "delayAfterAddSeconds": 0 } }))
            .pool("a", json!({ "spec": { "replicas": replicas, "minReplicas": 1, "maxReplicas": 5 } }))
    }

    fn all_day(min: Option<i32>, max: Option<i32>) -> Value {
        json!([{ "name": "day", "schedule": "0 0 * * *", "durationSeconds": 86_400, "minReplicas": min, "maxReplicas": max }])
    }

    #[test]
    fn inside_a_window_its_bounds_replace_the_pools_and_in_a_cluster_they_stay_within_what_may_be_written() {
        for (replicas, min, max, simulated, written) in [
            (Some(2), Some(4), None, 4, 4),
            (Some(4), None, Some(2), 2, 2),
            (Some(2), Some(8), Some(9), 8, 5),
            (Some(2), Some(0), Some(0), 0, 1),
            (Some(2), Some(8), None, 8, 5),
            (None, Some(3), None, 3, 3),
            (None, None, Some(4), 1, 1),
        ] {
            let cluster = cluster(replicas, &all_day(min, max));
            assert_eq!(cluster.plan().desired("a"), simulated, "{replicas:?} in {min:?} to {max:?}");
            let plan = plan_for_cluster(&cluster.observed);
            assert_eq!(plan.desired("a"), written, "{replicas:?} in {min:?} to {max:?}");
        }
    }

    #[test]
    fn outside_its_window_a_schedule_changes_nothing_but_when_to_look_again() {
        let mut cluster = cluster(
            Some(2),
            &json!([{ "name": "night", "schedule": "0 22 * * *", "durationSeconds": 3600, "minReplicas": 4 }]),
        );
        let plan = cluster.plan();
        assert_eq!(plan.desired("a"), 2);
        assert_eq!(plan.next, Some(at("2026-01-01T22:00:00Z")));
        cluster.observed.now = plan.next.unwrap();
        let plan = cluster.plan();
        assert_eq!((plan.desired("a"), plan.pool("a").reason.as_str()), (4, "BelowMinReplicas"));
        assert_eq!(plan.pool("a").message, "spec.replicas 2 is below 4, the bound that schedule night sets");
    }

    #[test]
    fn pods_get_as_many_nodes_as_the_window_allows_and_no_node_goes_below_it() {
        let day = all_day(Some(3), Some(7));
        let up = cluster(Some(3), &day).pending("p", 40, "4", &json!({})).plan();
        assert_eq!((up.desired("a"), up.pool("a").limited), (7, true));
        let nodes = ["n1", "n2", "n3", "n4"];
        let down = nodes
            .iter()
            .fold(cluster(Some(4), &day), |cluster, node| cluster.node("a", node, json!({})))
            .plan();
        assert_eq!(down.desired("a"), 3);
        let without = nodes
            .iter()
            .fold(cluster(Some(4), &json!([])), |cluster, node| cluster.node("a", node, json!({})))
            .plan();
        assert_eq!(without.desired("a"), 1);
    }

    #[test]
    fn a_schedule_that_cannot_be_read_is_named_in_a_warning() {
        let plan = plan(&cluster(Some(2), &json!([{ "name": "bad", "schedule": "every now and then x", "durationSeconds": 60, "minReplicas": 4 }])).observed);
        assert_eq!(plan.desired("a"), 2);
        assert!(
            plan.warnings[0].starts_with("NodePoolAutoscaler ns/x: schedule bad: "),
            "{:?}",
            plan.warnings
        );
    }
}
