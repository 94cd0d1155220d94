//! Finds each program of the control plane: in `KUBEBUILDER_ASSETS` if it exists there, otherwise built once from the
//! Go module in `testbed/control-plane` and kept in Cargo's target directory.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use fnv::FnvHasher;

use crate::go::{Go, KUBERNETES_VERSION};
use crate::messages::inform;
use crate::workspace::{root, target_directory};

/// Environment variable with the directory of envtest's programs.
pub const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// Length of the name of a directory of built programs.
const KEY_DIGITS: usize = 16;

/// The Go module of the control plane, from the workspace's root.
const MODULE: &str = "testbed/control-plane";

/// The multi-call binary.
const MULTI_CALL: &str = "control-plane";

/// A program of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// The key-value store of the API server.
    Etcd,
    /// The API server.
    ApiServer,
    /// The built-in controllers: service accounts, Deployments, garbage collection, `PodDisruptionBudget`s.
    ControllerManager,
    /// The scheduler.
    Scheduler,
    /// Simulates the kubelets of nodes.
    Kwok,
    /// The command line client.
    Kubectl,
    /// Installs charts.
    Helm,
    /// Runs the pods of a real node; only the tests of those need it.
    Kubelet,
    /// Sets up the nodes of a kind cluster; only the tests on one need it.
    Kubeadm,
    /// Leads Services' addresses to pods; only the tests on a kind cluster need it.
    KubeProxy,
}

impl Tool {
    /// Every tool of an ordinary run.
    pub const ORDINARY: [Self; 7] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
        Self::Kubectl,
        Self::Helm,
    ];

    /// The program's upstream name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::Kubelet => "kubelet",
            Self::Kubeadm => "kubeadm",
            Self::KubeProxy => "kube-proxy",
        }
    }

    /// The binary that contains it, and the Go package that builds it.
    const fn built_as(self) -> (&'static str, &'static str) {
        match self {
            Self::Etcd | Self::ApiServer | Self::ControllerManager | Self::Scheduler => (MULTI_CALL, "."),
            Self::Kwok => ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
            Self::Kubectl => ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
            Self::Helm => ("helm", "helm.sh/helm/v4/cmd/helm"),
            Self::Kubelet => ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            Self::Kubeadm => ("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
            Self::KubeProxy => ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
        }
    }
}

/// How to call a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// The binary.
    pub path: PathBuf,
    /// Arguments before the tool's own arguments.
    pub first_args: Vec<String>,
}

/// Where tools are found or built.
#[derive(Clone, Debug)]
pub struct Toolbox {
    /// envtest's directory; `None` when it is not used.
    pub assets: Option<PathBuf>,
    /// The search path for `go`; `None` when it is not set.
    pub path: Option<OsString>,
    /// The Go module of the control plane.
    pub module: PathBuf,
    /// The directory of built binaries.
    pub cache: PathBuf,
}

impl Toolbox {
    /// The toolbox configured by this process's environment.
    pub fn from_environment() -> Self {
        Self {
            assets: std::env::var_os(ASSETS_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from),
            path: std::env::var_os("PATH"),
            module: root().join(MODULE),
            cache: target_directory().join("control-plane"),
        }
    }

    /// Finds every tool of `wanted`, and builds missing ones.
    ///
    /// # Errors
    /// When a tool is missing and cannot be built; the message tells what to install or set.
    pub async fn find(&self, wanted: &[Tool]) -> Result<Vec<Executable>> {
        let (this, wanted) = (self.clone(), wanted.to_vec());
        tokio::task::spawn_blocking(move || this.find_blocking(&wanted)).await?
    }

    fn find_blocking(&self, wanted: &[Tool]) -> Result<Vec<Executable>> {
        if let Some(assets) = &self.assets {
            for tool in [Tool::Etcd, Tool::ApiServer] {
                if !assets.join(tool.name()).is_file() {
                    bail!(
                        "{ASSETS_VARIABLE} is set to {}, which holds no {}: unset it, or point it at envtest's programs",
                        assets.display(),
                        tool.name()
                    );
                }
            }
        }
        let built = self.cache.join(self.key()?);
        let absent =
            |tool: &&Tool| self.in_assets(**tool).is_none() && !built.join(tool.built_as().0).is_file();
        if wanted.iter().any(|tool| absent(&tool)) {
            std::fs::create_dir_all(&self.cache)
                .with_context(|| format!("cannot create {}", self.cache.display()))?;
            let lock = File::create(self.cache.join("lock")).context("cannot create the build's lock")?;
            if lock.try_lock().is_err() {
                inform("another process builds the control plane: waiting for it");
                lock.lock().context("cannot lock the build")?;
            }
            // Checked again, because the process that held the lock may have built it. All ordinary tools are built at
            // once, so a run is interrupted only once; but a user with own assets does not wait for unneeded tools.
            let ordinary = if self.assets.is_none() { Tool::ORDINARY.as_slice() } else { &[] };
            let all: BTreeSet<Tool> = ordinary.iter().chain(wanted).copied().collect();
            let missing: Vec<Tool> = all.iter().filter(absent).copied().collect();
            if !missing.is_empty() {
                self.build(&missing, &built)?;
            }
        }
        Ok(wanted
            .iter()
            .map(|tool| self.in_assets(*tool).unwrap_or_else(|| in_cache(*tool, &built)))
            .collect())
    }

    fn in_assets(&self, tool: Tool) -> Option<Executable> {
        let path = self.assets.as_ref()?.join(tool.name());
        path.is_file().then(|| Executable { path, first_args: Vec::new() })
    }

    fn build(&self, missing: &[Tool], built: &Path) -> Result<()> {
        let names = missing.iter().map(|tool| tool.name()).collect::<Vec<_>>().join(", ");
        let go = Go::find(self.path.as_deref(), &self.module, &names)?;
        let mut packages: Vec<&str> = missing.iter().map(|tool| tool.built_as().1).collect();
        packages.dedup();
        let is_ordinary = missing.iter().any(|tool| Tool::ORDINARY.contains(tool));
        let takes = if is_ordinary { "6 to 10 minutes" } else { "one or two minutes" };
        inform(&format!(
            "building {names} (Kubernetes {KUBERNETES_VERSION}) with go {}: {takes} on two cores, once; kept in {}",
            go.version(),
            built.display()
        ));
        // Built in a separate directory and moved, so that an interrupted build leaves nothing that looks complete.
        let aside = tempfile::Builder::new()
            .prefix("building-")
            .tempdir_in(&self.cache)
            .context("cannot create a directory to build in")?;
        go.build(&self.module, &packages, true, aside.path())?;
        self.remove_outdated(built)?;
        std::fs::create_dir_all(built).with_context(|| format!("cannot create {}", built.display()))?;
        for tool in missing {
            let binary = tool.built_as().0;
            let made = aside.path().join(binary);
            if made.exists() {
                std::fs::rename(&made, built.join(binary))
                    .with_context(|| format!("cannot keep {binary}"))?;
            }
        }
        Ok(())
    }

    /// Removes what was built from another state of the module: 370 MB each. Processes that run these binaries are not
    /// affected.
    fn remove_outdated(&self, built: &Path) -> Result<()> {
        for entry in std::fs::read_dir(&self.cache).context("cannot read the directory of built programs")? {
            let path = entry?.path();
            let is_key = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
                name.len() == KEY_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            if is_key && path != built {
                std::fs::remove_dir_all(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Names the directory of the binaries after their sources, so that a changed module is built again.
    fn key(&self) -> Result<String> {
        // Stable between Rust versions, which the standard hasher is not guaranteed to be.
        let mut hasher = FnvHasher::default();
        for name in ["go.mod", "go.sum", "main.go"] {
            let path = self.module.join(name);
            let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            hasher.write(&bytes);
        }
        Ok(format!("{:0KEY_DIGITS$x}", hasher.finish()))
    }
}

fn in_cache(tool: Tool, built: &Path) -> Executable {
    let binary = tool.built_as().0;
    let first_args = if binary == MULTI_CALL { vec![tool.name().to_owned()] } else { Vec::new() };
    Executable { path: built.join(binary), first_args }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toolbox(directory: &Path) -> Toolbox {
        Toolbox {
            assets: None,
            path: Some(OsString::new()),
            module: root().join(MODULE),
            cache: directory.join("cache"),
        }
    }

    #[test]
    fn without_go_the_message_says_what_is_missing_and_the_ways_out() {
        let directory = tempfile::tempdir().unwrap();
        let error =
            toolbox(directory.path()).find_blocking(&[Tool::Etcd, Tool::Helm]).unwrap_err().to_string();
        assert!(error.starts_with("no go toolchain in PATH, and etcd, kube-apiserver, kube-"), "{error}");
        for way_out in ["install Go", "TANDEM_KUBECONFIG", "KUBEBUILDER_ASSETS"] {
            assert!(error.contains(way_out), "{error}");
        }
    }

    #[test]
    fn a_go_that_is_too_old_is_named_with_its_version() {
        let directory = tempfile::tempdir().unwrap();
        crate::executable::write(&directory.path().join("go"), "#!/bin/sh\necho go1.19.4\n").unwrap();
        let toolbox = Toolbox { path: Some(directory.path().into()), ..toolbox(directory.path()) };
        let error = toolbox.find_blocking(&[Tool::Kwok]).unwrap_err().to_string();
        assert!(error.contains("is too old (1.19.4): etcd, "), "{error}");
        assert!(error.contains("kwok, kubectl, helm must be built with go 1.26"), "{error}");
    }

    #[test]
    fn assets_without_an_api_server_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("etcd"), "").unwrap();
        let toolbox = Toolbox { assets: Some(directory.path().to_owned()), ..toolbox(directory.path()) };
        let error = toolbox.find_blocking(&[Tool::Etcd]).unwrap_err().to_string();
        assert!(error.contains("holds no kube-apiserver"), "{error}");
    }

    #[test]
    fn assets_are_used_without_go() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["etcd", "kube-apiserver"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let toolbox = Toolbox { assets: Some(directory.path().to_owned()), ..toolbox(directory.path()) };
        let found = toolbox.find_blocking(&[Tool::Etcd, Tool::ApiServer]).unwrap();
        let expected = |name| Executable { path: directory.path().join(name), first_args: Vec::new() };
        assert_eq!(found, [expected("etcd"), expected("kube-apiserver")]);
    }
}
