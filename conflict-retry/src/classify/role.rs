//! Reads a 404 of a write that is not about the object that is written.

use kube::core::Status;
use kube::core::response::reason;

use super::Class;

/// The group of roles and their bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// What refers to a role.
const BINDINGS: [&str; 2] = ["rolebindings", "clusterrolebindings"];

/// How the API server names what is missing. It gets roles from a cache of its own, whose errors have the singular.
const ROLES: [&str; 4] = ["role", "clusterrole", "roles", "clusterroles"];

/// The class of a write of a role binding that the API server does not judge, because it finds no such role, or not yet: it
/// asks which rights the role grants, unless the writer has all rights or may bind the role (`policybased` storage of v1.36).
/// `None` for any other request or answer.
pub(crate) fn of_missing_role(resource: &str, status: &Status) -> Option<Class> {
    let is_missing = status.code == 404 && status.reason == reason::NOT_FOUND;
    let is_role = status
        .details
        .as_ref()
        .is_some_and(|details| details.group == GROUP && ROLES.contains(&details.kind.as_str()));
    (is_missing && is_role && BINDINGS.contains(&resource)).then_some(Class::Other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_binding_may_lack_a_role_that_is_not_the_object() {
        let missing = |kind: &str, group: &str| -> Status {
            serde_json::from_value(json!({
                "status": "Failure", "reason": "NotFound", "code": 404,
                "message": "not found", "details": {"name": "a", "group": group, "kind": kind},
            }))
            .unwrap()
        };
        for kind in ROLES {
            for resource in BINDINGS {
                assert_eq!(of_missing_role(resource, &missing(kind, GROUP)), Some(Class::Other), "{kind}");
            }
            assert_eq!(of_missing_role("clusterroles", &missing(kind, GROUP)), None, "its own");
            assert_eq!(of_missing_role("rolebindings", &missing(kind, "example.com")), None);
        }
        assert_eq!(of_missing_role("rolebindings", &missing("rolebindings", GROUP)), None);
    }
}
