//! Which pods of a `DaemonSet` are of its present template. The generation of a template grows with each change, also with one that
//! brings an earlier template back. The pods of that one stay then, each with the generation that it was made from: their controller
//! compares revisions, and theirs is the present one again (`IsPodUpdated`,
//! <https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/daemon/util/daemonset_util.go>). A `DaemonSet` does not say
//! its revision: it is that of its pods of the present generation, on whichever nodes they are.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::daemons::Daemons;
use crate::input::pod_info::PodInfo;
use crate::input::pods;
use crate::pools::agents::AgentKey;
use crate::steps;

/// Namespace and name of a `DaemonSet`.
type DaemonSetKey<'p> = (&'p str, &'p str);

/// The present templates of the `DaemonSet`s of a pass.
#[derive(Debug)]
pub(super) struct PresentTemplates<'p> {
    daemons: &'p Daemons,
    all_pods: &'p [Arc<PodInfo>],
    /// The generations that each of them has had. Read when a pod of another generation is asked for, which most clusters do not have.
    generations: OnceCell<HashMap<DaemonSetKey<'p>, BTreeSet<i64>>>,
}

impl<'p> PresentTemplates<'p> {
    /// Those of `daemons`, whose pods are among `all_pods`.
    pub(super) const fn of(daemons: &'p Daemons, all_pods: &'p [Arc<PodInfo>]) -> Self {
        Self { daemons, all_pods, generations: OnceCell::new() }
    }

    /// Whether the template of a `DaemonSet`, which is of the generation `new`, is the same as in the generation `earlier`.
    pub(super) fn is_same(&self, daemon_set: AgentKey<'_>, earlier: i64, new: i64) -> bool {
        let AgentKey { kind: _, namespace, name } = daemon_set;
        let has_had = || {
            let known = self.generations.get_or_init(|| self.read());
            known.get(&(namespace, name)).is_some_and(|generations| generations.contains(&earlier))
        };
        earlier == new || has_had()
    }

    fn read(&self) -> HashMap<DaemonSetKey<'p>, BTreeSet<i64>> {
        steps::count(self.all_pods.len());
        let mut of_revisions: HashMap<(DaemonSetKey<'p>, &'p str), BTreeSet<i64>> = HashMap::new();
        // Pods of one revision that follow each other have the same labels.
        let are_alike = |a: &Arc<PodInfo>, b: &Arc<PodInfo>| a.shape().id() == b.shape().id();
        for pod in self.all_pods.chunk_by(are_alike).map(|alike| &alike[0]) {
            if let Some(daemon_set) = pods::daemon_set(pod)
                && let Some(revision) = pods::revision(pod)
                && let Some(generation) = pods::template_generation(pod)
            {
                of_revisions.entry((daemon_set, revision)).or_default().insert(generation);
            }
        }
        let mut present: HashMap<DaemonSetKey<'p>, BTreeSet<i64>> = HashMap::new();
        for ((daemon_set, _), generations) in of_revisions {
            let new = self.daemons.named(daemon_set.0, daemon_set.1).and_then(|daemon| daemon.generation);
            if new.is_some_and(|new| generations.contains(&new)) {
                present.entry(daemon_set).or_default().extend(generations);
            }
        }
        present
    }
}
