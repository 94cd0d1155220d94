//! Which files are the product: what its users run or depend on, as against tests, the lab, benchmarks and this crate.

/// The directories of the product's crates.
const CRATES: &[&str] = &[
    "shared-crds/",
    "conflict-retry/",
    "conflict-model/",
    "shared-runtime/",
    "planner/",
    "node-lifecycle/",
    "machine-providers/",
    "nodepool-operator/",
    "autoscaler-operator/",
    "first-aid/",
    "simulator/",
];

/// What is below these directories, and no part of the product.
const OTHERS: &[&str] = &["planner/mixes/"];

/// Whether the file belongs to a crate of the product that is held to the rules.
pub(crate) fn has(file: &str) -> bool {
    let is_below = |directories: &[&str]| directories.iter().any(|directory| file.starts_with(directory));
    is_below(CRATES) && !is_below(OTHERS)
}

/// The directories that no file is in, and that are listed all the same.
pub(crate) fn complaints(files: &[String]) -> Vec<String> {
    let is_empty = |directory: &&&str| !files.iter().any(|file| file.starts_with(**directory));
    let gone = CRATES.iter().chain(OTHERS).filter(is_empty);
    gone.map(|directory| format!("xtask/src/product.rs lists {directory}, where no file is")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_of_the_product_are_held_to_the_rules() {
        assert!(has("planner/src/pass.rs") && has("nodepool-operator/src/planned.rs"));
        assert!(has("node-lifecycle/src/plan/mod.rs") && has("machine-providers/src/lib.rs"));
        assert!(
            !has("testbed/src/lib.rs") && !has("lab/planner/src/lib.rs") && !has("planner/mixes/src/lib.rs")
        );
    }

    #[test]
    fn a_listed_directory_without_a_file_is_named() {
        let all: Vec<String> = CRATES.iter().chain(OTHERS).map(|of| format!("{of}a.rs")).collect();
        assert_eq!(complaints(&all), [""; 0]);
        let without = &all[..all.len() - 1];
        assert_eq!(complaints(without), ["xtask/src/product.rs lists planner/mixes/, where no file is"]);
    }
}
