//! The hands of the contract for `simulated`.

use std::sync::Arc;

use shared_crds::v1alpha1::NodePoolSpec;

use super::*;
use crate::hands::{Hands, STRANGER, Trouble};
use crate::provisioner::Provisioner;
use crate::testing::{at, cluster};

/// The maker, and the spec of its pools. Every process is the same one: its machines are in memory.
#[derive(Default)]
pub(crate) struct SimulatedHands {
    provider: Arc<Simulated>,
    spec: Mutex<SimulatedProvider>,
}

/// The maker for a provisioner, which owns its providers.
struct Shared(Arc<Simulated>);

impl NamedProvider for Shared {
    fn reference(&self) -> &str {
        self.0.reference()
    }

    fn is_local(&self) -> bool {
        self.0.is_local()
    }

    fn node_source(&self, of: &ProviderSpec) -> Result<NodeSource, ProviderError> {
        self.0.node_source(of)
    }

    fn spec_is(&self, pool: &PoolKey, spec: &ProviderSpec) {
        self.0.spec_is(pool, spec);
    }

    fn completeness(&self, pool: &PoolKey) -> Completeness {
        self.0.completeness(pool)
    }

    fn create<'a>(
        &'a self,
        request: MachineRequest<'a>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Timestamp>, ProviderError>> {
        self.0.create(request, now)
    }

    fn list<'a>(
        &'a self,
        pool: &'a PoolKey,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<ListedMachine>, ProviderError>> {
        self.0.list(pool, now)
    }

    fn delete<'a>(
        &'a self,
        pool: &'a PoolKey,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Deletion, ProviderError>> {
        self.0.delete(pool, name)
    }

    fn forget(&self, pool: &PoolKey) {
        self.0.forget(pool);
    }
}

impl Hands for SimulatedHands {
    fn maker(&self) -> &'static str {
        "simulated"
    }

    fn provisioner(&self) -> Provisioner {
        Provisioner::with(cluster(), vec![Box::new(Shared(Arc::clone(&self.provider)))])
    }

    fn spec(&self) -> ProviderSpec {
        let simulated = Some(self.spec.lock().unwrap().clone());
        ProviderSpec { simulated, ..ProviderSpec::default() }
    }

    fn no_sense(&self, trouble: Trouble) -> Option<&'static str> {
        match trouble {
            Trouble::LostCreation | Trouble::LostDeletion => Some(
                "it answers from the memory of this process: with the answer, the machines would be lost",
            ),
            Trouble::Silence => Some("it answers from the memory of this process, and waits for nothing"),
            Trouble::FailedList | Trouble::CutList => {
                Some("its list is made from the memory of this process, and cannot fail")
            }
            Trouble::PartialList | Trouble::EmptyList => {
                Some("a machine of it is no more than its entry in the list: without that, there is none")
            }
            Trouble::GhostList | Trouble::NoRoom | Trouble::Stranger => None,
        }
    }

    fn make(&self, trouble: Trouble) {
        let mut spec = self.spec.lock().unwrap();
        match trouble {
            Trouble::GhostList => spec.lie = Some(ProviderLie::ForeignName),
            Trouble::NoRoom => spec.quota = Some(0),
            Trouble::Stranger => {
                let simulated = Some(spec.clone());
                let provider = ProviderSpec { simulated, ..ProviderSpec::default() };
                let spec = NodePoolSpec { provider, ..NodePoolSpec::default() };
                let pool = PoolKey { namespace: "other".into(), name: "web".into() };
                let request = MachineRequest { pool: &pool, name: STRANGER, spec: &spec, existing: 0 };
                self.provider.request_machine(request, at(0)).unwrap();
            }
            other => panic!("{other:?} makes no sense here"),
        }
    }

    fn end(&self) {
        *self.spec.lock().unwrap() = SimulatedProvider::default();
    }

    fn machines(&self) -> Vec<String> {
        let pools = self.provider.pools();
        let mut names: Vec<_> = pools.values().flat_map(|pool| pool.machines.keys().cloned()).collect();
        names.sort();
        names
    }

    fn no_room(&self) -> &'static str {
        "the quota of this pool is 0 nodes"
    }
}
