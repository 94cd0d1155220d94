//! Where the chart is installed: on a kind cluster made here, or on one of the user's.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use images::WrittenImage;
use images::programs::{Build, build};
use testbed::borrowed;
use testbed::cluster::Cluster;
use testbed::kind::Kind;
use testbed::played_kubelets::PlayedKubelets;
use toolbox::messages::inform;
use toolbox::workspace::cargo;
use toolbox::workspace::target_directory;

/// The kubeconfig of the user's cluster; `cargo e2e --kubeconfig` sets it.
const KUBECONFIG: &str = "TANDEM_E2E_KUBECONFIG";
/// The registry that its nodes pull the images from; without it, they have them.
const REGISTRY: &str = "TANDEM_E2E_REGISTRY";

/// A cluster that has the images, or can pull them.
pub(crate) struct Place {
    kubeconfig: PathBuf,
    kind: Option<Kind>,
    images: Vec<WrittenImage>,
    kubelets: PlayedKubelets,
}

/// The kubeconfig that the user names.
pub(crate) fn of_the_user() -> Option<PathBuf> {
    std::env::var_os(KUBECONFIG).map(PathBuf::from)
}

impl Place {
    /// On a cluster of the user's nothing is changed before it is known that it is not in use.
    pub(crate) async fn find() -> Result<Self> {
        let (kubeconfig, kind, images) = if let Some(kubeconfig) = of_the_user() {
            // Before anything is started on it: a kwok would play the kubelets of nodes of others.
            let directory = tempfile::tempdir()?;
            borrowed::check(&Cluster::of(&kubeconfig, directory.path()).await?).await?;
            (kubeconfig, None, Vec::new())
        } else {
            let (kind, images) = make().await?;
            (kind.kubeconfig().to_owned(), Some(kind), images)
        };
        let kubelets = PlayedKubelets::start(&kubeconfig).await?;
        Ok(Self { kubeconfig, kind, images, kubelets })
    }

    /// The administrator's.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn kind(&self) -> Option<&Kind> {
        self.kind.as_ref()
    }

    /// Those that were made for the kind cluster.
    pub(crate) fn images(&self) -> &[WrittenImage] {
        &self.images
    }

    /// The kwok beside the cluster.
    pub(crate) fn kubelets(&self) -> &PlayedKubelets {
        &self.kubelets
    }

    pub(crate) async fn cluster(&self) -> Result<Cluster> {
        Cluster::of(&self.kubeconfig, self.kubelets.directory()).await
    }
}

/// What the chart is told everywhere: where its images are.
pub(crate) fn values() -> Vec<String> {
    let registry = std::env::var(REGISTRY);
    registry
        .map(|registry| vec!["--set".to_owned(), format!("global.image.registry={registry}")])
        .unwrap_or_default()
}

async fn make() -> Result<(Kind, Vec<WrittenImage>)> {
    let images = tokio::task::spawn_blocking(|| {
        inform("building the operators' images");
        build(Build::for_tests(cargo(), &workspace()?, &target_directory()))
    });
    let images = images.await??;
    let kind = Kind::start().await?;
    for image in &images {
        kind.load(&image.archive).await?;
    }
    Ok((kind, images))
}

/// The root of the workspace.
pub(crate) fn workspace() -> Result<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    Ok(workspace.context("no workspace")?.to_owned())
}
