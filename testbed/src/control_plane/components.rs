//! The command line of each program of a private control plane. Paths and ports in, arguments out.

use toolbox::tools::{Executable, Tool};

use super::layout::Layout;
use super::pki::Identity;
use super::ports::Ports;
use crate::process_supervisor::ProgramSpec;

/// Go's GOGC for programs of a test, unless the environment has one: they collect garbage when the heap has grown by this many percent,
/// and not already by the default of 100. With the default, a tenth of the processor time of an API server goes into that.
pub(crate) const GOGC: &str = "300";

/// The input of the command lines.
#[derive(Clone, Debug)]
pub struct Components {
    /// The paths of the control plane's files.
    pub layout: Layout,
    /// The ports of its programs.
    pub ports: Ports,
    /// Additional flags of the API server.
    pub api_server_flags: Vec<String>,
    /// Additional flags of the controller manager.
    pub controller_manager_flags: Vec<String>,
    /// Additional flags of kwok.
    pub kwok_flags: Vec<String>,
}

impl Components {
    /// The program specification of `tool`, whose binary is `executable`.
    pub fn spec(&self, tool: Tool, executable: &Executable) -> ProgramSpec {
        let flags = match tool {
            Tool::Etcd => self.etcd(),
            Tool::ApiServer => self.api_server(),
            Tool::ControllerManager => self.controller_manager(),
            Tool::Scheduler => self.scheduler(),
            Tool::Kwok => self.kwok(),
            // The first two run to completion and are not kept running: see `Cluster::kubectl` and `Cluster::helm`. Nodes are
            // not part of the control plane: see `real_nodes`.
            Tool::Kubectl | Tool::Helm | Tool::Kubelet | Tool::Kubeadm | Tool::KubeProxy => Vec::new(),
        };
        ProgramSpec {
            name: tool.name().to_owned(),
            path: executable.path.clone(),
            args: executable.first_args.iter().cloned().chain(flags).collect(),
            env: vec![
                // kwok reads settings from the home directory, which must not be the user's.
                ("HOME".to_owned(), self.layout.home().display().to_string()),
                ("GOGC".to_owned(), std::env::var("GOGC").unwrap_or_else(|_| GOGC.to_owned())),
            ],
            log: self.layout.log(tool),
            memory_limit: None,
        }
    }

    fn etcd(&self) -> Vec<String> {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        vec![
            "--name=tandem".into(),
            format!("--data-dir={}", self.layout.etcd_data().display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=tandem={peer}"),
            // No data here needs to survive a crash: it is removed with the control plane.
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ]
    }

    fn api_server(&self) -> Vec<String> {
        let pki = |name| self.layout.pki(name).display().to_string();
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            format!("--secure-port={}", self.ports.api_server),
            // The loopback address is not a valid endpoint, and no program here needs one.
            "--endpoint-reconciler-type=none".into(),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            format!("--tls-cert-file={}", pki("apiserver.crt")),
            format!("--tls-private-key-file={}", pki("apiserver.key")),
            format!("--token-auth-file={}", pki("tokens.csv")),
            "--authorization-mode=Node,RBAC".into(),
            // On in clusters that kubeadm sets up. The pool of a node is recorded in labels that it lets no kubelet set.
            "--enable-admission-plugins=NodeRestriction".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-signing-key-file={}", pki("service-accounts.key")),
            format!("--service-account-key-file={}", pki("service-accounts.pub")),
            format!("--audit-policy-file={}", self.layout.audit_policy().display()),
            format!("--audit-log-path={}", self.layout.audit_log().display()),
            // In megabytes: the log is read from its beginning, so it must not be rotated.
            "--audit-log-maxsize=100000".into(),
        ];
        flags.extend(self.api_server_flags.iter().cloned());
        flags
    }

    fn controller_manager(&self) -> Vec<String> {
        let mut flags = self.client_flags(Identity::ControllerManager);
        flags.extend([
            format!(
                "--service-account-private-key-file={}",
                self.layout.pki("service-accounts.key").display()
            ),
            format!("--root-ca-file={}", self.layout.pki("ca.crt").display()),
            // As in real clusters: each controller has its own account, so the audit log distinguishes them.
            "--use-service-account-credentials=true".into(),
            // With the default of 20 requests a second, creating the forty accounts above takes four seconds.
            "--kube-api-qps=200".into(),
            "--kube-api-burst=400".into(),
        ]);
        flags.extend(self.controller_manager_flags.iter().cloned());
        flags
    }

    fn scheduler(&self) -> Vec<String> {
        self.client_flags(Identity::Scheduler)
    }

    fn client_flags(&self, identity: Identity) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.layout.kubeconfig(identity.file()).display()),
            // One replica each, and no port: no client sends them requests.
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
        ]
    }

    fn kwok(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--kubeconfig={}", self.layout.kubeconfig(Identity::Kwok.file()).display()),
            format!("--config={}", self.layout.stages().display()),
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".into(),
            // Same as the kubelet's. Without a lease the node lifecycle controller would mark the nodes as unreachable.
            "--node-lease-duration-seconds=40".into(),
        ];
        flags.extend(self.kwok_flags.iter().cloned());
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multi_call_binary_gets_its_program_before_the_flags() {
        let root = tempfile::tempdir().unwrap();
        let components = Components {
            layout: Layout::existing(root.path()),
            ports: Ports { etcd: 1, etcd_peer: 2, api_server: 3 },
            api_server_flags: vec!["--v=4".into()],
            controller_manager_flags: vec!["--controllers=*,-job-controller".into()],
            kwok_flags: vec!["--v=1".into()],
        };
        let executable =
            Executable { path: "/bin/control-plane".into(), first_args: vec!["kube-apiserver".into()] };
        let spec = components.spec(Tool::ApiServer, &executable);
        assert_eq!(spec.args.first().unwrap(), "kube-apiserver");
        assert_eq!(spec.args.last().unwrap(), "--v=4");
        assert!(spec.args.contains(&"--secure-port=3".to_owned()));
        let spec = components.spec(Tool::ControllerManager, &executable);
        assert_eq!(spec.args.last().unwrap(), "--controllers=*,-job-controller");
        let spec = components.spec(Tool::Kwok, &executable);
        assert_eq!(spec.args.last().unwrap(), "--v=1");
    }
}
