//! What is remembered about a pool's provider from pass to pass, in `status.provisioning`.

use shared_crds::NodePool;
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::ProvisioningStatus;

use crate::after::facts::Facts;
use crate::input::numbers::number;

impl Facts {
    /// `status.provisioning`; `None` where there is nothing to remember.
    pub fn remembered(&self, pool: &NodePool) -> Option<ProvisioningStatus> {
        let before = || Some(pool.status.as_ref()?.provisioning.as_ref()?.capacity.clone());
        let status = ProvisioningStatus {
            // A list that fails takes nothing back.
            capacity: if self.is_unknown { before().unwrap_or_default() } else { self.capacity.clone() },
            machines: self.machines.written.or_else(|| self.asked_for(pool)),
            contested: self.machines.contest.as_ref().map(|contest| contest.record.clone()),
            ..self.provisioning.clone()
        };
        (status != ProvisioningStatus::default()).then_some(status)
    }

    /// The number of machines that a provider was asked for which keeps no number. Those that it was asked to end and that are not gone
    /// were asked for, too: if the next list still has them as they were, they are no others. So were those of nodes that may recover:
    /// when they have, and that is not written, none counts as one that was not asked for. Machines that were not asked for, and a
    /// list that could not be read, do not change it; while there are such machines, no more are asked for than there are nodes, so that
    /// none of them takes the place of a node that goes.
    fn asked_for(&self, pool: &NodePool) -> Option<i32> {
        let before = || pool.status.as_ref()?.provisioning.as_ref()?.machines;
        if self.is_unknown || !self.unreadable.is_empty() {
            return before();
        }
        match &self.stalled {
            None => Some(number(self.staying + self.in_flight + self.ending + self.may_recover)),
            Some(stall) if stall.reason == Reason::TooManyMachines => {
                before().map(|machines| machines.min(number(self.staying)))
            }
            Some(_) => before(),
        }
    }
}
