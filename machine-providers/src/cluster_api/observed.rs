//! What is there of a set of Cluster API, and what Cluster API is about to do with it.

use std::collections::BTreeSet;

use node_lifecycle::supply::{Completeness, KnownAs, ProviderDuties};

use super::objects::{DELETE_ANNOTATION, Machine, MachineDeployment, MachineHealthCheck};
use super::{name_of, promised};
use crate::{ListedMachine, Progress};

/// A `MachineDeployment` and its machines, read now.
pub(super) struct Observed {
    pub(super) deployment: MachineDeployment,
    pub(super) machines: Vec<Machine>,
    /// Why no machine may be removed.
    pub(super) rolling: Option<String>,
}

impl Observed {
    /// The machines that are not being deleted.
    pub(super) fn staying(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(|machine| !machine.is_going())
    }

    /// Whether its controller knows of as many machines as were listed, going ones counted or not.
    pub(super) fn completeness(&self) -> Completeness {
        let all = [self.machines.len(), self.staying().count()];
        let is_complete = all.into_iter().any(|listed| self.deployment.counts(listed));
        if is_complete { Completeness::Stated } else { Completeness::Unknown }
    }

    /// What Cluster API does with its machines by itself, with these health checks in the namespace; `None` where they may not be
    /// listed.
    pub(super) fn duties(&self, checks: Option<&[MachineHealthCheck]>) -> ProviderDuties {
        let names = |is_it: &dyn Fn(&Machine) -> bool| {
            self.machines.iter().filter(|machine| is_it(machine)).map(|it| name_of(it).to_owned()).collect()
        };
        let drains: BTreeSet<String> = names(&Machine::is_drained_by_cluster_api);
        // Its MachineSet counts those that are being deleted.
        let deployment = self.deployment.metadata.name.as_deref().unwrap_or_default();
        let awaits = (0..self.missing().min(drains.len())).map(|number| promised(deployment, number));
        let repairs = names(&|machine| machine.is_watched_by(checks));
        ProviderDuties { awaits: awaits.collect(), drains, repairs }
    }

    /// How many machines it is to have beside those that stay.
    fn missing(&self) -> usize {
        let wanted = usize::try_from(self.deployment.replicas()).unwrap_or_default();
        wanted.saturating_sub(self.staying().count())
    }

    /// The machines of the set `name`, those that are promised and do not exist yet included, and whether each carries a mark by which
    /// it goes first although it need not.
    pub(super) fn listed(&self, name: &str) -> Vec<(ListedMachine, bool)> {
        // Marked machines that Cluster API has to remove by itself are as good as gone.
        let mut surplus = self.surplus();
        let mut going = |machine: &Machine| {
            let goes = machine.is_going() || (machine.is_marked() && surplus > 0);
            surplus -= usize::from(goes && !machine.is_going());
            goes
        };
        let listed = |machine: &Machine| {
            let progress = if going(machine) {
                Progress::Deleting
            } else if machine.is_provisioned() {
                Progress::Running
            } else {
                Progress::Starting(None)
            };
            let marked = machine.is_marked() && progress != Progress::Deleting;
            let listed = ListedMachine {
                name: name_of(machine).to_owned(),
                progress,
                provider_id: machine.provider_id(),
                template_hash: None,
                is_outdated: false,
                cluster: None,
                known_as: machine.known_as(),
            };
            (listed, marked)
        };
        let mut machines: Vec<_> = self.machines.iter().map(listed).collect();
        machines.extend((0..self.missing()).map(|number| {
            let name = promised(name, number);
            (
                ListedMachine {
                    name,
                    progress: Progress::Starting(None),
                    provider_id: None,
                    template_hash: None,
                    is_outdated: false,
                    cluster: None,
                    known_as: KnownAs::default(),
                },
                false,
            )
        }));
        machines
    }

    /// How many machines without a mark Cluster API will remove by itself, because another writer has lowered the number.
    pub(super) fn chosen_by_cluster_api(&self) -> usize {
        let marked = self.staying().filter(|machine| machine.is_marked()).count();
        self.surplus().saturating_sub(marked)
    }

    /// Why no machine can be removed now without the risk that Cluster API takes another one than those called `going`.
    pub(super) fn removals_wait(&self, going: &[String]) -> Option<String> {
        let name = self.deployment.metadata.name.as_deref().unwrap_or_default();
        let is_in_the_way = |machine: &&Machine| {
            machine.is_marked_by_another() && going.iter().all(|it| it != name_of(machine))
        };
        let marked = self.staying().find(is_in_the_way).map(|machine| {
            let marked = name_of(machine);
            format!(
                "another writer has put the annotation {DELETE_ANNOTATION} on Machine {marked}, so Cluster API would remove \
                 that one, without a drain, instead of the drained one: take the annotation off"
            )
        });
        let chosen = match self.chosen_by_cluster_api() {
            0 => None,
            count => Some(format!("Cluster API is choosing {count} of the machines of {name} to remove")),
        };
        self.rolling.clone().or(chosen).or(marked)
    }

    /// How many of the staying machines Cluster API will remove by itself.
    pub(super) fn surplus(&self) -> usize {
        let wanted = usize::try_from(self.deployment.replicas()).unwrap_or_default();
        self.staying().count().saturating_sub(wanted)
    }
}
