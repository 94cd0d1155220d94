//! `cargo demo`, as a user runs it, on the cluster that the environment names.

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_runs_to_its_end() {
    let _turn = testbed::places::turn().await.unwrap();
    let kubeconfig = std::env::var_os(testbed::control_plane::locate::KUBECONFIG_VARIABLE).map(Into::into);
    let options = testbed::demo::DemoOptions {
        provider: testbed::demo::Provider::Simulated,
        kubeconfig,
        write_strategy: "guarded".to_owned(),
        json: true,
        audit_log: None,
    };
    let own_control_plane = options.kubeconfig.is_none();
    let costs = testbed::demo::run(options).await.unwrap();
    assert_eq!(
        costs.is_some(),
        own_control_plane,
        "the table comes from the audit log of a control plane of our own"
    );
    let Some(costs) = costs.map(|costs| costs.pool) else { return };
    for (writer, target) in [
        ("tandem-system:tandem-nodepool-operator", "nodepools/status"),
        ("tandem-system:tandem-autoscaler-operator", "nodepools/status"),
        ("tandem-system:tandem-autoscaler-operator", "nodepools"),
    ] {
        let row =
            costs.row(writer, target).unwrap_or_else(|| panic!("{writer} never wrote {target}\n{costs}"));
        assert!(row.succeeded > 3, "{costs}");
        assert_eq!((row.conflicts, row.invalid), (0, 0), "{costs}");
    }
}
