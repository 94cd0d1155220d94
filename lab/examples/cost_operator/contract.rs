//! What belongs to this controller, as data: the writes, the admission policy and the tests read it here.

use serde_json::{Value, json};
use shared_crds::firewall::{Grant, Validation};

// guide: contract
/// The field manager, and the name of the service account.
pub(crate) const COST_OPERATOR: &str = "cost-operator";
/// The condition. Its prefix is a domain of our own, so no other controller takes the name.
pub(crate) const WITHIN_BUDGET: &str = "example.com/WithinBudget";

/// All that this controller may change of a `NodePool`: one entry of the conditions.
pub(crate) fn grant() -> Grant<'static> {
    Grant { name: COST_OPERATOR, conditions: vec![WITHIN_BUDGET], ..Grant::default() }
}
// end

// guide: policy
/// The contract for the API server: with the token of this controller, no update changes anything else of a `NodePool`. Creation,
/// deletion and `/scale` are what its Role leaves out.
pub(crate) fn policy(namespace: &str) -> Value {
    let name = format!("{COST_OPERATOR}-fields-{namespace}");
    let account = format!("system:serviceaccount:{namespace}:{COST_OPERATOR}");
    let pools = json!({
        "apiGroups": ["tandem.dev"],
        "apiVersions": ["*"],
        "resources": ["nodepools", "nodepools/status"],
        "operations": ["UPDATE"],
    });
    let by_whom = format!("request.userInfo.username == '{account}'");
    let validations: Vec<Value> = grant().validations().iter().map(refusal).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [pools]},
                "matchConditions": [{"name": "by-whom", "expression": by_whom}],
                "validations": validations,
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]})
}

fn refusal(validation: &Validation) -> Value {
    json!({"expression": validation.expression, "message": validation.message, "reason": "Forbidden"})
}
// end
