//! Debian's packages, unpacked below Cargo's target directory and not installed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;
use toolbox::messages::inform;
use toolbox::workspace::target_directory;

/// The directory `name` of Cargo's target directory with these packages, which are fetched if it is missing.
///
/// # Errors
/// When a package cannot be had.
pub(crate) async fn unpacked(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let root = target_directory().join(name);
    // The list is part of what is kept: another list is fetched anew.
    let list = packages.join("\n");
    if std::fs::read_to_string(root.join("packages")).is_ok_and(|kept| kept == list) {
        return Ok(root);
    }
    inform(&format!("unpacking Debian's {}, once; kept in {}", packages.join(", "), root.display()));
    let aside = tempfile::Builder::new().prefix("unpacking-").tempdir_in(target_directory())?;
    download(aside.path(), packages).await?;
    std::fs::write(aside.path().join("packages"), list)?;
    if root.exists() {
        std::fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    std::fs::rename(aside.keep(), &root).context("cannot keep what was unpacked")?;
    Ok(root)
}

/// Makes a root file system of Debian with these packages in `directory`, with the `mmdebstrap` among `tools`, which are unpacked.
///
/// # Errors
/// When a package cannot be had.
pub(crate) async fn root_file_system(tools: &Path, packages: &[&str], directory: &Path) -> Result<()> {
    let directory = directory.to_str().context("a path is not text")?;
    let include = format!("--include={}", packages.join(","));
    let args = [
        "--mode=root",
        "--variant=minbase",
        r#"--aptopt=Acquire::Languages "none""#,
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        &include,
        "bookworm",
        directory,
    ];
    // It calls a program that is beside it.
    let mut path = vec![tools.join("usr/bin")];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(path)?.into_string().ok().context("PATH is not text")?;
    run(Path::new("/"), "env", &[&[&*format!("PATH={path}"), "mmdebstrap"], &args[..]].concat()).await
}

/// Fetches packages and unpacks them into `directory`.
///
/// # Errors
/// When one cannot be had.
pub(crate) async fn download(directory: &Path, packages: &[&str]) -> Result<()> {
    // `_apt`, as whom apt-get downloads.
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777))?;
    let download = [&["download"][..], packages].concat();
    if run(directory, "apt-get", &download).await.is_err() {
        // The lists may be old, or never have been fetched.
        run(directory, "apt-get", &["update"]).await?;
        run(directory, "apt-get", &download).await?;
    }
    for package in std::fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()? {
        let path = package.path();
        run(directory, "dpkg-deb", &["--extract", &path.to_string_lossy(), "."]).await?;
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

/// Runs a program in `directory`.
///
/// # Errors
/// When it fails, with its standard error.
pub(crate) async fn run(directory: &Path, program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .await
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} {} failed:\n{}",
            args.first().unwrap_or(&""),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
