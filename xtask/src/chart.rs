//! The chart's checks: Helm's lint, the unit tests, the rendered golden files, the generated README, and equal
//! versions. All tools are Go modules pinned in this repository.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use toolbox::tools::{Tool, Toolbox};

use crate::workspace;

/// Values files beside their renders, in `charts/golden`.
const GOLDEN: [&str; 3] = ["default", "single", "metrics"];
/// The Kubernetes version that templates are rendered for: that of the tests' control plane.
const KUBE_VERSION: &str = "1.36.3";

/// Runs every check; with `check` unset, writes the golden files and the README instead of comparing them.
pub(crate) async fn run(check: bool) -> anyhow::Result<()> {
    let helm =
        Toolbox::from_environment().find(&[Tool::Helm]).await?.pop().context("the toolbox is empty")?;
    let root = workspace::root();
    run_to_text(Command::new(&helm.path).current_dir(&root).args([
        "lint",
        "--strict",
        "--quiet",
        "charts/tandem",
    ]))?;
    for name in GOLDEN {
        let values = format!("charts/golden/{name}.values.yaml");
        let template = [
            "template",
            "tandem",
            "charts/tandem",
            "--namespace",
            "tandem-system",
            "--kube-version",
            KUBE_VERSION,
        ];
        let rendered =
            run_to_text(Command::new(&helm.path).current_dir(&root).args(template).args(["-f", &values]))?;
        workspace::generate(&format!("charts/golden/{name}.golden.yaml"), &rendered, check)?;
    }
    go_tool(&root, &["helm-unittest", "../tandem"])?;
    let docs = [
        "helm-docs",
        "--chart-search-root",
        "../tandem",
        "--sort-values-order",
        "file",
        "--skip-version-footer",
    ];
    if check {
        // helm-docs writes in place or to standard output; the latter leaves the checkout unchanged.
        let text = go_tool(&root, &[&docs[..], &["--dry-run"]].concat())?;
        workspace::generate("charts/tandem/README.md", &format!("{}\n", text.trim_end()), true)?;
    } else {
        go_tool(&root, &docs)?;
    }
    versions(&root)
}

/// Checks that the chart installs the operators in this workspace's version.
fn versions(root: &Path) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(root.join("charts/tandem/Chart.yaml")).context("cannot read Chart.yaml")?;
    for key in ["version", "appVersion"] {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key}:")));
        let found = line.with_context(|| format!("Chart.yaml has no {key}"))?.trim().trim_matches('"');
        let wanted = env!("CARGO_PKG_VERSION");
        ensure!(found == wanted, "Chart.yaml says {key} {found}, and the workspace is at {wanted}");
    }
    Ok(())
}

fn go_tool(root: &Path, args: &[&str]) -> anyhow::Result<String> {
    run_to_text(Command::new("go").current_dir(root.join("charts/tools")).arg("tool").args(args))
}

fn run_to_text(command: &mut Command) -> anyhow::Result<String> {
    let output =
        command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        bail!("{} {} failed:\n{out}{err}", command.get_program().display(), args.join(" "));
    }
    Ok(out.into_owned())
}
