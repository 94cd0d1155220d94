use shared_crds::v1alpha1::NodePoolStatus;

use super::*;

fn condition(type_: &str, status: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn status() -> Value {
    json!({
        "replicas": 3,
        "readyReplicas": 2,
        "autoscaling": { "autoscaler": "a", "desiredReplicas": 4 },
        "conditions": [condition("AbleToScale", "True"), condition("Ready", "False"), condition("Foreign", "True")],
    })
}

fn owned(fields: Value, conditions: Value) -> OwnedStatus {
    let Value::Object(fields) = fields else { panic!("fields") };
    OwnedStatus { fields, conditions: serde_json::from_value(conditions).unwrap() }
}

#[test]
fn a_splice_replaces_the_owned_part_and_nothing_else() {
    let contract = Contract::node_pool(Owner::NodepoolOperator);
    let wanted =
        owned(json!({ "replicas": 3 }), json!([condition("Stalled", "False"), condition("Ready", "True")]));
    assert_eq!(
        contract.splice(&status(), &wanted).unwrap(),
        json!({
            // readyReplicas is owned and was not given, so it is removed.
            "replicas": 3,
            "autoscaling": { "autoscaler": "a", "desiredReplicas": 4 },
            "conditions": [
                condition("AbleToScale", "True"),
                condition("Ready", "True"),
                condition("Foreign", "True"),
                condition("Stalled", "False"),
            ],
        })
    );
}

#[test]
fn an_owned_condition_that_is_not_named_goes_and_an_empty_list_is_no_list() {
    let contract = Contract::node_pool(Owner::NodepoolOperator);
    let before = json!({ "conditions": [condition("Ready", "True")] });
    assert_eq!(contract.splice(&before, &OwnedStatus::default()).unwrap(), json!({}));
}

#[test]
fn the_part_to_apply_holds_only_what_is_owned() {
    let contract = Contract::node_pool(Owner::AutoscalerOperator);
    assert_eq!(
        contract.part(&status()),
        json!({
            "autoscaling": { "autoscaler": "a", "desiredReplicas": 4 },
            "conditions": [condition("AbleToScale", "True")],
        })
    );
}

#[test]
fn writing_what_belongs_to_somebody_else_is_refused_by_name() {
    let contract = Contract::node_pool(Owner::AutoscalerOperator);
    let field = contract.check(&owned(json!({ "replicas": 1 }), json!([]))).unwrap_err();
    assert_eq!(field.to_string(), "status.replicas is not a field of the Autoscaler operator");
    let foreign = contract.check(&owned(json!({}), json!([condition("Ready", "True")]))).unwrap_err();
    assert_eq!(foreign.to_string(), "condition Ready is not one of the Autoscaler operator");
    let unknown = contract.check(&owned(json!({}), json!([condition("Invented", "True")])));
    assert!(unknown.is_err());
    let list = contract.check(&owned(json!({ "conditions": [] }), json!([])));
    assert!(list.is_err(), "conditions go into their own list");
}

#[test]
fn the_status_of_an_autoscaler_is_the_autoscaler_operators_alone() {
    let wanted = owned(json!({ "pendingPods": 3 }), json!([condition("Ready", "True")]));
    assert!(Contract::autoscaler(Owner::AutoscalerOperator).check(&wanted).is_ok());
    assert!(Contract::autoscaler(Owner::NodepoolOperator).check(&wanted).is_err());
}

#[test]
fn a_merge_patch_says_only_what_changed_and_null_for_what_went() {
    let contract = Contract::node_pool(Owner::AutoscalerOperator);
    let wanted =
        owned(json!({ "autoscaling": { "desiredReplicas": 5 } }), json!([condition("AbleToScale", "True")]));
    let spliced = contract.splice(&status(), &wanted).unwrap();
    assert_eq!(
        Contract::merge_patch(&status(), &spliced),
        json!({ "status": { "autoscaling": { "autoscaler": null, "desiredReplicas": 5 } } })
    );
}

#[test]
fn the_status_type_says_the_fields() {
    let status =
        NodePoolStatus { replicas: Some(0), selector: Some("s".to_owned()), ..NodePoolStatus::default() };
    let owned = OwnedStatus::new(&status, Vec::new()).unwrap();
    assert_eq!(Value::Object(owned.fields), json!({ "replicas": 0, "selector": "s" }));
}
