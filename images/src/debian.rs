//! Programs of Debian's packages with the libraries that they need, and nothing else of the packages. Nothing is installed, and
//! nothing needs root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use object::Endianness;
use object::elf::{DT_NEEDED, PT_INTERP};
use object::read::elf::{Dyn as _, ElfFile64, ProgramHeader as _};
use tempfile::TempDir;

use crate::layout::Entry;

/// Where libraries are, by the architecture of the build.
const TRIPLE: &str = if cfg!(target_arch = "aarch64") { "aarch64-linux-gnu" } else { "x86_64-linux-gnu" };

/// Directories of an older layout, which are links to those below `usr` in every system of today.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// What was taken of the packages.
#[derive(Debug)]
pub struct Taken {
    /// Programs, libraries, and links to them.
    pub entries: Vec<Entry>,
    /// The packages that something was taken of.
    pub packages: Vec<Package>,
}

/// A package of Debian.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// As `apt` has it.
    pub name: String,
    /// Of the package, with Debian's own part.
    pub version: String,
}

/// What an archive holds under a path.
enum Content {
    File { mode: u32, bytes: Vec<u8> },
    Link(String),
}

/// The files of all packages, by their paths from the root.
struct Files {
    packages: Vec<Package>,
    /// With the package's place in the list.
    contents: BTreeMap<String, (usize, Content)>,
}

/// Takes these programs, given as paths from the root, and what they need. `packages` hold them; what those depend on is fetched
/// with them, into `cache`, if it is not there.
///
/// # Errors
/// When there is no `apt-get`, a package cannot be fetched or read, or a program or library is in none of them.
pub fn take(cache: &Path, packages: &[&str], programs: &[&str]) -> Result<Taken> {
    let files = Files::read(&fetch(cache, packages)?)?;
    let mut taken: BTreeMap<String, Entry> = BTreeMap::new();
    let mut used = BTreeSet::new();
    let mut wanted: Vec<String> = programs.iter().map(|program| merged(program)).collect();
    while let Some(path) = wanted.pop() {
        if taken.contains_key(&path) {
            continue;
        }
        let (package, content) =
            files.contents.get(&path).with_context(|| format!("no package of the image has {path}"))?;
        used.insert(*package);
        let entry = match content {
            Content::Link(target) => {
                wanted.push(beside(&path, target));
                Entry::link(&path, target)
            }
            Content::File { mode, bytes } => {
                for needed in libraries(bytes).with_context(|| format!("cannot read {path}"))? {
                    wanted.push(files.find(&needed).with_context(|| {
                        format!("{path} needs {needed}, which is in no package of the image")
                    })?);
                }
                // Without the bits that give a program its owner's rights.
                Entry::file(&path, mode & 0o755, bytes.clone())
            }
        };
        taken.insert(path, entry);
    }
    let links = MERGED.iter().map(|name| Entry::link(name, &format!("usr/{name}")));
    let packages = used.iter().filter_map(|place| files.packages.get(*place).cloned()).collect();
    Ok(Taken { entries: links.chain(taken.into_values()).collect(), packages })
}

/// Links for the applets of a busybox among these entries, where no entry has their name.
///
/// # Errors
/// When it is not there, or does not run here.
pub fn applets(entries: &mut Vec<Entry>) -> Result<()> {
    const BUSYBOX: &str = "usr/bin/busybox";
    let busybox = entries.iter().find(|entry| entry.path() == BUSYBOX).context("there is no busybox")?;
    let directory = tempfile::tempdir()?;
    let program = directory.path().join("busybox");
    std::fs::write(&program, busybox.contents())?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let listed = output(Command::new(&program).arg("--list"))?;
    for applet in listed.lines().filter(|applet| *applet != "busybox") {
        let path = format!("usr/bin/{applet}");
        if !entries.iter().any(|entry| entry.path() == path) {
            entries.push(Entry::link(&path, "busybox"));
        }
    }
    Ok(())
}

impl Files {
    fn read(archives: &[PathBuf]) -> Result<Self> {
        let mut files = Self { packages: Vec::new(), contents: BTreeMap::new() };
        for archive in archives {
            files.add(archive).with_context(|| format!("cannot read {}", archive.display()))?;
        }
        Ok(files)
    }

    fn add(&mut self, archive: &Path) -> Result<()> {
        let field = |name: &str| output(Command::new("dpkg-deb").arg("--field").arg(archive).arg(name));
        let (name, version) = (field("Package")?, field("Version")?);
        let place = self.packages.len();
        self.packages.push(Package { name: name.trim().to_owned(), version: version.trim().to_owned() });
        // Into a file: of a pipe that nobody reads to its end, the other side would complain.
        let directory = TempDir::new()?;
        let unpacked = directory.path().join("files.tar");
        let mut command = Command::new("dpkg-deb");
        command.arg("--fsys-tarfile").arg(archive).stdout(File::create(&unpacked)?);
        run(&mut command)?;
        let mut tar = tar::Archive::new(File::open(&unpacked)?);
        for entry in tar.entries()? {
            let mut entry = entry?;
            let path = merged(&entry.path()?.to_string_lossy());
            let target = entry.link_name()?.map(|target| target.to_string_lossy().into_owned());
            let content = match (entry.header().entry_type(), target) {
                (tar::EntryType::Regular, _) => {
                    let mut bytes = Vec::new();
                    entry.read_to_end(&mut bytes)?;
                    Content::File { mode: entry.header().mode()?, bytes }
                }
                (tar::EntryType::Symlink, Some(target)) => Content::Link(target),
                // A second name of a file that came before.
                (tar::EntryType::Link, Some(target)) => Content::Link(format!("/{}", merged(&target))),
                _ => continue,
            };
            self.contents.insert(path, (place, content));
        }
        Ok(())
    }

    /// The path of a library, or of the loader, that an ELF file names.
    fn find(&self, needed: &str) -> Option<String> {
        let places = [merged(needed), format!("usr/lib/{TRIPLE}/{needed}"), format!("usr/lib/{needed}")];
        places.into_iter().find(|path| self.contents.contains_key(path))
    }
}

/// The loader and the libraries that a file names; none where it is not an ELF file, as a script is not.
pub(crate) fn libraries(bytes: &[u8]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(names);
    }
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    let endian = file.endian();
    for header in file.elf_program_headers() {
        if header.p_type(endian) == PT_INTERP {
            let name = header.data(endian, file.data()).ok().context("the loader's name cannot be read")?;
            let name = name.strip_suffix(b"\0").unwrap_or(name);
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    let sections = file.elf_section_table();
    if let Some((entries, index)) = sections.dynamic(endian, file.data())? {
        let strings = sections.strings(endian, file.data(), index)?;
        for entry in entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
            names.push(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned());
        }
    }
    Ok(names)
}

/// A path from the root without a leading `./` or `/`, below `usr` where today's systems have it.
fn merged(path: &str) -> String {
    let path = path.trim_start_matches("./").trim_start_matches('/').trim_end_matches('/');
    let first = path.split('/').next().unwrap_or_default();
    if MERGED.contains(&first) && path != first { format!("usr/{path}") } else { path.to_owned() }
}

/// The path that a link at `path` leads to.
fn beside(path: &str, target: &str) -> String {
    if target.starts_with('/') {
        return merged(target);
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    merged(&parts.join("/"))
}

/// The archives of the packages and of what they depend on, in `cache`.
fn fetch(cache: &Path, packages: &[&str]) -> Result<Vec<PathBuf>> {
    ensure!(
        Path::new("/usr/bin/apt-get").is_file(),
        "the programs of this image come from Debian's packages, and there is no apt-get"
    );
    std::fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let names = closure(packages)?;
    let Ok(listed) = print_uris(&names) else {
        // The lists were never fetched.
        output(Command::new("apt-get").args(["update", "--quiet"]))?;
        return fetch_listed(cache, &names, &print_uris(&closure(packages)?)?);
    };
    fetch_listed(cache, &names, &listed)
}

fn fetch_listed(cache: &Path, names: &[String], listed: &str) -> Result<Vec<PathBuf>> {
    // 'URI' FILE SIZE HASH
    let archives: Vec<PathBuf> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .map(|file| cache.join(file))
        .collect();
    ensure!(archives.len() >= names.len(), "apt-get lists {} of {} packages", archives.len(), names.len());
    if !archives.iter().all(|archive| archive.is_file()) {
        // Where root may not become another user, or that one may not write here.
        let own = ["download", "--quiet", "--option", "APT::Sandbox::User=root"];
        output(Command::new("apt-get").args(own).args(names).current_dir(cache))?;
    }
    match archives.iter().find(|archive| !archive.is_file()) {
        None => Ok(archives),
        Some(missing) => bail!("apt-get has not downloaded {}", missing.display()),
    }
}

fn print_uris(names: &[String]) -> Result<String> {
    // It lists no package whose archive is in the directory.
    let empty = TempDir::new()?;
    let mut command = Command::new("apt-get");
    let listed = output(command.args(["download", "--print-uris"]).args(names).current_dir(&empty))?;
    ensure!(!listed.trim().is_empty(), "apt-get knows none of the packages");
    Ok(listed)
}

/// The packages, and what they depend on.
fn closure(packages: &[&str]) -> Result<Vec<String>> {
    let without = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"];
    let mut command = Command::new("apt-cache");
    command.args(["depends", "--recurse"]).args(without.map(|what| format!("--no-{what}"))).args(packages);
    let printed = output(&mut command)?;
    // Names without indentation; those in angle brackets are virtual.
    let names = printed.lines().filter(|line| !line.starts_with([' ', '<', '|']));
    let mut names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", name(command)))?;
    ensure!(
        output.status.success(),
        "{} failed:\n{}",
        name(command),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Like [`output`], for a command whose standard output goes elsewhere or is of no interest.
fn run(command: &mut Command) -> Result<()> {
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let output = child.with_context(|| format!("cannot run {}", name(command)))?.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{} failed:\n{}",
        name(command),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
