//! `cargo demo`, as a user runs it, on the cluster that the environment names.

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_tells_its_story_to_the_end() {
    let _turn = e2e::places::turn().await.unwrap();
    let kubeconfig = std::env::var_os(e2e::control_plane::locate::KUBECONFIG_VARIABLE).map(Into::into);
    let options = e2e::demo::DemoOptions {
        kubeconfig,
        write_strategy: "guarded".to_owned(),
        json: true,
        audit_log: None,
    };
    let own_control_plane = options.kubeconfig.is_none();
    let bill = e2e::demo::run(options).await.unwrap();
    assert_eq!(
        bill.is_some(),
        own_control_plane,
        "the table comes from the audit log of a control plane of our own"
    );
    let Some(bill) = bill else { return };
    for (writer, target) in [
        ("tandem-system:tandem-nodepool-operator", "nodepools/status"),
        ("tandem-system:tandem-autoscaler-operator", "nodepools/status"),
        ("tandem-system:tandem-autoscaler-operator", "nodepools"),
    ] {
        let row = bill.row(writer, target).unwrap_or_else(|| panic!("{writer} never wrote {target}\n{bill}"));
        assert!(row.succeeded > 3, "{bill}");
        assert_eq!((row.conflicts, row.invalid), (0, 0), "{bill}");
    }
}
