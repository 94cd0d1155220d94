//! `cargo xtask release`: everything that a release is made of, in one directory, from a clean checkout. The same commit makes the same
//! bytes; nothing is published.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use images::WrittenImage;
use images::layout::{Entry, architecture, compress, digest, pack};
use images::programs::{Build, Profile, about, build};
use jiff::Timestamp;
use toolbox::tools::{Tool, Toolbox};
use toolbox::workspace::target_directory;

use crate::workspace;

/// Everything of a release in one directory: images, SBOMs, the chart with the images' digests, install.yaml, the crate
/// conflict-retry, and checksums. Publishes nothing
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory to write into, which is made anew; by default `dist` in Cargo's target directory
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,

    /// Also from files that are not committed, for a try
    #[arg(long)]
    allow_dirty: bool,

    /// Only install.yaml, without building images: it names them by tag and not by digest
    #[arg(long)]
    manifest_only: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { directory, allow_dirty, manifest_only } = args;
    let (root, target) = (workspace::root(), target_directory());
    if !allow_dirty {
        clean(&root)?;
    }
    let directory = std::path::absolute(directory.unwrap_or_else(|| target.join("dist")))?;
    if directory.exists() {
        std::fs::remove_dir_all(&directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let (source, created) = (root.join("charts/tandem"), about(&root)?.created);
    if manifest_only {
        manifest(&chart(&source, &[])?, created, &directory).await?;
        println!("{}", directory.join("install.yaml").display());
        return Ok(());
    }
    let images = build(Build {
        cargo: workspace::cargo(),
        workspace: &root,
        target: &target,
        profile: Profile::Release,
        directory: directory.clone(),
        tag: None,
    })?;
    // The archive beside it is the same layout.
    for image in &images {
        std::fs::remove_dir_all(&image.layout)?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let chart = chart(&source, &images)?;
    std::fs::write(directory.join(format!("tandem-{version}.tgz")), compress(&pack(&chart, created)?)?)?;
    manifest(&chart, created, &directory).await?;
    package(&root, &target, &directory)?;
    checksums(&directory)?;
    println!("{}", std::fs::read_to_string(directory.join("SHA256SUMS"))?.trim_end());
    println!("in {}", directory.display());
    Ok(())
}

fn clean(root: &Path) -> anyhow::Result<()> {
    let output =
        Command::new("git").args(["status", "--porcelain"]).current_dir(root).stdin(Stdio::null()).output();
    let output = output.context("cannot run git")?;
    let changed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "a release is made from a git checkout");
    if changed.trim().is_empty() {
        return Ok(());
    }
    bail!(
        "a release is made from committed files (--allow-dirty for a try); these are not:\n{}",
        changed.trim_end()
    )
}

/// The files of the chart, with the images' digests as values.
fn chart(source: &Path, images: &[WrittenImage]) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut directories = vec![source.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path.strip_prefix(source)?.to_str().context("a path is not text")?;
            // Its tests and the source of its README are no part of a chart that is installed.
            if name == "tests" || name == "README.md.gotmpl" {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let mut contents = std::fs::read(&path)?;
            if name == "values.yaml" {
                let values = with_digests(&String::from_utf8(contents)?, images)?;
                let values = if images.is_empty() { values } else { on_nodes_of(&values, architecture())? };
                contents = values.into_bytes();
            }
            entries.push(Entry::file(&format!("tandem/{name}"), 0o644, contents));
        }
    }
    Ok(entries)
}

/// The values with the digest of each image behind its repository.
fn with_digests(values: &str, images: &[WrittenImage]) -> anyhow::Result<String> {
    let mut lines: Vec<String> = values.lines().map(str::to_owned).collect();
    for image in images {
        let name =
            image.reference.rsplit('/').next().and_then(|name| name.split(':').next()).unwrap_or_default();
        let named = format!("repository: tandem-dev/{name}");
        let at = lines.iter().position(|line| line.trim() == named);
        let at = at.with_context(|| format!("values.yaml has no line `{named}`"))?;
        let empty = lines.iter().skip(at).position(|line| line.trim() == r#"digest: """#);
        let line = at + empty.with_context(|| format!("values.yaml has no empty digest behind `{named}`"))?;
        if let Some(line) = lines.get_mut(line) {
            *line = line.replace(r#""""#, &image.digest);
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// The values with operators that run only on nodes of this architecture: these images have programs for no other.
fn on_nodes_of(values: &str, architecture: &str) -> anyhow::Result<String> {
    const ON: &str = "    kubernetes.io/os: linux\n";
    ensure!(values.matches(ON).count() == 2, "values.yaml has not two lines `{}`", ON.trim());
    Ok(values.replace(ON, &format!("{ON}    kubernetes.io/arch: {architecture}\n")))
}

/// What `kubectl apply` takes where there is no Helm: the chart as it is, in its usual namespace.
async fn manifest(chart: &[Entry], created: Timestamp, directory: &Path) -> anyhow::Result<()> {
    let unpacked = tempfile::tempdir()?;
    let archive = unpacked.path().join("tandem.tgz");
    std::fs::write(&archive, compress(&pack(chart, created)?)?)?;
    let toolbox = Toolbox { assets: None, ..Toolbox::from_environment() };
    let helm = toolbox.find(&[Tool::Helm]).await?.pop().context("the toolbox is empty")?;
    let output = Command::new(helm.path)
        .args(helm.first_args)
        .args(["template", "tandem"])
        .arg(&archive)
        .args(["--namespace", "tandem-system", "--no-hooks"])
        .env("HOME", unpacked.path())
        .stdin(Stdio::null())
        .output()
        .context("cannot run helm")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: tandem-system\n";
    let text = format!("{namespace}{}", String::from_utf8(output.stdout)?);
    std::fs::write(directory.join("install.yaml"), text).context("cannot write install.yaml")
}

/// The crate that others use alone, as crates.io would get it.
fn package(root: &Path, target: &Path, directory: &Path) -> anyhow::Result<()> {
    let status = workspace::cargo()
        .args([
            "package",
            "--quiet",
            "--locked",
            "--no-verify",
            "--allow-dirty",
            "--package",
            "conflict-retry",
            "--target-dir",
        ])
        .arg(target)
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "cargo cannot package conflict-retry");
    let file = format!("conflict-retry-{}.crate", env!("CARGO_PKG_VERSION"));
    std::fs::copy(target.join("package").join(&file), directory.join(&file))?;
    Ok(())
}

/// In the form of `sha256sum`, which checks it.
fn checksums(directory: &Path) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a name is not text")?;
        lines.push((name.clone(), format!("{}  {name}\n", digest(&std::fs::read(entry.path())?))));
    }
    lines.sort();
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    std::fs::write(directory.join("SHA256SUMS"), text).context("cannot write SHA256SUMS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_of_the_chart_has_its_digest_in_the_values() {
        let image = |name: &str, digit: char| WrittenImage {
            reference: format!("ghcr.io/tandem-dev/{name}:1"),
            digest: format!("sha256:{}", digit.to_string().repeat(64)),
            layout: PathBuf::new(),
            archive: PathBuf::new(),
            size: 0,
        };
        let images =
            [image("nodepool-operator", '1'), image("autoscaler-operator", '2'), image("tandem-exec", '3')];
        let source = workspace::root().join("charts/tandem/values.yaml");
        let text = std::fs::read_to_string(source).unwrap();
        assert_eq!(with_digests(&text, &[]).unwrap(), text);
        let values = with_digests(&text, &images).unwrap();
        let values: serde_json::Value = serde_saphyr::from_str(&values).unwrap();
        let at = |pointer: &str| values.pointer(pointer).and_then(|value| value.as_str()).unwrap().to_owned();
        assert_eq!(at("/nodepoolOperator/image/digest"), images[0].digest);
        assert_eq!(at("/autoscalerOperator/image/digest"), images[1].digest);
        assert_eq!(at("/providers/execImage/digest"), images[2].digest);
        assert!(with_digests("", &images).is_err());
    }
    #[test]
    fn operators_run_only_on_nodes_that_their_images_have_programs_for() {
        let source = workspace::root().join("charts/tandem/values.yaml");
        let text = std::fs::read_to_string(source).unwrap();
        let values: serde_json::Value =
            serde_saphyr::from_str(&on_nodes_of(&text, "arm64").unwrap()).unwrap();
        for operator in ["nodepoolOperator", "autoscalerOperator"] {
            let expected = serde_json::json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"});
            assert_eq!(values[operator]["nodeSelector"], expected);
        }
        assert!(on_nodes_of("", "arm64").is_err());
    }
}
