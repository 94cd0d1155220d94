//! The writes that work consists of, after each of which the operator has to have been killed.

use super::maker::NodeMaker;
use super::work::Work;

const STATUS: &str = "PATCH nodepools/status";
/// Also takes the finalizer off a pool.
const POOL_FINALIZER: &str = "PATCH nodepools finalizers";
/// Makes a Node a node of the pool.
const JOIN: &str = "PATCH nodes finalizers machine nodepool nodepool-namespace note pool provider template-applied template-hash";
const READY: &str = "PATCH nodes ready-time";
const BEGIN_DRAIN: &str = "PATCH nodes disruption-reason drain-start-time exclude-from-external-load-balancers taints unschedulable";
/// The same of a Node whose removal has no cause to note: its pool is deleted, or [`NOTE_CAUSE`] came before, as in a repair.
const BEGIN_DRAIN_WITHOUT_CAUSE: &str =
    "PATCH nodes drain-start-time exclude-from-external-load-balancers taints unschedulable";
const NOTE_CAUSE: &str = "PATCH nodes disruption-reason";
const WAITS: &str = "PATCH nodes drain-waits-for";
const EVICT: &str = "POST pods/eviction";
const DELETE: &str = "DELETE nodes";
/// Takes the finalizer off a Node.
const RELEASE: &str = "PATCH nodes finalizers";
/// Marks a machine of a set as the one that goes next.
const MARK: &str = "PATCH machines delete-machine exclude-node-draining";
/// Asks a set for more machines, or for fewer.
const RESIZE: &str = "PUT machinedeployments/scale";

/// The writes that `work` takes, and how many of each at least.
pub(super) fn of(work: Work, maker: NodeMaker) -> Vec<(&'static str, usize)> {
    match work {
        Work::ScaleUp => {
            let of_pool = [(POOL_FINALIZER, 1), ("PATCH nodepools replicas", 1), (STATUS, 2)];
            of_pool.into_iter().chain(comes(maker, 4)).collect()
        }
        Work::Drain => [(WAITS, 1), (STATUS, 2)].into_iter().chain(goes(maker, 1)).collect(),
        Work::Repair => {
            let given_up =
                [(NOTE_CAUSE, 1), (BEGIN_DRAIN_WITHOUT_CAUSE, 1), ("PATCH nodes taints", 1), (STATUS, 2)];
            given_up.into_iter().chain(goes_on(maker, 1)).chain(comes(maker, 1)).collect()
        }
        Work::Rollout => [(STATUS, 2)].into_iter().chain(goes(maker, 3)).chain(comes(maker, 3)).collect(),
        Work::Deletion => {
            let of_pool = [(BEGIN_DRAIN_WITHOUT_CAUSE, 2), (WAITS, 2), (POOL_FINALIZER, 1), (STATUS, 1)];
            of_pool.into_iter().chain(goes_on(maker, 2)).collect()
        }
    }
}

/// The writes that `nodes` new nodes take.
fn comes(maker: NodeMaker, nodes: usize) -> Vec<(&'static str, usize)> {
    match maker {
        NodeMaker::Operator => vec![("POST nodes", nodes), (READY, nodes)],
        NodeMaker::Kubelets => vec![("machine create", nodes), (JOIN, nodes), (READY, nodes)],
        // Any number of machines may be asked for at once.
        NodeMaker::Set => vec![(RESIZE, 1), (JOIN, nodes), (READY, nodes)],
    }
}

/// The writes that `nodes` nodes with a pod each take to go.
fn goes(maker: NodeMaker, nodes: usize) -> Vec<(&'static str, usize)> {
    [(BEGIN_DRAIN, nodes)].into_iter().chain(goes_on(maker, nodes)).collect()
}

/// The same without the first one.
fn goes_on(maker: NodeMaker, nodes: usize) -> Vec<(&'static str, usize)> {
    let mut writes = vec![(EVICT, nodes), (DELETE, nodes), (RELEASE, nodes)];
    match maker {
        NodeMaker::Operator => {}
        NodeMaker::Kubelets => writes.push(("machine delete", nodes)),
        // One after the other: each time exactly the marked machine goes.
        NodeMaker::Set => writes.extend([(MARK, nodes), (RESIZE, nodes)]),
    }
    writes
}
