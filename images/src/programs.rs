//! Builds the operators as static programs, which need nothing of the system they run on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use crate::checks::{MOST_BYTES, check};
use crate::debian::{self, Taken};
use crate::sbom::{self, Metadata};
use crate::{About, Contents, WrittenImage};

/// The operators: their packages, which are also the names of their programs and of their images.
pub const OPERATORS: [&str; 2] = ["nodepool-operator", "autoscaler-operator"];

/// The registry and the account that the chart names.
const REPOSITORY: &str = "ghcr.io/tandem-dev";

/// Bytes of an operator's image that is published, at most.
const MOST_RELEASED_BYTES: u64 = 20_000_000;

/// The image of the first operator with what programs of the provider `exec` need.
pub const WITH_TOOLS: &str = "tandem-exec";
const PACKAGES: [&str; 5] = ["busybox-static", "curl", "jq", "openssh-client", "tini"];
const TOOLS: [&str; 8] = [
    "bin/busybox",
    "usr/bin/curl",
    "usr/bin/jq",
    "usr/bin/scp",
    "usr/bin/ssh",
    "usr/bin/ssh-keygen",
    "usr/bin/ssh-keyscan",
    "usr/bin/tini-static",
];
const INIT: [&str; 2] = ["/usr/bin/tini-static", "--"];

/// How much is optimized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Quick to build, for tests.
    Dev,
    /// What is published.
    Release,
}

/// What is built, and where.
#[derive(Debug)]
pub struct Build<'a> {
    /// Cargo, without arguments.
    pub cargo: Command,
    /// The sources.
    pub workspace: &'a Path,
    /// Cargo's target directory.
    pub target: &'a Path,
    /// How much is optimized.
    pub profile: Profile,
    /// Where the images are written.
    pub directory: PathBuf,
    /// The tag of the images; without it, the version.
    pub tag: Option<&'a str>,
}

impl<'a> Build<'a> {
    /// For tests and daily work: quick to build, in Cargo's target directory.
    pub fn for_tests(cargo: Command, workspace: &'a Path, target: &'a Path) -> Self {
        Self { cargo, workspace, target, profile: Profile::Dev, directory: target.join("images"), tag: None }
    }
}

/// Builds both operators and writes all images: those of [`build_operators`], and [`WITH_TOOLS`]. Beside each is what it is made of, as
/// `NAME.cdx.json`. What is returned has been [checked](crate::checks).
///
/// # Errors
/// When Cargo cannot build them, with its output, a package of Debian cannot be had, or an image cannot be written or is not as it
/// should be.
pub fn build(build: Build<'_>) -> Result<Vec<WrittenImage>> {
    let Build { cargo, workspace, target, profile, directory, tag } = build;
    let about = about(workspace)?;
    let program = cargo.get_program().to_owned();
    let programs = compile(cargo, workspace, target, profile, &[])?;
    let mut written = operators(&programs, &about, &directory, tag)?;
    let tools = tools(&target.join("image-packages"))?;
    let contents = Contents { program: &programs.join(OPERATORS[0]), init: &INIT, tools: tools.entries };
    written.push(crate::write(&reference(WITH_TOOLS, tag), contents, &about, &directory)?);

    for image in &written {
        check(image, most_bytes(profile, image))?;
    }
    let crates = Metadata::read(Command::new(program), workspace, &platform())?;
    for (image, package, debian) in [
        (OPERATORS[0], OPERATORS[0], &[][..]),
        (OPERATORS[1], OPERATORS[1], &[]),
        (WITH_TOOLS, OPERATORS[0], &tools.packages),
    ] {
        let document = sbom::document(&crates, package, image, debian)?;
        let file = directory.join(format!("{image}.cdx.json"));
        let text = serde_json::to_string_pretty(&document)? + "\n";
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(written)
}

/// Builds both operators and writes an image of each, in the order of [`OPERATORS`].
///
/// # Errors
/// When Cargo cannot build them, with its output, or an image cannot be written.
pub fn build_operators(build: Build<'_>) -> Result<Vec<WrittenImage>> {
    let about = about(build.workspace)?;
    let apart = if build.tag.is_some() { apart(build.workspace)? } else { Vec::new() };
    let programs = compile(build.cargo, build.workspace, build.target, build.profile, &apart)?;
    operators(&programs, &about, &build.directory, build.tag)
}

/// What an image may have. The README says it of those that are published.
fn most_bytes(profile: Profile, image: &WrittenImage) -> u64 {
    if profile == Profile::Release && !image.reference.contains(WITH_TOOLS) {
        MOST_RELEASED_BYTES
    } else {
        MOST_BYTES
    }
}

fn operators(
    programs: &Path,
    about: &About,
    directory: &Path,
    tag: Option<&str>,
) -> Result<Vec<WrittenImage>> {
    let write = |name: &str| {
        let contents = Contents { program: &programs.join(name), init: &[], tools: Vec::new() };
        crate::write(&reference(name, tag), contents, about, directory)
    };
    OPERATORS.iter().map(|name| write(name)).collect()
}

fn reference(name: &str, tag: Option<&str>) -> String {
    format!("{REPOSITORY}/{name}:{}", tag.unwrap_or(env!("CARGO_PKG_VERSION")))
}

/// What programs of the provider `exec` usually need: a shell with its small programs, HTTP, JSON, SSH, and an init process, because
/// the operator reaps its own children only.
fn tools(cache: &Path) -> Result<Taken> {
    let mut taken = debian::take(cache, &PACKAGES, &TOOLS)?;
    debian::applets(&mut taken.entries)?;
    Ok(taken)
}

/// The workspace itself, or the one whose target directory holds it: with the same flags, both share what is built of other crates.
fn outermost(workspace: &Path) -> &Path {
    workspace.ancestors().filter(|above| above.join("Cargo.lock").is_file()).last().unwrap_or(workspace)
}

fn platform() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Settings by which Cargo keeps what it builds of the packages of another commit apart from what it builds of ours, in one target
/// directory. It names both by the package and its profile, not by where the sources are, and would take one for the other where the
/// files are older than what was built of the other ones. The number of codegen units means nothing here; Cargo's default is 256.
fn apart(workspace: &Path) -> Result<Vec<String>> {
    let packages = std::fs::read_to_string(workspace.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    // A package without a source is one of the workspace.
    let own = packages.split("[[package]]").skip(1).filter(|package| !package.contains("\nsource = "));
    let names = own.filter_map(|package| package.split('"').nth(1));
    let apart: Vec<String> =
        names.map(|name| format!("profile.dev.package.{name}.codegen-units=255")).collect();
    ensure!(!apart.is_empty(), "Cargo.lock of {} names no package of its own", workspace.display());
    Ok(apart)
}

/// The directory with the static programs. `settings` are more of Cargo's configuration.
fn compile(
    mut command: Command,
    workspace: &Path,
    target: &Path,
    profile: Profile,
    settings: &[String],
) -> Result<PathBuf> {
    let platform = platform();
    ensure!(cfg!(target_os = "linux"), "images are built on Linux: their programs are linked for {platform}");
    // Named, even where it is the platform of the build: then the flags are not those of build scripts and macros, which
    // cannot be static.
    let (profile, below) = match profile {
        Profile::Dev => ("dev", "debug"),
        Profile::Release => ("release", "release"),
    };
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    // No path of this machine gets into the programs, so that another one builds the same.
    let flags = [
        "-Ctarget-feature=+crt-static".to_owned(),
        "-Cstrip=symbols".to_owned(),
        format!("--remap-path-prefix={home}=/cargo"),
        format!("--remap-path-prefix={}=/tandem", outermost(workspace).display()),
    ];
    command
        .args(["build", "--locked", "--profile", profile, "--target", &platform, "--target-dir"])
        .arg(target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .current_dir(workspace)
        .stdin(Stdio::null());
    for setting in settings {
        command.args(["--config", setting]);
    }
    for operator in OPERATORS {
        command.args(["--package", operator]);
    }
    let output = command.output().context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "cargo cannot build the operators:\n{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(target.join(platform).join(below))
}

/// The version, and the commit with its time. Without git, as in an unpacked archive, the image says no commit and 1970.
///
/// # Errors
/// When git prints no time.
pub fn about(workspace: &Path) -> Result<About> {
    let git = |format: &str| {
        let output = Command::new("git")
            .args(["log", "-1", format])
            .current_dir(workspace)
            .stdin(Stdio::null())
            .output();
        let output = output.ok().filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let created = git("--format=%ct").parse().unwrap_or(0);
    Ok(About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: git("--format=%H"),
        created: Timestamp::from_second(created)?,
        source: env!("CARGO_PKG_REPOSITORY").to_owned(),
    })
}
