//! What the images are that the other tests run.

use images::WrittenImage;
use images::checks::{MOST_BYTES, check};
use images::programs::{Build, OPERATORS, WITH_TOOLS, build};
use serde_json::Value;
use testbed::kind::validate;
use toolbox::workspace::{cargo, target_directory};

use crate::begin;
use crate::place::workspace;

#[tokio::test(flavor = "multi_thread")]
async fn each_image_is_valid_small_static_and_not_roots_and_the_same_when_it_is_made_again_elsewhere() {
    let Some(turn) = begin().await else { return };
    let Some(kind) = turn.kind() else { return };
    let images = turn.place.images();
    let names: Vec<&str> = images.iter().filter_map(|image| image.layout.file_name()?.to_str()).collect();
    assert_eq!(names, [OPERATORS[0], OPERATORS[1], WITH_TOOLS]);
    for image in images {
        check(image, MOST_BYTES).unwrap();
        // A library that others pull with says so too, also of the archive.
        assert_eq!(validate(&image.layout, &image.archive).await.unwrap(), image.digest);
        // And so does an engine, which calls an image by its configuration.
        let loaded = kind.docker_load(&image.archive, &image.reference).await.unwrap();
        assert_eq!(loaded, configuration(image), "{}", image.reference);
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
        // Their labels name the commit.
        assert_eq!(first.digest, second.digest, "{} (or was there a commit meanwhile?)", first.reference);
        let (first, second) = (std::fs::read(&first.archive), std::fs::read(&second.archive));
        assert!(first.unwrap() == second.unwrap(), "two archives of one image are not the same");
    }
    assert_eq!(again.len(), images.len());
}

/// The digest of an image's configuration.
fn configuration(image: &WrittenImage) -> String {
    let manifest = image.layout.join("blobs").join(image.digest.replace(':', "/"));
    let manifest: Value = serde_json::from_slice(&std::fs::read(manifest).unwrap()).unwrap();
    manifest["config"]["digest"].as_str().unwrap().to_owned()
}
