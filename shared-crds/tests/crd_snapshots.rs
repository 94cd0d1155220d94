//! The definitions as they were last reviewed: a change of the API is a change of these files.

#[test]
fn definitions_are_what_was_reviewed() {
    for crd in shared_crds::all().unwrap() {
        insta::assert_yaml_snapshot!(crd.spec.names.plural.clone(), crd);
    }
}

#[test]
fn the_yaml_text_holds_every_definition() {
    let text = shared_crds::yaml().unwrap();
    assert_eq!(text.matches("kind: CustomResourceDefinition").count(), shared_crds::all().unwrap().len());
}
