//! Whether there is disk left for a run: an etcd without disk ends with the tests that it serves, and says so somewhere in its log.

use std::path::Path;

use rustix::fs::statvfs;

const GIB: u64 = 1 << 30;
/// What a run from a clean clone takes, measured: about 15 GiB in `target` and, on a machine without it, 8 GiB of Go's build cache.
const FIRST_RUN: u64 = 25 * GIB;
/// What a later one takes for the data of its control planes, and for what is built again.
const LATER_RUN: u64 = 6 * GIB;

/// Says what a run takes, where the disk of `target` has less.
pub(super) fn warning(target: &Path) -> Option<String> {
    let there = target.ancestors().find(|path| path.is_dir())?;
    let stat = statvfs(there).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    // The images of kind's nodes are the last that is built.
    said(free, target.join("kind-images").is_dir())
}

fn said(free: u64, is_built: bool) -> Option<String> {
    let needed = if is_built { LATER_RUN } else { FIRST_RUN };
    (free < needed).then(|| {
        format!(
            "WARNING: {} GiB of disk are free and a run takes up to {} GiB; without disk, tests fail with `no space left on device`",
            free / GIB,
            needed / GIB
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_disk_is_said_and_a_first_run_needs_more() {
        assert_eq!(said(FIRST_RUN, false), None);
        assert!(said(FIRST_RUN - 1, false).unwrap().contains("24 GiB of disk are free"));
        assert_eq!(said(LATER_RUN, true), None);
        assert!(said(LATER_RUN - 1, true).unwrap().contains("up to 6 GiB"));
    }

    #[test]
    fn a_target_that_is_not_there_yet_is_on_the_disk_of_its_parent() {
        let root = tempfile::tempdir().unwrap();
        let (missing, present) = (warning(&root.path().join("a/b")), warning(root.path()));
        // What is free changes while this runs, by less than makes a difference.
        assert_eq!(missing.is_some(), present.is_some());
    }
}
