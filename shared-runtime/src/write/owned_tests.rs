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

/// What `contract` owns of `decided`, decided from an empty status.
fn owned(contract: &Contract, decided: &Value) -> OwnedStatus {
    contract.owned(&json!({}), decided).unwrap()
}

fn refused(contract: &Contract, current: &Value, decided: &Value) -> NotOwned {
    match contract.owned(current, decided) {
        Err(WriterError::NotOwned(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_splice_replaces_the_owned_part_and_nothing_else() {
    let contract = Contract::node_pool(Owner::NodepoolOperator);
    let conditions = [condition("Stalled", "False"), condition("Ready", "True")];
    let wanted = owned(&contract, &json!({ "replicas": 3, "conditions": conditions }));
    assert_eq!(
        contract.splice(&status(), wanted),
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
    assert_eq!(contract.splice(&before, owned(&contract, &json!({}))), json!({}));
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
fn writing_a_field_of_another_owner_is_refused_by_name() {
    let contract = Contract::node_pool(Owner::AutoscalerOperator);
    for current in [json!({}), status()] {
        let field = refused(&contract, &current, &json!({ "replicas": 1 }));
        assert_eq!(field.to_string(), "status.replicas is not a field of the Autoscaler operator");
        let foreign = refused(&contract, &current, &json!({ "conditions": [condition("Ready", "True")] }));
        assert_eq!(foreign.to_string(), "condition Ready is not one of the Autoscaler operator");
        refused(&contract, &current, &json!({ "conditions": [condition("Invented", "True")] }));
    }
}

#[test]
fn fields_of_another_owner_may_be_copied_and_are_no_part_of_the_write() {
    let contract = Contract::node_pool(Owner::AutoscalerOperator);
    let copy = contract.owned(&status(), &status()).unwrap();
    let own = json!({
        "autoscaling": { "autoscaler": "a", "desiredReplicas": 4 },
        "conditions": [condition("AbleToScale", "True")],
    });
    assert_eq!(copy, contract.owned(&status(), &own).unwrap());
    assert_eq!(contract.splice(&status(), copy), status());
}

#[test]
fn what_is_no_status_is_an_error_and_not_an_empty_part() {
    let contract = Contract::node_pool(Owner::NodepoolOperator);
    for decided in [json!(null), json!([]), json!({ "conditions": "none" })] {
        let failed = contract.owned(&status(), &decided).unwrap_err();
        assert!(matches!(failed, WriterError::Status(_)), "{decided}: {failed:?}");
    }
}

#[test]
fn the_status_of_an_autoscaler_is_the_autoscaler_operators_alone() {
    let wanted = json!({ "pendingPods": 3, "conditions": [condition("Ready", "True")] });
    assert!(Contract::autoscaler(Owner::AutoscalerOperator).owned(&json!({}), &wanted).is_ok());
    assert!(Contract::autoscaler(Owner::NodepoolOperator).owned(&json!({}), &wanted).is_err());
}

#[test]
fn a_merge_patch_says_only_what_changed_and_null_for_what_went() {
    let contract = Contract::node_pool(Owner::AutoscalerOperator);
    let conditions = [condition("AbleToScale", "True")];
    let decided = json!({ "autoscaling": { "desiredReplicas": 5 }, "conditions": conditions });
    let spliced = contract.splice(&status(), owned(&contract, &decided));
    assert_eq!(
        Contract::merge_patch(&status(), &spliced),
        json!({ "status": { "autoscaling": { "autoscaler": null, "desiredReplicas": 5 } } })
    );
}

#[test]
fn the_status_type_says_the_fields() {
    let status =
        NodePoolStatus { replicas: Some(0), selector: Some("s".to_owned()), ..NodePoolStatus::default() };
    let contract = Contract::node_pool(Owner::NodepoolOperator);
    let owned = contract.owned(&json!({}), &status).unwrap();
    assert_eq!(Value::Object(owned.fields), json!({ "replicas": 0, "selector": "s" }));
}
