//! What the images are that the other tests run.

use images::checks::{MOST_BYTES, check};
use images::programs::{Build, OPERATORS, WITH_TOOLS, build};
use testbed::kind::validate;
use toolbox::workspace::{cargo, target_directory};

use crate::begin;
use crate::place::workspace;

#[tokio::test(flavor = "multi_thread")]
async fn each_image_is_valid_small_static_and_not_roots_and_the_same_when_it_is_made_again_elsewhere() {
    let Some(turn) = begin().await else { return };
    if turn.kind().is_none() {
        return;
    }
    let images = turn.place.images();
    let names: Vec<&str> = images.iter().filter_map(|image| image.layout.file_name()?.to_str()).collect();
    assert_eq!(names, [OPERATORS[0], OPERATORS[1], WITH_TOOLS]);
    for image in images {
        check(image, MOST_BYTES).unwrap();
        // A library that others pull with says so too, also of the archive.
        assert_eq!(validate(&image.layout, &image.archive).await.unwrap(), image.digest);
    }
    // Cargo has the programs already: only the images are made again. Whether two compilations are the same, `SHA256SUMS` of
    // `cargo xtask release` from two checkouts says.
    let elsewhere = tempfile::tempdir().unwrap();
    let directory = elsewhere.path().join("made/again");
    let again = tokio::task::spawn_blocking(move || {
        let (workspace, target) = (workspace()?, target_directory());
        build(Build { directory, ..Build::for_tests(cargo(), &workspace, &target) })
    });
    let again = again.await.unwrap().unwrap();
    for (first, second) in images.iter().zip(&again) {
        assert_eq!(first.digest, second.digest, "{}", first.reference);
        let (first, second) = (std::fs::read(&first.archive), std::fs::read(&second.archive));
        assert!(first.unwrap() == second.unwrap(), "two archives of one image are not the same");
    }
    assert_eq!(again.len(), images.len());
}
