//! Tells a 403 or a 422 that judges nothing from one that does. The API server answers so before it has read what it judges by.

use kube::core::Status;

use super::admission::is_webhook_denial;

/// What such an answer says (texts of v1.36): admission plugins that have not read their objects yet; an authorizer that
/// could not find the role of a binding, which is so while a role is replaced or has not been read yet; a quota that has
/// not been counted yet; and a policy whose parameters have not been read yet.
const UNDECIDED: [&str; 6] = [
    "not yet ready to handle request",
    ": RBAC: ",
    // After what another authorizer has said, such as the one for nodes: each has a line.
    "\nRBAC: ",
    "status unknown for quota",
    "failed to configure policy: ",
    "failed to configure binding: ",
];

/// Whether the API server has refused the request without having judged it. A webhook's text may quote any other.
pub(crate) fn is_undecided(status: &Status) -> bool {
    matches!(status.code, 403 | 422)
        && !is_webhook_denial(status)
        && UNDECIDED.iter().any(|text| status.message.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_api_server_has_not_judged_is_undecided() {
        let is =
            |code: u16, message: &str| is_undecided(&Status::failure(message, "Forbidden").with_code(code));
        let right = "configmaps \"m\" is forbidden: User \"u\" cannot patch resource \"configmaps\" in API group \"\" in the namespace \"n\"";
        let role = format!("{right}: RBAC: clusterrole.rbac.authorization.k8s.io \"r\" not found");
        let quota = "configmaps \"m\" is forbidden: status unknown for quota: q, resources: count/configmaps";
        let unread = "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: no params found";
        assert!(is(403, "configmaps \"m\" is forbidden: not yet ready to handle request"));
        assert!(is(403, &role));
        assert!(is(
            403,
            &role.replace(": RBAC: ", ": no relationship found between node 'n' and this object\nRBAC: ")
        ));
        assert!(is(403, quota));
        assert!(is(403, unread));
        assert!(is(422, unread), "a policy chooses its code");
        assert!(!is(403, right));
        assert!(!is(403, "configmaps \"m\" is forbidden: exceeded quota: q"));
        assert!(!is(403, "admission webhook \"w\" denied the request: not yet ready to handle request"));
        assert!(!is(500, "not yet ready to handle request"));
    }
}
