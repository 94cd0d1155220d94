//! `cargo demo`, as a person runs it, on the cluster that the environment names.

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_tells_its_story_to_the_end() {
    let kubeconfig = std::env::var_os(e2e::control_plane::locate::KUBECONFIG_VARIABLE).map(Into::into);
    let options = e2e::demo::Options { kubeconfig, write_strategy: "guarded".to_owned(), json: true };
    e2e::demo::run(options).await.unwrap();
}
