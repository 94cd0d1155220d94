//! Where the browser is: found on this machine, or installed.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result};

/// Names that Chromium goes by.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The browser: the one that is named, or one of this machine, or Debian's, which root may install.
pub(crate) fn find() -> Result<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Ok(named.into());
    }
    let found = FOUND.get_or_init(|| {
        let _turn = turn();
        installed().or_else(|| install().then(installed).flatten())
    });
    found.clone().context(
        "there is no Chromium to look at the page with; install one (apt-get install -y chromium), or name one: \
         CHROMIUM=/path/to/chromium",
    )
}

/// Held by one test program at a time: another one may be installing it, and until then its files are not whole.
fn turn() -> Option<File> {
    let packages = File::open("/var/lib/dpkg").ok()?;
    packages.lock().ok()?;
    Some(packages)
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .flat_map(|directory| NAMES.map(|name| directory.join(name)))
        .find(|program| program.is_file())
}

/// Whether Debian's package could be installed: as root, with apt.
fn install() -> bool {
    const SCRIPT: &str = "apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium";
    if !nix::unistd::geteuid().is_root() {
        return false;
    }
    eprintln!("installing Debian's Chromium, once: {SCRIPT}");
    let mut install = Command::new("sh");
    install.args(["-c", SCRIPT]).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    install.status().is_ok_and(|status| status.success())
}
