//! The image of kind's nodes, from Debian's packages and Go modules, without any container registry. It is made once and stays in
//! the engine's directory of images.

use std::hash::Hasher as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use fnv::FnvHasher;
use toolbox::go::KUBERNETES_VERSION;
use toolbox::messages::inform;
use toolbox::tools::{Tool, Toolbox};
use toolbox::workspace::target_directory;

use super::engine::Engine;
use crate::control_plane::go_program::GoProgram;
use crate::debian;

/// kind's command line, and the sources of its module.
pub(super) const KIND: GoProgram =
    GoProgram { module: "kind", package: "sigs.k8s.io/kind", takes: "half a minute", cgo: false };
/// The command line of container runtimes, with which kind asks which images a node has.
const CRICTL: GoProgram = GoProgram {
    module: "kind",
    package: "sigs.k8s.io/cri-tools/cmd/crictl",
    takes: "a minute on two cores",
    cgo: false,
};
/// The cluster's DNS.
const COREDNS: GoProgram = GoProgram {
    module: "coredns",
    package: "github.com/coredns/coredns",
    takes: "two to four minutes on two cores",
    cgo: false,
};
/// What a node runs beside the programs of the control plane.
const KUBERNETES: [Tool; 5] = [Tool::ApiServer, Tool::Kubectl, Tool::Kubelet, Tool::Kubeadm, Tool::KubeProxy];

/// What kind's own image has of Debian, without what only some storage and rootless engines need, and with Debian's containerd.
const PACKAGES: [&str; 18] = [
    "busybox-static",
    "ca-certificates",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "dbus",
    "ethtool",
    "iproute2",
    "iptables",
    "jq",
    "kmod",
    "mount",
    "nftables",
    "procps",
    "runc",
    "systemd",
    "systemd-sysv",
    "util-linux",
];

const NAME: &str = "tandem/kind-node";

/// The name of the image in `engine`, which is made if it is missing: for minutes, which is said.
///
/// # Errors
/// When a package, a module or an image cannot be made.
pub(super) async fn find(engine: &Engine) -> Result<String> {
    let name = format!("{NAME}:{}-{:016x}", KUBERNETES_VERSION.trim_start_matches('v'), key()?);
    let present = engine.docker(&["images", "--format", "{{.Repository}}:{{.Tag}}", NAME]).await?;
    let present: Vec<&str> = present.split_whitespace().collect();
    if !present.contains(&&*name) {
        make(engine, &name).await?;
    }
    // What was made of other sources: 700 MB each.
    let others: Vec<&str> = present.into_iter().filter(|other| *other != name).collect();
    if !others.is_empty() {
        engine.docker(&[&["image", "rm", "--force"], &*others].concat()).await?;
    }
    Ok(name)
}

/// What the image is made of, as far as it is in this repository.
fn key() -> Result<u64> {
    let mut hasher = FnvHasher::default();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = [
        "kind/node-image.sh",
        "kind/go.sum",
        "coredns/go.sum",
        "control-plane/go.sum",
        "control-plane/main.go",
    ];
    for file in files {
        let path = here.join(file);
        hasher.write(&std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    hasher.write(PACKAGES.join(",").as_bytes());
    Ok(hasher.finish())
}

async fn make(engine: &Engine, name: &str) -> Result<()> {
    let programs = tempfile::tempdir().context("no temporary directory")?;
    for path in find_programs().await? {
        let name = path.file_name().context("a program without a name")?;
        symlink(&path, programs.path().join(name))?;
    }
    inform("making the image of kind's nodes from Debian's packages: about two minutes, once");
    // Below the target directory: it takes half a gigabyte.
    let work = tempfile::Builder::new().prefix("kind-node-").tempdir_in(target_directory())?;
    let root = work.path().join("root");
    debian::root_file_system(engine.packages(), &PACKAGES, &root).await?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kind/node-image.sh");
    let kind = KIND.sources_of("sigs.k8s.io/kind").await?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not text");
    let args = [name.to_owned(), text(&root)?, text(programs.path())?, text(&kind)?];
    engine.script(&script, &args).await
}

/// The programs of the image, built if they are missing.
async fn find_programs() -> Result<Vec<PathBuf>> {
    // Whatever KUBEBUILDER_ASSETS holds: envtest has no kubelet.
    let toolbox = Toolbox { assets: None, ..Toolbox::from_environment() };
    let mut paths: Vec<PathBuf> =
        toolbox.find(&KUBERNETES).await?.into_iter().map(|tool| tool.path).collect();
    for program in [CRICTL, COREDNS] {
        paths.push(program.find().await?);
    }
    Ok(paths)
}
