//! Writers that share an object without a retry: patches, server-side apply, `/scale`; and watchers.

mod apply;
mod apply_whole;
mod conditions;
mod exported_file;
mod guards;
mod helm;
mod owners;
mod patches;
mod scale;
mod scale_corners;
mod strategic;
mod third;
mod third_rights;
mod third_same_name;
mod third_wakes;
mod watch_expired;
mod watch_resume;
mod watching;

use crate::scenario::Scenario;

/// This group's scenarios, in their recommended order.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        patches::SCENARIO,
        strategic::SCENARIO,
        scale::SCENARIO,
        scale_corners::SCENARIO,
        apply::SCENARIO,
        apply_whole::SCENARIO,
        conditions::SCENARIO,
        third::UNOWNED,
        third::OWNED,
        third_same_name::SCENARIO,
        third_wakes::SCENARIO,
        third_rights::SCENARIO,
        watch_resume::SCENARIO,
        watch_expired::SCENARIO,
        exported_file::SCENARIO,
        helm::SCENARIO,
    ]
}
