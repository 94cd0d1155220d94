//! Parts of the schemas that a derive cannot express: bounded maps, the shared list of conditions, and the final
//! adjustment of a generated definition.
//!
//! Nothing here names a field of Tandem's types; the types choose the parts that they use.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// Decimal and binary quantities without a sign, as `resource.Quantity` reads them.
const QUANTITY: &str = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?$";

/// The list of conditions as two field managers can share it. Without `map` keyed by `type` the list is atomic: each
/// writer's apply would remove the other's conditions.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the state of the object.",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "type": "string",
                    "description": "type of the condition in CamelCase.",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "type": "string",
                    "description": "status of the condition.",
                    "enum": ["True", "False", "Unknown"],
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "description": "observedGeneration is the generation that this condition refers to.",
                    "minimum": 0,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "lastTransitionTime is when status last changed.",
                },
                "reason": {
                    "type": "string",
                    "description": "reason is machine-readable, in CamelCase.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "type": "string",
                    "description": "message is for users.",
                    "maxLength": 32768,
                },
            },
        },
    })
}

/// Holds for a label's `key` in the namespaces of Kubernetes that a kubelet could not set on its own Node.
/// `NodeRestriction` draws the same line
/// (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>): labels beyond it
/// say what a node may be trusted with (`node-role.kubernetes.io/…`, `node-restriction.kubernetes.io/…`), and are set
/// by the cluster's administrators. The labels that planning from zero needs (zone, region, instance type, system,
/// architecture) are allowed.
const RESERVED_LABEL: &str = "key.matches('^([^/]*[.])?(kubernetes|k8s)[.]io/') \
    && !key.matches('^([^/]*[.])?(kubelet|node)[.]kubernetes[.]io/') \
    && !(key in ['kubernetes.io/hostname', 'kubernetes.io/os', 'kubernetes.io/arch', \
    'topology.kubernetes.io/zone', 'topology.kubernetes.io/region', \
    'failure-domain.beta.kubernetes.io/zone', 'failure-domain.beta.kubernetes.io/region', \
    'beta.kubernetes.io/instance-type', 'beta.kubernetes.io/os', 'beta.kubernetes.io/arch'])";

/// The message for labels for which [`RESERVED_LABEL`] holds. It does not name them: to the API server, an expression
/// that puts keys of unbounded length into a message is too expensive.
const RESERVED_LABEL_ADVICE: &str = "labels in the kubernetes.io and k8s.io namespaces must be ones that a kubelet may \
    set itself, such as topology.kubernetes.io/zone or node.kubernetes.io/instance-type; use a prefix of your own";

/// Labels of nodes.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
        },
        "x-kubernetes-validations": [
            {
                "rule": "self.all(key, !key.matches('^([^/]*[.])?tandem[.]dev/'))",
                "message": "labels under tandem.dev/ belong to the operators",
            },
            {
                "rule": format!("self.all(key, !({RESERVED_LABEL}))"),
                "message": RESERVED_LABEL_ADVICE,
            },
        ],
    })
}

/// Labels that nodes have, whatever set them.
pub fn node_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 128,
        "additionalProperties": { "type": "string", "maxLength": 63 },
    })
}

/// Labels that tell pods of a kind from others.
pub fn pod_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": { "type": "string", "maxLength": 63 },
    })
}

/// Annotations of nodes.
pub fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 4096 },
        "x-kubernetes-validations": [{
            "rule": "self.all(key, !key.startsWith('tandem.dev/'))",
            "message": "annotations under tandem.dev/ belong to the operators",
        }],
    })
}

/// Parameters of a provider.
pub fn parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 4096 },
    })
}

/// Quantities by resource name, at least one.
pub fn resources(_: &mut SchemaGenerator) -> Schema {
    quantities(1)
}

/// Quantities by resource name, possibly none.
pub fn reserved(_: &mut SchemaGenerator) -> Schema {
    quantities(0)
}

fn quantities(at_least: u32) -> Schema {
    let mut schema = json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "maxLength": 32,
            "pattern": QUANTITY,
        },
    });
    if at_least > 0 {
        schema.insert("minProperties".to_owned(), at_least.into());
    }
    schema
}

/// `metav1.LabelSelector` with bounds.
pub fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "matchLabels are labels that must all be there with these values.",
                "maxProperties": 64,
                "additionalProperties": { "type": "string", "maxLength": 63 },
            },
            "matchExpressions": {
                "type": "array",
                "description": "matchExpressions must all hold.",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "description": "A rule over one label.",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string", "description": "key of the label.", "minLength": 1, "maxLength": 317 },
                        "operator": {
                            "type": "string",
                            "description": "operator between the label's value and values.",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "type": "array",
                            "description": "values for In and NotIn; empty for Exists and DoesNotExist.",
                            "maxItems": 64,
                            "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string", "maxLength": 63 },
                        },
                    },
                },
            },
        },
    })
}

/// Adjusts a generated definition.
///
/// - `nullable` goes: the derive puts it on every `Option`, but "set to null" and "absent" are the same thing to a merge
///   patch and two things to server-side apply.
///
/// # Errors
///
/// Only when the definition cannot be written as JSON.
pub fn tidy(crd: CustomResourceDefinition) -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut json = serde_json::to_value(crd)?;
    drop_nullable(&mut json);
    serde_json::from_value(json)
}

fn drop_nullable(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("nullable") == Some(&Value::Bool(true)) {
                map.remove("nullable");
            }
            map.values_mut().for_each(drop_nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nullable),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::is_place;

    #[test]
    fn every_label_that_planning_from_zero_needs_says_where_or_what_a_machine_is() {
        let (_, list) = RESERVED_LABEL.split_once("key in [").unwrap();
        let keys: Vec<&str> = list.split('\'').skip(1).step_by(2).collect();
        assert_eq!(keys.len(), 10, "{keys:?}");
        // Which machine it is, its kubelet says: the template's value reaches no node.
        for key in keys.into_iter().filter(|key| *key != "kubernetes.io/hostname") {
            assert!(is_place(key), "{key}");
        }
    }
}
