//! Real nodes on this machine, made by the program `docs/providers/exec/processes.sh`: each is a kubelet with its own
//! containerd, in namespaces of its own. Linux and root only.
//!
//! What they run comes from Debian's packages, unpacked below Cargo's target directory and not installed, and from the
//! control plane's Go module. The machines end when their directory goes, so also when the control plane's supervisor
//! removes it after a crash or Ctrl-C.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Uid;
use toolbox::messages::inform;
use toolbox::tools::{Tool, Toolbox};
use toolbox::workspace::target_directory;

use crate::cluster::{Cluster, ClusterOptions};
use crate::debian::{self, run};
use crate::places::Places;
use crate::wait::eventually;

/// The name that pools use for the program.
pub const PROGRAM: &str = "processes";

/// The only image: busybox, which can sleep and serve HTTP.
pub const IMAGE: &str = "localhost/busybox:1";

/// What is unpacked. runc needs libseccomp, which not every installation has.
const PACKAGES: [&str; 5] =
    ["busybox-static", "containerd", "containernetworking-plugins", "libseccomp2", "runc"];

/// A machine notices within a fraction of a second that it is not wanted any more.
const ENDS: Duration = Duration::from_secs(20);

/// Makes an image archive of the program in `$1`, as `docker save` does, in the current directory.
const MAKE_IMAGE: &str = r#"
set -eu
mkdir -p rootfs/bin && cp "$1" rootfs/bin/busybox
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --create --file layer.tar --directory rootfs .
printf '{"architecture": "%s", "os": "linux", "config": {"Entrypoint": ["/bin/busybox", "sleep", "1000000"]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
    "$(dpkg --print-architecture)" "$(sha256sum layer.tar | cut -d ' ' -f 1)" >config.json
printf '[{"Config": "config.json", "RepoTags": ["%s"], "Layers": ["layer.tar"]}]' "$2" >manifest.json
tar --create --file busybox.tar manifest.json config.json layer.tar
"#;

/// Why there are no real nodes here; `None` when there can be.
pub fn unavailable() -> Option<&'static str> {
    if !cfg!(target_os = "linux") {
        Some("namespaces are Linux's")
    } else if !Uid::effective().is_root() {
        Some("a kubelet needs root")
    } else if !Path::new("/usr/bin/apt-get").is_file() {
        Some("containerd and runc are taken from Debian's packages, and there is no apt-get")
    } else if !may_make_namespaces() {
        Some("this process may not make namespaces, as in a container without privileges")
    } else {
        None
    }
}

/// Whether the first thing that a machine does succeeds here.
fn may_make_namespaces() -> bool {
    let mut probe = std::process::Command::new("unshare");
    probe.args(["--pid", "--mount", "--uts", "--ipc", "--fork", "mount", "-t", "proc", "proc", "/proc"]);
    let probe = probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Unpacks the packages and builds the kubelet if they are missing: for minutes, which is said.
///
/// # Errors
/// When a package cannot be had or the kubelet cannot be built.
pub async fn build() -> Result<()> {
    tools().await?;
    Ok(())
}

/// The directory of the unpacked packages, and the kubelet.
async fn tools() -> Result<(PathBuf, PathBuf)> {
    let root = unpacked().await?;
    Ok((root, Toolbox::from_environment().find(&[Tool::Kubelet]).await?.remove(0).path))
}

/// Control planes that notice within seconds that a node is dead.
pub static REAL: Places = Places::new(1, || {
    let mut options = ClusterOptions::private();
    options.controller_manager_flags.push("--node-monitor-grace-period=15s".to_owned());
    options
});

/// The program, for the machines of one test.
pub struct RealNodes {
    nodes: PathBuf,
    env: Vec<(String, String)>,
}

impl RealNodes {
    /// Prepares the program for machines on `cluster`.
    ///
    /// # Errors
    /// When a package cannot be had or the kubelet cannot be built.
    pub async fn prepare(cluster: &Cluster, name: &str) -> Result<Self> {
        let (root, kubelet) = tools().await?;
        let nodes = cluster.root().join(format!("nodes-{name}"));
        let images = nodes.join("images");
        std::fs::create_dir_all(&images).context("no directory for the nodes")?;
        std::fs::copy(root.join("busybox.tar"), images.join("busybox.tar")).context("no image")?;
        // A kubelet's own identity, as the API server's authorizer and admission know it. A real one gets a certificate.
        let admin = std::fs::read_to_string(cluster.kubeconfig_path())?;
        let identity = "    as: system:node:NAME\n    as-groups: [\"system:nodes\"]\n    token:";
        let kubeconfig = admin.replacen("    token:", identity, 1);
        ensure!(kubeconfig != admin, "the kubeconfig of the cluster has no token");
        std::fs::write(nodes.join("kubeconfig"), kubeconfig)?;

        let directory = |below: &str| root.join(below).display().to_string();
        let kubelet = kubelet.parent().context("the kubelet has no directory")?;
        let before = std::env::var_os("PATH").unwrap_or_default();
        let path: Vec<PathBuf> = [root.join("usr/bin"), root.join("usr/sbin"), kubelet.to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&before))
            .collect();
        let path: OsString = std::env::join_paths(path)?;
        let libraries = std::fs::read_dir(root.join("usr/lib"))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.to_string_lossy().ends_with("-linux-gnu"))
            .context("no libraries")?;
        let env = vec![
            ("NODES".to_owned(), nodes.display().to_string()),
            ("PATH".to_owned(), path.into_string().ok().context("PATH is not text")?),
            ("LD_LIBRARY_PATH".to_owned(), libraries.display().to_string()),
            ("CNI".to_owned(), directory("usr/lib/cni")),
            ("PAUSE".to_owned(), IMAGE.to_owned()),
        ];
        Ok(Self { nodes, env })
    }

    /// The values of the chart that configure the program.
    pub fn values(&self) -> Vec<String> {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/providers/exec/processes.sh");
        let variable = |(index, (name, value)): (usize, &(String, String))| {
            let at = format!("nodepoolOperator.extraEnv[{index}]");
            [format!("{at}.name={name}"), format!("{at}.value={value}")]
        };
        let env = self.env.iter().enumerate().flat_map(variable);
        let program =
            [format!("providers.exec[0].name={PROGRAM}"), format!("providers.exec[0].path={program}")];
        program.into_iter().chain(env).collect()
    }

    /// The names of the machines that run.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn machines(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.nodes)? {
            let path = entry?.path();
            if path.join("pool").is_file() {
                names.extend(path.file_name().and_then(|name| name.to_str()).map(str::to_owned));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Ends a machine behind everybody's back, like a power failure.
    ///
    /// # Errors
    /// When it is not there.
    pub fn power_off(&self, machine: &str) -> Result<()> {
        std::fs::remove_file(self.nodes.join(machine).join("wanted")).with_context(|| machine.to_owned())
    }

    /// The end of the log of a machine.
    pub fn log(&self, machine: &str) -> String {
        let text = std::fs::read_to_string(self.nodes.join(machine).join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Ends every machine that is left, and says so if there was one.
    ///
    /// # Errors
    /// When one does not end.
    pub async fn end(self) -> Result<()> {
        let left = self.end_all().await?;
        ensure!(left.is_empty(), "{left:?} were left");
        Ok(())
    }

    /// Ends every machine that is left, and returns their names.
    ///
    /// # Errors
    /// When one does not end.
    pub async fn end_all(&self) -> Result<Vec<String>> {
        let left = self.machines()?;
        for machine in &left {
            self.power_off(machine).ok();
        }
        eventually(ENDS, "every machine ends", async || Ok(self.machines()?.is_empty().then_some(())))
            .await?;
        Ok(left)
    }
}

/// The directory of the unpacked packages, with the image.
async fn unpacked() -> Result<PathBuf> {
    static ROOT: tokio::sync::OnceCell<PathBuf> = tokio::sync::OnceCell::const_new();
    let root = ROOT.get_or_try_init(async || {
        let root = target_directory().join("real-nodes");
        if !root.join("busybox.tar").is_file() {
            unpack(&root).await?;
        }
        anyhow::Ok(root)
    });
    root.await.cloned()
}

async fn unpack(root: &Path) -> Result<()> {
    inform(&format!(
        "unpacking Debian's {} for real nodes, once; kept in {}",
        PACKAGES.join(", "),
        root.display()
    ));
    let parent = root.parent().context("no target directory")?;
    let aside = tempfile::Builder::new().prefix("real-nodes-").tempdir_in(parent)?;
    debian::download(aside.path(), &PACKAGES).await?;
    run(aside.path(), "sh", &["-c", MAKE_IMAGE, "sh", "./bin/busybox", IMAGE]).await?;
    if root.exists() {
        std::fs::remove_dir_all(root)?;
    }
    std::fs::rename(aside.keep(), root).context("cannot keep what was unpacked")
}
