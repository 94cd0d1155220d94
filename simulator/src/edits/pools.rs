//! A change of a pool's replicas.

use std::sync::Arc;

use planner::Observed;
use planner::input::key;
use shared_crds::QualifiedName;

use super::{EditError, PoolEdit};
use crate::nearest;

/// The index of a pool in `observed.pools`, by `name` or `namespace/name`.
pub(crate) fn find_pool(observed: &Observed, wanted: &str) -> Result<usize, EditError> {
    let ids: Vec<(&str, &str)> = observed.pools.iter().map(|pool| key(&pool.metadata)).collect();
    let fits = |id: &(&str, &str)| match wanted.split_once('/') {
        Some(exact) => *id == exact,
        None => id.1 == wanted,
    };
    let found: Vec<usize> = ids.iter().enumerate().filter(|(_, id)| fits(id)).map(|(at, _)| at).collect();
    match found.as_slice() {
        [at] => Ok(*at),
        [] => {
            let full: Vec<_> = ids.iter().map(|id| QualifiedName::from(*id).to_string()).collect();
            let known: Box<dyn Iterator<Item = &str>> = if wanted.contains('/') {
                Box::new(full.iter().map(String::as_str))
            } else {
                Box::new(ids.iter().map(|id| id.1))
            };
            Err(EditError::NoPool { name: wanted.to_owned(), hint: nearest::hint(wanted, known) })
        }
        several => {
            let mut known: Vec<_> =
                several.iter().map(|at| QualifiedName::from(ids[*at]).to_string()).collect();
            known.sort();
            Err(EditError::ManyPools { name: wanted.to_owned(), known: known.join(", ") })
        }
    }
}

/// Sets `spec.replicas`, within the bounds that the API server enforces for every writer.
pub(super) fn set_replicas(observed: &mut Observed, edit: &PoolEdit) -> Result<String, EditError> {
    let at = find_pool(observed, &edit.pool)?;
    let pool = Arc::make_mut(&mut observed.pools[at]);
    let (id, replicas) = (QualifiedName::of(&pool.metadata).to_string(), edit.replicas);
    let (min, max) = (pool.spec.min_replicas, pool.spec.max_replicas);
    let bound = if replicas < min {
        Some(format!("spec.minReplicas is {min}"))
    } else if replicas > max {
        Some(format!("spec.maxReplicas is {max}"))
    } else {
        None
    };
    if let Some(bound) = bound {
        return Err(EditError::OutOfBounds { pool: id, replicas, bound });
    }
    let before = pool.spec.replicas.map_or_else(|| "unset".to_owned(), |replicas| replicas.to_string());
    pool.spec.replicas = Some(replicas);
    Ok(format!("what if NodePool {id} is scaled: spec.replicas {replicas} instead of {before}"))
}
