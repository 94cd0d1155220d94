//! A program of a Go module of its own below `testbed/`, built once and kept in Cargo's target directory.

use std::fs::File;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use fnv::FnvHasher;
use tokio::process::Command;
use toolbox::go::Go;
use toolbox::messages::inform;
use toolbox::workspace::target_directory;

/// Such a program.
#[derive(Clone, Copy, Debug)]
pub struct GoProgram {
    /// The directory of the module, from `testbed/`.
    pub module: &'static str,
    /// The package to build. Its last part is the name of the binary.
    pub package: &'static str,
    /// How long that takes on two cores, for people who wait.
    pub takes: &'static str,
    /// Whether it is linked with the system's C library, which a container image may not have.
    pub cgo: bool,
}

impl GoProgram {
    fn directory(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.module)
    }

    /// The binary, which is built if it is missing.
    ///
    /// # Errors
    /// When it cannot be built; the message tells what to install.
    pub async fn find(self) -> Result<PathBuf> {
        tokio::task::spawn_blocking(move || self.find_blocking()).await?
    }

    fn find_blocking(self) -> Result<PathBuf> {
        // A module that is not below `testbed/` has a directory there too: its path alone would lead out of it.
        let cache = target_directory().join(self.module.trim_start_matches("../").replace('/', "-"));
        let built = cache.join(self.key()?);
        let name = self.package.rsplit('/').next().unwrap_or(self.package);
        let binary = built.join(name);
        if binary.is_file() {
            return Ok(binary);
        }
        std::fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
        let lock = File::create(cache.join("lock")).context("cannot create the build's lock")?;
        if lock.try_lock().is_err() {
            inform(&format!("another process builds {}: waiting for it", self.package));
            lock.lock().context("cannot lock the build")?;
        }
        if !binary.is_file() {
            let module = self.directory();
            let go = Go::find(std::env::var_os("PATH").as_deref(), &module, self.package)?;
            inform(&format!("building {} with go {}: {}, once", self.package, go.version(), self.takes));
            let aside = tempfile::Builder::new().prefix("building-").tempdir_in(&cache)?;
            go.build(&module, &[self.package], self.cgo, aside.path())?;
            remove_others(&cache, &[&built, aside.path()])?;
            std::fs::create_dir_all(&built)?;
            let made = aside.path().join(name);
            std::fs::rename(made, &binary).with_context(|| format!("cannot keep {}", self.package))?;
        }
        Ok(binary)
    }

    fn key(&self) -> Result<String> {
        let mut hasher = FnvHasher::default();
        let mut files = vec!["go.mod".to_owned(), "go.sum".to_owned()];
        // Of a program of our own, its sources too.
        let entries = std::fs::read_dir(self.directory()).context("no Go module")?;
        let mut own: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        own.retain(|name| Path::new(name).extension().is_some_and(|kind| kind == "go"));
        own.sort();
        files.extend(own);
        for name in files {
            let path = self.directory().join(name);
            let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            hasher.write(&bytes);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// The sources of `dependency`, a Go module that this one names.
    ///
    /// # Errors
    /// When Go cannot find it.
    pub async fn sources_of(self, dependency: &str) -> Result<PathBuf> {
        let output = Command::new("go")
            .args(["list", "-m", "-f", "{{.Dir}}", dependency])
            .env("GOWORK", "off")
            .current_dir(self.directory())
            .output()
            .await
            .context("cannot run go")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "go list {dependency} failed: {error}");
        Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    }
}

/// Removes all directories of `cache` but those to `keep`: what was built from another state of the module, a hundred
/// megabytes each, and what an interrupted build left. The caller holds the lock, so no other build is under way. Processes
/// that run these binaries are not affected.
fn remove_others(cache: &Path, keep: &[&Path]) -> Result<()> {
    for entry in std::fs::read_dir(cache)? {
        let path = entry?.path();
        if path.is_dir() && !keep.contains(&path.as_path()) {
            std::fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_other_states_and_interrupted_ones_are_removed_and_the_lock_stays() {
        let cache = tempfile::tempdir().unwrap();
        let path = |name: &str| cache.path().join(name);
        for name in ["0123", "4567", "building-now", "building-then"] {
            std::fs::create_dir(path(name)).unwrap();
            std::fs::write(path(name).join("kwok"), "").unwrap();
        }
        std::fs::write(path("lock"), "").unwrap();
        remove_others(cache.path(), &[&path("4567"), &path("building-now")]).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["4567", "building-now", "lock"]);
    }
}
