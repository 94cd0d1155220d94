//! A log of each kind of wrong, made by hand, must be found; what looks like it and is right must not.

use serde_json::json;
use shared_crds::names::{
    DRAIN_STARTED_ANNOTATION, MEMBER_LABEL, MEMBER_NAMESPACE_LABEL, NODE_FINALIZER, OUT_OF_SERVICE_TAINT,
    TEMPLATE_HASH_ANNOTATION,
};

use super::*;

const OPERATOR: &str = "system:serviceaccount:tandem-system:tandem-nodepool-operator";
const KUBELET: &str = "kwok";

/// A log that is written as time goes by: a second for each write.
#[derive(Default)]
struct Log {
    events: Vec<Event>,
    revision: u64,
    second: i64,
}

/// A Node, as far as the rules look at it.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is stated by itself on a Node")]
struct Made<'a> {
    name: &'a str,
    hash: &'a str,
    ready: bool,
    cordoned: bool,
    deleted: bool,
    off: bool,
    given_up: bool,
    finalizer: bool,
}

const NODE: Made<'_> = Made {
    name: "",
    hash: "one",
    ready: true,
    cordoned: false,
    deleted: false,
    off: false,
    given_up: false,
    finalizer: true,
};

impl Log {
    /// A pool of `wanted` nodes with a surge of 1, none of which may be missing; a Deployment of two pods, of which one may be.
    fn of_pool(wanted: usize) -> Self {
        let mut log = Self::default();
        log.pool(&json!({"replicas": wanted}));
        let app = json!({"matchLabels": {"app": "web"}});
        log.object("create", "deployments", "web", json!({"spec": {"replicas": 2, "selector": app}}));
        log.object(
            "create",
            "poddisruptionbudgets",
            "web",
            json!({"spec": {"maxUnavailable": 1, "selector": app}}),
        );
        log
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + self.second).unwrap()
    }

    /// So long that every operator knows everything.
    fn wait(&mut self) {
        self.second += 60;
    }

    fn write(
        &mut self,
        (user, verb): (&str, &str),
        (resource, subresource, name): (&str, &str, &str),
        answer: Value,
    ) {
        self.second += 1;
        let namespace = if resource == "nodes" { "" } else { "a" };
        let group = if resource == "nodepools" { "tandem.dev" } else { "" };
        let object = ObjectKey {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let request = (subresource == "binding").then(|| answer["request"].clone());
        self.events.push(Event {
            user: user.to_owned(),
            user_agent: String::new(),
            verb: verb.to_owned(),
            object: Some(object),
            subresource: subresource.to_owned(),
            field_manager: None,
            forced: false,
            code: 200,
            reason: String::new(),
            message: String::new(),
            request,
            response: Some(answer),
            received: self.at(),
            completed: self.at(),
        });
    }

    fn revised(&mut self, mut answer: Value) -> Value {
        self.revision += 1;
        answer["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        answer
    }

    fn object(&mut self, verb: &str, resource: &str, name: &str, answer: Value) {
        let answer = self.revised(answer);
        self.write(("admin", verb), (resource, "", name), answer);
    }

    fn pool(&mut self, spec: &Value) {
        let mut all = json!({"spec": {"maxReplicas": 9, "rollout": {"maxSurge": 1, "maxUnavailable": 0}}});
        json_patch::merge(&mut all["spec"], spec);
        self.object("patch", "nodepools", "p", all);
    }

    fn node(&mut self, verb: &str, node: Made<'_>) {
        let Made { name, hash, ready, cordoned, deleted, off, given_up, finalizer } = node;
        let mut answer = json!({
            "kind": "Node",
            "metadata": {
                "labels": {MEMBER_LABEL: "p", MEMBER_NAMESPACE_LABEL: "a"},
                "annotations": {TEMPLATE_HASH_ANNOTATION: hash},
            },
            "spec": {"unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "Unknown" }}]},
        });
        if cordoned {
            answer["metadata"]["annotations"][DRAIN_STARTED_ANNOTATION] = json!(self.at().to_string());
        }
        if deleted {
            answer["metadata"]["deletionTimestamp"] = json!(self.at().to_string());
        }
        if !off {
            answer["metadata"]["labels"]["kwok.x-k8s.io/node"] = json!("fake");
        }
        if given_up {
            answer["spec"]["taints"] = json!([{"key": OUT_OF_SERVICE_TAINT, "effect": "NoExecute"}]);
        }
        if finalizer {
            answer["metadata"]["finalizers"] = json!([NODE_FINALIZER]);
            answer = self.revised(answer);
        } else {
            // As the API server answers when the last finalizer goes.
            answer["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        }
        self.write((OPERATOR, verb), ("nodes", "", name), answer);
    }

    fn nodes(&mut self, names: &[&str], hash: &str) {
        for name in names {
            self.node("create", Made { name, hash, ..NODE });
        }
    }

    fn take(&mut self, name: &str) {
        self.node("patch", Made { name, cordoned: true, ..NODE });
    }

    fn remove(&mut self, name: &str) {
        self.node("delete", Made { name, cordoned: true, deleted: true, ..NODE });
        self.node("patch", Made { name, cordoned: true, deleted: true, finalizer: false, ..NODE });
    }

    fn pod_state(&mut self, ready: bool) -> Value {
        self.revised(json!({
            "kind": "Pod",
            "metadata": {"labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 5},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        }))
    }

    /// A pod that runs on a node.
    fn pod(&mut self, name: &str, node: &str) {
        let made = self.pod_state(false);
        self.write(("rs", "create"), ("pods", "", name), made);
        let bound = json!({"kind": "Status", "request": {"target": {"name": node}}});
        self.write(("scheduler", "create"), ("pods", "binding", name), bound);
        let ready = self.pod_state(true);
        self.write((KUBELET, "patch"), ("pods", "status", name), ready);
    }

    fn evict(&mut self, name: &str) {
        self.write((OPERATOR, "create"), ("pods", "eviction", name), json!({"kind": "Status"}));
    }

    fn delete_pod(&mut self, user: &str, name: &str, grace: i64) {
        let mut answer = self.pod_state(true);
        answer["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        self.write((user, "delete"), ("pods", "", name), answer);
    }

    fn findings(&self) -> Findings {
        check(&self.events, &ObjectKey::node_pool("a", "p"))
    }

    /// The rules that are broken, with what the last one says.
    fn broken(&self) -> (Vec<Invariant>, String) {
        let violations = self.findings().violations;
        let what = violations.last().map(|last| last.what.clone()).unwrap_or_default();
        (violations.into_iter().map(|violation| violation.rule).collect(), what)
    }
}

#[test]
fn a_rollout_within_its_bounds_breaks_nothing_and_everything_is_checked() {
    let mut log = Log::of_pool(2);
    log.nodes(&["a", "b"], "one");
    log.pod("x", "a");
    log.pod("y", "b");
    log.wait();
    for (old, new, pod) in [("a", "c", "x"), ("b", "d", "y")] {
        log.nodes(&[new], "two");
        log.take(old);
        log.evict(pod);
        log.delete_pod(KUBELET, pod, 0);
        log.pod(&format!("{pod}2"), new);
        log.remove(old);
    }
    let findings = log.findings();
    assert_eq!(findings.violations, []);
    assert_eq!(Invariant::ALL.map(|rule| findings.checked[&rule]), [4, 2, 2, 6]);
    assert_eq!(findings.endings, [(Allowance::Eviction, 2)].into());
    let most = findings.sizes.iter().map(|size| (size.all, size.most, size.least)).max();
    assert_eq!(most, Some((3, 3, 2)));
    let last = findings.sizes.last().unwrap();
    assert_eq!((last.all, last.usable, last.current, last.rolls), (2, 2, 2, false));
}

#[test]
fn a_node_above_wanted_and_surge_is_found() {
    let mut log = Log::of_pool(2);
    log.nodes(&["a", "b"], "one");
    log.wait();
    log.nodes(&["c"], "two");
    assert_eq!(log.broken().0, []);
    log.nodes(&["d"], "two");
    assert_eq!(log.broken(), (vec![Invariant::NeverAbove], "d was made: 4 nodes count, 3 may".to_owned()));

    let mut without_rollout = Log::of_pool(2);
    without_rollout.nodes(&["a", "b", "c"], "one");
    assert_eq!(without_rollout.broken().1, "c was made: 3 nodes count, 2 may");
}

#[test]
fn a_drained_node_counts_in_a_rollout_until_it_is_gone() {
    let mut log = Log::of_pool(2);
    log.nodes(&["a", "b"], "one");
    log.nodes(&["c"], "two");
    log.take("a");
    log.nodes(&["d"], "two");
    assert_eq!(log.broken().0, [Invariant::NeverAbove]);
}

#[test]
fn an_operator_may_act_on_a_number_that_was_wanted_a_moment_ago_and_not_on_an_older_one() {
    for (waits, expected) in [(false, vec![]), (true, vec![Invariant::NeverAbove])] {
        let mut log = Log::of_pool(2);
        log.nodes(&["a"], "one");
        log.pool(&json!({"replicas": 1}));
        if waits {
            log.wait();
        }
        log.nodes(&["b"], "one");
        assert_eq!(log.broken().0, expected, "{waits}");
    }
}

#[test]
fn a_rollout_begins_when_the_template_is_written_and_a_label_begins_none() {
    let spec = |cpu: &str, label: &str| {
        json!({
            "replicas": 4,
            "rollout": {"maxSurge": 1, "maxUnavailable": 1},
            "template": {"metadata": {"labels": {"is": label}}, "spec": {"capacity": {"cpu": cpu}}},
            "provider": {"simulated": {}},
        })
    };
    let hash = |cpu: &str| {
        let mut whole = spec(cpu, "a");
        json_patch::merge(&mut whole, &json!({"maxReplicas": 9}));
        serde_json::from_value::<NodePoolSpec>(whole).unwrap().template_hash().unwrap()
    };
    let (old, new) = (hash("4"), hash("8"));
    assert_ne!(old, new);
    for (cpu, label, expected) in
        [("8", "a", vec![]), ("4", "b", vec![Invariant::NeverBelow]), ("4", "a", vec![Invariant::NeverBelow])]
    {
        let mut log = Log::of_pool(4);
        log.pool(&spec("4", "a"));
        log.nodes(&["a", "b", "c", "d"], &old);
        log.wait();
        log.pool(&spec(cpu, label));
        log.node("patch", Made { name: "a", hash: &old, cordoned: true, ..NODE });
        assert_eq!(log.broken().0, expected, "{cpu} {label}");
        // No more than one.
        log.node("patch", Made { name: "b", hash: &old, cordoned: true, ..NODE });
        assert_eq!(log.broken().0.len(), expected.len() + 1, "{cpu} {label}");
    }
}

#[test]
fn a_scale_counts_as_a_wish() {
    let mut log = Log::of_pool(0);
    let scale = log.revised(json!({"kind": "Scale", "spec": {"replicas": 1}}));
    log.write(("hpa", "patch"), ("nodepools", "scale", "p"), scale);
    log.nodes(&["a"], "one");
    assert_eq!(log.broken().0, []);
    let none = log.revised(json!({"kind": "Scale", "spec": {}}));
    log.write(("hpa", "patch"), ("nodepools", "scale", "p"), none);
    log.wait();
    log.nodes(&["b"], "one");
    assert_eq!(log.broken().1, "b was made: 2 nodes count, 0 may");
}

#[test]
fn a_node_that_cannot_be_missed_and_is_taken_is_found() {
    let mut log = Log::of_pool(2);
    log.nodes(&["a", "b"], "one");
    log.wait();
    log.take("a");
    let expected = format!("a was taken by {OPERATOR}: 1 nodes are left of 2");
    assert_eq!(log.broken(), (vec![Invariant::NeverBelow], expected));

    let mut in_rollout = Log::of_pool(2);
    in_rollout.nodes(&["a", "b"], "one");
    in_rollout.node("create", Made { name: "c", hash: "two", ready: false, ..NODE });
    in_rollout.take("a");
    assert_eq!(in_rollout.broken().0, [Invariant::NeverBelow], "the new one is not Ready yet");
}

#[test]
fn a_node_that_has_just_died_is_excepted_and_one_that_died_long_ago_is_not() {
    for (waits, expected) in [(false, vec![]), (true, vec![Invariant::NeverBelow])] {
        let mut log = Log::of_pool(2);
        log.nodes(&["a", "b"], "one");
        log.nodes(&["c"], "two");
        log.node("update", Made { name: "b", ready: false, off: true, ..NODE });
        if waits {
            log.wait();
        }
        log.take("a");
        assert_eq!(log.broken().0, expected, "{waits}");
    }
}

#[test]
fn kubernetes_may_delete_the_pods_of_a_node_that_is_not_ready_for_longer_than_they_tolerate() {
    let deleted = |off: bool, after: i64| {
        let mut log = Log::of_pool(2);
        log.nodes(&["a", "b"], "one");
        log.pod("x", "a");
        log.node("update", Made { name: "a", ready: false, off, ..NODE });
        log.second += after;
        log.delete_pod("system:serviceaccount:kube-system:node-controller", "x", 5);
        (log.broken().0, log.findings().endings)
    };
    assert_eq!(deleted(true, 310), (vec![], [(Allowance::Unreachable, 1)].into()));
    assert_eq!(deleted(true, 200), (vec![Invariant::Budgets], BTreeMap::new()));
    assert_eq!(deleted(false, 310), (vec![Invariant::Budgets], BTreeMap::new()));
}

#[test]
fn an_eviction_that_leaves_fewer_pods_than_the_budget_keeps_is_found() {
    let mut log = Log::of_pool(2);
    log.nodes(&["a", "b"], "one");
    log.pod("x", "a");
    log.pod("y", "b");
    log.evict("x");
    assert_eq!(log.broken().0, []);
    log.evict("y");
    let what = "y on b was evicted: 0 pods are left, and the budget web keeps 1";
    assert_eq!(log.broken(), (vec![Invariant::Budgets], what.to_owned()));
}

#[test]
fn an_eviction_may_be_answered_after_the_kubelet_has_confirmed_it() {
    let mut log = Log::of_pool(2);
    log.nodes(&["a", "b"], "one");
    log.pod("x", "a");
    log.pod("y", "b");
    log.delete_pod(KUBELET, "x", 0);
    let what = "x on a was deleted by kwok, and nothing allows that: machine off: false, given up: false, drained since: never";
    assert_eq!(log.broken().1, what);
    log.evict("x");
    assert_eq!(log.broken().0, []);
    assert_eq!(log.findings().endings, [(Allowance::Eviction, 1)].into());
}

#[test]
fn only_the_owner_with_too_many_pods_may_delete_one() {
    let owner = "system:serviceaccount:kube-system:replicaset-controller";
    let mut log = Log::of_pool(1);
    log.nodes(&["a"], "one");
    for pod in ["x", "y", "z"] {
        log.pod(pod, "a");
    }
    log.delete_pod(owner, "x", 5);
    assert_eq!(log.broken().0, []);
    log.delete_pod(owner, "y", 5);
    assert_eq!(log.broken().0, [Invariant::Budgets]);
    assert_eq!(log.findings().endings, [(Allowance::Owner, 1)].into());
}

#[test]
fn a_pod_may_be_deleted_when_the_time_for_its_drain_is_over_and_not_before() {
    let deleted = |timeout: Value, after: i64| {
        let mut log = Log::of_pool(1);
        log.pool(&json!({"replicas": 1, "drain": {"timeoutSeconds": timeout}}));
        log.nodes(&["a", "b"], "one");
        log.pod("x", "a");
        log.take("a");
        log.second += after;
        log.delete_pod(OPERATOR, "x", 5);
        let budgets = |violation: &Violation| violation.rule == Invariant::Budgets;
        (log.findings().violations.iter().any(budgets), log.findings().endings)
    };
    assert_eq!(deleted(Value::Null, 900), (true, BTreeMap::new()));
    assert_eq!(deleted(json!(100), 60), (true, BTreeMap::new()));
    assert_eq!(deleted(json!(100), 95), (false, [(Allowance::Forced, 1)].into()));
}

#[test]
fn pods_are_given_up_only_where_the_machine_is_off() {
    for user in ["system:serviceaccount:kube-system:node-controller", OPERATOR] {
        for (off, given_up, expected) in [
            (true, true, vec![]),
            (true, false, vec![Invariant::Budgets]),
            (false, true, vec![Invariant::Budgets]),
        ] {
            let mut log = Log::of_pool(1);
            log.nodes(&["a"], "one");
            log.pod("x", "a");
            log.node("patch", Made { name: "a", ready: !off, off, given_up, ..NODE });
            log.delete_pod(user, "x", 5);
            assert_eq!(log.broken().0, expected, "{user}, off: {off}, given up: {given_up}");
        }
    }
}

#[test]
fn a_node_that_goes_with_a_pod_and_a_pod_that_comes_to_a_node_that_is_gone_are_found() {
    let mut log = Log::of_pool(1);
    log.nodes(&["a"], "one");
    log.pod("x", "a");
    log.pool(&json!({"replicas": 0}));
    log.take("a");
    log.remove("a");
    assert_eq!(log.broken(), (vec![Invariant::NodesEmpty], "a is gone, and on it were [\"x\"]".to_owned()));
    log.pod("y", "a");
    assert_eq!(log.broken().1, "y was put on Some(\"a\"), which is gone");
}

#[test]
fn answers_in_another_order_than_their_effects_are_put_right() {
    let mut log = Log::of_pool(2);
    log.nodes(&["a", "b"], "one");
    let mut other = log.events.clone();
    other.reverse();
    assert_eq!(check(&other, &ObjectKey::node_pool("a", "p")).violations, []);
    assert_eq!(log.findings().sizes.len(), check(&other, &ObjectKey::node_pool("a", "p")).sizes.len());
}

#[test]
fn a_pod_whose_end_nobody_confirms_holds_its_node_for_a_minute_after_its_grace_period() {
    for (after, broken) in [(50, 1), (65, 0)] {
        let mut log = Log::of_pool(1);
        log.nodes(&["a"], "one");
        log.pod("x", "a");
        log.pool(&json!({"replicas": 0}));
        log.take("a");
        log.evict("x");
        log.second += after;
        log.remove("a");
        let findings = log.findings();
        let of_nodes = findings.violations.iter().filter(|violation| violation.rule == Invariant::NodesEmpty);
        assert_eq!((of_nodes.count(), findings.overdue), (broken, 1 - broken), "{after}");
    }
}
