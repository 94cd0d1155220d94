//! The paths of a private control plane's files, all in one directory.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use toolbox::tools::Tool;

/// The behaviour of our simulated nodes and pods.
const STAGES: [&str; 4] = [
    include_str!("../../control-plane/stages/kwok.yaml"),
    include_str!("../../control-plane/stages/node.yaml"),
    include_str!("../../control-plane/stages/pod.yaml"),
    include_str!("../../../docs/providers/simulated/node-dies.yaml"),
];
pub(crate) const AUDIT_POLICY: &str = include_str!("../../control-plane/audit-policy.yaml");
/// Rules that stand before those of the policy: the first that fits a request decides.
const AUDIT_PODS: &str = include_str!("../../control-plane/audit-pods.yaml");

/// Of which writes the audit log has the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditScope {
    /// Those to the objects that several writers share: pools, nodes, machines, leases.
    Ordinary,
    /// Those to pods, their budgets and their Deployments, too.
    Pods,
}

/// The directory of a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

/// How kwok plays nodes and pods, as it reads it.
pub fn stages() -> String {
    STAGES.join("---\n")
}

impl Layout {
    /// Creates the directories and the configuration files in `root`.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn create(root: &Path, audit_scope: AuditScope) -> Result<Self> {
        let layout = Self::existing(root);
        for directory in ["etcd", "logs", "pki", "kubeconfig", "home"] {
            let path = root.join(directory);
            std::fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        }
        let pods = if audit_scope == AuditScope::Pods { AUDIT_PODS } else { "" };
        write(&layout.audit_policy(), &AUDIT_POLICY.replacen("rules:\n", &format!("rules:\n{pods}"), 1))?;
        write(&layout.stages(), &stages())?;
        Ok(layout)
    }

    /// The layout of a directory that exists.
    pub fn existing(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// etcd's data directory.
    pub fn etcd_data(&self) -> PathBuf {
        self.root.join("etcd")
    }

    /// A file of the public key infrastructure, by its name.
    pub fn pki(&self, name: &str) -> PathBuf {
        self.root.join("pki").join(name)
    }

    /// The kubeconfig of one identity, by its file name.
    pub fn kubeconfig(&self, identity: &str) -> PathBuf {
        self.root.join("kubeconfig").join(identity)
    }

    /// The log of a program.
    pub fn log(&self, tool: Tool) -> PathBuf {
        self.root.join("logs").join(format!("{}.log", tool.name()))
    }

    /// The API server's audit log.
    pub fn audit_log(&self) -> PathBuf {
        self.root.join("audit.log")
    }

    /// The audit policy: which requests are logged, and in which detail.
    pub fn audit_policy(&self) -> PathBuf {
        self.root.join("audit-policy.yaml")
    }

    /// kwok's configuration.
    pub fn stages(&self) -> PathBuf {
        self.root.join("stages.yaml")
    }

    /// Replaces the user's home directory for programs that would leave caches and settings there.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }
}

/// Writes a file; an error names the file.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, contents: &str) -> Result<()> {
    std::fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}
