//! The workspace: its directory, generated files in it, its Cargo, and where that builds.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// The root of the workspace: the folder above this package.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Cargo as a user would call it: with its variables about the package that calls, it would build the dependencies that look at
/// them anew, and all that is built on those.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_str().unwrap_or_default();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// Cargo's target directory: the one this binary was built in, which Cargo marks with a `CACHEDIR.TAG`. Cargo has
/// already applied `CARGO_TARGET_DIR` and its configuration files.
pub fn target_directory() -> PathBuf {
    let this = std::env::current_exe().ok();
    let marked = this
        .as_deref()
        .and_then(|path| path.ancestors().skip(1).find(|directory| directory.join("CACHEDIR.TAG").is_file()));
    match (marked, std::env::var_os("CARGO_TARGET_DIR")) {
        (Some(directory), _) => directory.to_owned(),
        (None, Some(directory)) => PathBuf::from(directory),
        (None, None) => root().join("target"),
    }
}

/// Writes `text` to `path` (below the root) when it differs; with `check`, says so instead and fails.
///
/// # Errors
/// When it differs and `check` is set, or when it cannot be written.
pub fn generate(path: &str, text: &str, check: bool) -> anyhow::Result<()> {
    let file = root().join(path);
    let present = std::fs::read_to_string(&file).unwrap_or_default();
    if present == text {
        return Ok(());
    }
    if check {
        bail!(
            "{path} is not what the sources generate; run the same task without --check and commit the result"
        );
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder of {path}"))?;
    }
    std::fs::write(&file, text).with_context(|| format!("cannot write {path}"))?;
    println!("wrote {path}");
    Ok(())
}
