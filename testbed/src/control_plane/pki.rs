//! The identities of a private control plane: a certificate authority, the API server's certificate, the key that signs
//! service account tokens, and one random bearer token for each component.
//!
//! The components use tokens instead of client certificates: they do not depend on the clock and fit on one line of a
//! kubeconfig.

use anyhow::{Context as _, Result};
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::layout::{Layout, write};

/// An identity with a static token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The test itself, or a user: has all rights.
    Admin,
    /// kube-controller-manager, with the user name of the built-in roles.
    ControllerManager,
    /// kube-scheduler, with the user name of the built-in roles.
    Scheduler,
    /// kwok, which simulates every kubelet and therefore has their rights.
    Kwok,
}

impl Identity {
    const ALL: [Self; 4] = [Self::Admin, Self::ControllerManager, Self::Scheduler, Self::Kwok];

    /// The user name in RBAC and in the audit log.
    pub const fn user(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ControllerManager => "system:kube-controller-manager",
            Self::Scheduler => "system:kube-scheduler",
            Self::Kwok => "kwok",
        }
    }

    const fn group(self) -> &'static str {
        match self {
            Self::Admin | Self::Kwok => "system:masters",
            Self::ControllerManager | Self::Scheduler => "system:authenticated",
        }
    }

    /// The file name of its kubeconfig.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Kwok => "kwok",
        }
    }
}

/// Writes keys, certificates, the token file and the kubeconfig of each identity.
///
/// # Errors
/// When a key cannot be generated or a file cannot be written.
pub fn write_identities(layout: &Layout, api_server_port: u16) -> Result<()> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.distinguished_name.push(DnType::CommonName, "tandem test cluster");
    let authority_key = KeyPair::generate()?;
    write(&layout.pki("ca.crt"), &authority.self_signed(&authority_key)?.pem())?;

    // The last one is the address of the `kubernetes` Service inside the cluster.
    let names = ["localhost", "127.0.0.1", "kubernetes.default.svc", "10.96.0.1"].map(String::from);
    let mut server = CertificateParams::new(names)?;
    server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    let server_key = KeyPair::generate()?;
    let issuer = Issuer::new(authority, authority_key);
    write(&layout.pki("apiserver.crt"), &server.signed_by(&server_key, &issuer)?.pem())?;
    write(&layout.pki("apiserver.key"), &server_key.serialize_pem())?;

    let accounts_key = KeyPair::generate()?;
    write(&layout.pki("service-accounts.key"), &accounts_key.serialize_pem())?;
    write(&layout.pki("service-accounts.pub"), &accounts_key.public_key_pem())?;

    let mut tokens = String::new();
    for identity in Identity::ALL {
        let token = format!("{:032x}", rand::random::<u128>());
        tokens.push_str(&format!("{token},{},{},{}\n", identity.user(), identity.file(), identity.group()));
        let kubeconfig = kubeconfig(layout, api_server_port, identity.file(), token);
        write(&layout.kubeconfig(identity.file()), &serde_saphyr::to_string(&kubeconfig)?)?;
    }
    write(&layout.pki("tokens.csv"), &tokens)
}

fn kubeconfig(layout: &Layout, port: u16, user: &str, token: String) -> Kubeconfig {
    let cluster = Cluster {
        server: Some(format!("https://127.0.0.1:{port}")),
        certificate_authority: Some(layout.pki("ca.crt").display().to_string()),
        ..Cluster::default()
    };
    with_token(cluster, user, token)
}

/// A kubeconfig for another identity on the cluster of `base`.
///
/// # Errors
/// When `base` names no cluster.
pub fn kubeconfig_with_token(base: &Kubeconfig, user: &str, token: String) -> Result<Kubeconfig> {
    let current = base.current_context.as_deref();
    let context = base.contexts.iter().find(|context| Some(context.name.as_str()) == current);
    let name = context.and_then(|context| context.context.as_ref()).map(|context| context.cluster.as_str());
    let cluster = base.clusters.iter().find(|cluster| Some(cluster.name.as_str()) == name);
    let cluster = cluster.and_then(|cluster| cluster.cluster.clone());
    Ok(with_token(cluster.context("the kubeconfig's current context names no cluster")?, user, token))
}

fn with_token(cluster: Cluster, user: &str, token: String) -> Kubeconfig {
    const NAME: &str = "tandem";
    Kubeconfig {
        clusters: vec![NamedCluster { name: NAME.into(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo {
            name: user.into(),
            auth_info: Some(AuthInfo { token: Some(token.into()), ..AuthInfo::default() }),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: NAME.into(),
            context: Some(Context { cluster: NAME.into(), user: Some(user.into()), ..Context::default() }),
            ..NamedContext::default()
        }],
        current_context: Some(NAME.into()),
        kind: Some("Config".into()),
        api_version: Some("v1".into()),
        ..Kubeconfig::default()
    }
}
