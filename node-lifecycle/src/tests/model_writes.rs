//! How the model of a cluster carries out a plan, write by write.

use shared_crds::v1alpha1::ProvisioningStatus;

use super::model_cluster::{DELAY, ModelCluster};
use super::*;
use crate::after::outcome::{ActionOutcome, Applied, AppliedAction};
use crate::assess::node_states::NodeReadiness;
use crate::testing::at;
use crate::testing::writes::{PassWrite, of_step};

impl ModelCluster {
    /// Carries out the first `budget` writes of `plan`, like an operator that is killed after them.
    pub(super) fn apply(&mut self, plan: &Plan, mut budget: usize) -> Applied {
        let mut applied = Applied::default();
        self.free.retain(|node| plan.protected.iter().all(|(other, _)| other != node));
        self.found.retain(|node, _| !plan.unprotected.contains(node));
        self.found.extend(plan.protected.iter().cloned());
        self.free.extend(plan.unprotected.iter().cloned());
        for step in &plan.join {
            let name = step.node.metadata.name.clone().unwrap();
            self.patch(&name, &step.patch);
            applied.record(name, AppliedAction::Join, ActionOutcome::Done);
        }
        let (removals, others): (Vec<_>, Vec<_>) =
            plan.nodes.iter().partition(|step| step.action.removes_replica());
        for step in removals.into_iter().chain(others) {
            if budget == 0 {
                return applied;
            }
            budget -= usize::from(step.action != NodeAction::Keep);
            if step.action == NodeAction::Repair {
                let noted = step.cause.and_then(|cause| patches::note_cause(&step.member.node, cause));
                if let Some(patch) = &noted {
                    self.patch(step.member.name(), patch);
                }
                if noted.is_some() && budget == 0 {
                    return applied;
                }
                budget -= usize::from(noted.is_some());
            }
            self.carry_out(step);
            applied.record_step(step);
        }
        if plan.pool == PoolStep::RemoveFinalizer {
            self.pool.metadata.finalizers = None;
        }
        for node in plan.register.iter().take(budget) {
            self.create(node.clone());
            applied.absorb(Applied::done(AppliedAction::Create, node.metadata.name.clone()));
        }
        for name in plan.withdraw.iter().filter(|_| !self.lists_withdrawn) {
            self.machines.remove(name);
        }
        applied.absorb(Applied::done(AppliedAction::Withdraw, &plan.withdraw));
        // Nodes that never started are a failure of the provider.
        if applied.count(AppliedAction::Replace) == 0 {
            for name in &plan.request {
                self.machines.entry(name.clone()).or_insert(at(self.second + DELAY));
            }
            applied.absorb(Applied::done(AppliedAction::Request, &plan.request));
        }
        self.record();
        applied
    }

    /// Writes down how many machines were asked for, as every pass does.
    fn record(&mut self) {
        let machines = i32::try_from(self.promised()).ok();
        let provisioning = ProvisioningStatus { machines, ..ProvisioningStatus::default() };
        self.pool.status.get_or_insert_default().provisioning = Some(provisioning);
    }

    pub(super) fn carry_out(&mut self, step: &NodeStep) {
        let now = at(self.second);
        let name = step.member.name().to_owned();
        let uid = step.member.node.metadata.uid.clone().unwrap();
        if let Some(cause) = step.cause.filter(|_| step.member.readiness != NodeReadiness::Starting) {
            self.chosen.insert(uid, cause);
        } else if matches!(step.action, NodeAction::Uncordon | NodeAction::GiveBack) {
            self.chosen.remove(&uid);
        }
        for write in of_step(step, now) {
            match write {
                PassWrite::PatchNode(name, patch) => self.patch(&name, &patch),
                PassWrite::DeleteNode(name) => self.delete(&name, &step.member.node),
                PassWrite::Evict(_) if self.budget_blocks => {}
                PassWrite::Evict(pod) | PassWrite::DeletePod(pod) => {
                    self.pods.entry(name.clone()).or_default().retain(|other| *other != *pod);
                }
                PassWrite::EndMachine(machine) => {
                    self.machines.remove(&machine);
                }
                PassWrite::CreateNode(_) | PassWrite::RequestMachine(_) => {}
            }
        }
    }
}
