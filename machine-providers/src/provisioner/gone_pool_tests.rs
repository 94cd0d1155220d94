//! The machines of a pool that is gone.

use super::*;
use crate::testing::{ScriptedAnswer, answer, at, cluster, key, no_answer, pool, running, slot};
use crate::{Deletion, MachineRequest};

/// A provider of this name that has a machine in the pool's first slot, or refuses to say what it has.
struct OneOfTwo {
    reference: &'static str,
    refuses: bool,
}

impl NamedProvider for OneOfTwo {
    fn reference(&self) -> &str {
        self.reference
    }

    fn node_source(&self, _: &ProviderSpec) -> Result<NodeSource, ProviderError> {
        Ok(NodeSource::Kubelet)
    }

    fn create<'a>(&'a self, _: MachineRequest<'a>, _: Timestamp) -> ScriptedAnswer<'a, Option<Timestamp>> {
        no_answer()
    }

    fn list<'a>(&'a self, _: &'a PoolKey, _: Timestamp) -> ScriptedAnswer<'a, Vec<ListedMachine>> {
        let refusal = || Err(ProviderError::Unauthorized("no right to list".to_owned()));
        answer(if self.refuses { refusal() } else { Ok(vec![running(&slot(0))]) })
    }

    fn delete<'a>(&'a self, _: &'a PoolKey, _: &'a str) -> ScriptedAnswer<'a, Deletion> {
        no_answer()
    }

    fn forget(&self, _: &PoolKey) {}
}

/// A provider with a machine, and one that refuses everything, as Karpenter's API does without the chart's rights.
fn provisioner() -> Provisioner {
    let has_one = OneOfTwo { reference: "simulated", refuses: false };
    let refuses = OneOfTwo { reference: "karpenter", refuses: true };
    Provisioner::with(cluster(), vec![Box::new(has_one), Box::new(refuses)])
}

async fn look(provisioner: &Provisioner, pool: Option<&NodePool>, second: i64) -> Supply {
    provisioner.supply(&key(), pool, None, |_| false, Lists::Now, at(second)).await.0
}

#[tokio::test]
async fn a_provider_that_refuses_its_list_hides_no_machine_of_another_one() {
    let supply = look(&provisioner(), None, 0).await;
    assert!(supply.is_unknown, "that one may have some, too");
    assert_eq!(supply.machines.iter().map(|machine| machine.name.clone()).collect::<Vec<_>>(), [slot(0)]);
    assert_eq!(supply.former_machines.get(&slot(0)).map(String::as_str), Some("simulated"));
}

#[tokio::test]
async fn a_pool_that_was_seen_is_looked_for_at_its_own_providers_alone() {
    let provisioner = provisioner();
    look(&provisioner, Some(&pool(1)), 0).await;
    let supply = look(&provisioner, None, 1).await;
    assert_eq!((supply.is_unknown, supply.machines.len()), (false, 1), "{:?}", supply.unlisted);
    provisioner.forget(&key());
    assert!(look(&provisioner, None, 2).await.is_unknown, "it is not known which it had");
}
