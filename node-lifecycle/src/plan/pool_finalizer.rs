//! The finalizer of the pool: it is on every pool that is not being deleted, and goes when the last node has gone.

use shared_crds::{NodePool, names};

use crate::PoolStep;

/// What happens to the finalizer. `may_have_nodes` is also true while it is not known that there are none.
pub(crate) fn step(pool: &NodePool, may_have_nodes: bool) -> PoolStep {
    let is_deleting = pool.metadata.deletion_timestamp.is_some();
    let has_finalizer = pool.metadata.finalizers.iter().flatten().any(|name| name == names::POOL_FINALIZER);
    match (is_deleting, has_finalizer) {
        (false, false) => PoolStep::AddFinalizer,
        (true, true) if !may_have_nodes => PoolStep::RemoveFinalizer,
        _ => PoolStep::Keep,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::testing::pool;

    #[test]
    fn it_goes_from_a_deleted_pool_without_nodes_only() {
        for (is_deleting, has_finalizer, may_have_nodes, expected) in [
            (false, false, false, PoolStep::AddFinalizer),
            (false, true, false, PoolStep::Keep),
            (true, false, false, PoolStep::Keep),
            (true, true, true, PoolStep::Keep),
            (true, true, false, PoolStep::RemoveFinalizer),
        ] {
            let mut pool = pool(0);
            pool.metadata.finalizers = has_finalizer.then(|| vec![names::POOL_FINALIZER.to_owned()]);
            pool.metadata.deletion_timestamp = is_deleting.then_some(Time(Timestamp::UNIX_EPOCH));
            assert_eq!(
                step(&pool, may_have_nodes),
                expected,
                "{is_deleting} {has_finalizer} {may_have_nodes}"
            );
        }
    }
}
