//! The request bodies that guard a replica count.

use super::*;

fn view(replicas: Option<i32>) -> ScaleView {
    ScaleView { replicas, ..ScaleView::default() }
}

#[test]
fn the_guard_names_the_count_as_the_server_shows_it() {
    let test = |replicas| guarded_operations(&view(replicas), 7)[0].clone();
    assert_eq!(test(Some(5)), json!({"op": "test", "path": "/spec/replicas", "value": 5}));
    assert_eq!(test(Some(0)), json!({"op": "test", "path": "/spec", "value": {}}));
    assert_eq!(test(None), json!({"op": "test", "path": "/spec/replicas", "value": -2_147_483_648_i64}));
}

#[test]
fn a_known_uid_is_part_of_the_guard_and_the_write_comes_last() {
    let seen = ScaleView { uid: Some("u".to_owned()), ..view(Some(5)) };
    assert_eq!(
        guarded_operations(&seen, 0),
        json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/spec/replicas", "value": 5},
            {"op": "add", "path": "/spec/replicas", "value": 0},
        ])
    );
}

#[test]
fn a_put_without_a_version_is_refused_because_the_server_would_not_check_it() {
    assert!(matches!(put_body("n", &view(Some(1)), 2), Err(Refusal::NoVersion)));
    let empty = ScaleView { resource_version: Some(String::new()), ..view(Some(1)) };
    assert!(matches!(put_body("n", &empty, 2), Err(Refusal::NoVersion)));
}

#[test]
fn a_scale_with_an_empty_spec_is_a_count_of_zero() {
    let scale: Scale = serde_json::from_value(json!({
        "metadata": {"name": "z", "uid": "u", "resourceVersion": "9"}, "spec": {}, "status": {"replicas": 4},
    }))
    .unwrap();
    let wanted = ScaleView {
        replicas: Some(0),
        current: Some(4),
        uid: Some("u".to_owned()),
        resource_version: Some("9".to_owned()),
    };
    assert_eq!(ScaleView::from(scale), wanted);
}
