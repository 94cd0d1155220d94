//! Holds a program, with all programs that it starts, to an amount of memory: a runaway fault then fails a test instead of
//! exhausting the machine.
//!
//! Where the harness may, it gives the program a memory cgroup of its own, as the kubelet does, below its own cgroup, so that
//! what holds for the harness holds for the program too. Elsewhere each process gets a limit of its address space, which is
//! coarse: see [`address_space`].

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{SIGKILL, kill};
use nix::unistd::Pid;

/// What the wrapper is told for a program without a limit.
pub(super) const UNLIMITED: &str = "unlimited";
const GROUP: &str = "group:";
const ADDRESS_SPACE: &str = "address-space:";

/// How the names of the groups begin; the process id of the supervisor follows.
const PREFIX: &str = "tandem-";

/// Interval between two attempts to remove a group, and their number: a killed process is in its group until the kernel has
/// taken it apart.
const POLL: Duration = Duration::from_millis(10);
const ATTEMPTS: u32 = 500;

/// The limit of one program.
#[derive(Debug)]
pub(super) enum MemoryLimit {
    Group(Group),
    AddressSpace(u64),
}

impl MemoryLimit {
    /// A limit of `bytes` for a program that is about to be started.
    pub(super) fn prepare(bytes: u64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Group::create(bytes).map_or_else(|| Self::AddressSpace(address_space(bytes, cores)), Self::Group)
    }

    /// What the wrapper is told.
    pub(super) fn argument(&self) -> OsString {
        match self {
            Self::Group(group) => {
                let mut argument = OsString::from(GROUP);
                argument.push(&group.directory);
                argument
            }
            Self::AddressSpace(bytes) => format!("{ADDRESS_SPACE}{bytes}").into(),
        }
    }

    /// After the program has ended: ends what it has left behind, as the end of a container does. Returns the limit if the
    /// kernel has killed a process because of it.
    pub(super) async fn close(self) -> Option<u64> {
        match self {
            Self::Group(group) => group.close().await,
            // The program's log says which allocation failed.
            Self::AddressSpace(_) => None,
        }
    }
}

/// In the process that will become the program.
///
/// # Errors
/// When the limit cannot be set.
pub(super) fn enter(argument: &OsStr) -> Result<()> {
    let text = argument.to_str().context("the limit is not text")?;
    if let Some(directory) = text.strip_prefix(GROUP) {
        // The kernel takes 0 for the process that writes it.
        std::fs::write(Path::new(directory).join("cgroup.procs"), "0")
            .with_context(|| format!("cannot enter the cgroup {directory}"))
    } else if let Some(bytes) = text.strip_prefix(ADDRESS_SPACE) {
        limit_address_space(bytes.parse()?)
    } else if text == UNLIMITED {
        Ok(())
    } else {
        bail!("unknown memory limit {text}")
    }
}

#[cfg(target_os = "linux")]
fn limit_address_space(bytes: u64) -> Result<()> {
    use nix::sys::resource::{Resource, setrlimit};
    setrlimit(Resource::RLIMIT_AS, bytes, bytes).context("cannot limit the address space")
}

#[cfg(not(target_os = "linux"))]
fn limit_address_space(_bytes: u64) -> Result<()> {
    Ok(())
}

/// The address space for a program that may have `bytes` of memory on a machine with this many cores.
///
/// An operator of a debug build with 10 MiB of its own memory has 260 MiB of address space on two cores: the mapped binary, and
/// 66 MiB for each of its three threads (stack, and a reserve of the allocator). The runtime has a thread for each core, and
/// some for blocking work. The programs that an operator starts have the same limit, each for itself, and one in Go reserves more
/// than 1 GiB at once.
fn address_space(bytes: u64, cores: u64) -> u64 {
    bytes + (4 << 30) + cores * (128 << 20)
}

/// A memory cgroup. Dropping this removes it if no process is in it.
#[derive(Debug)]
pub(super) struct Group {
    directory: PathBuf,
    limit: u64,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Group {
    /// `None` where this process may not create one.
    fn create(limit: u64) -> Option<Self> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let here = Hierarchy::find(&own, &mounts)?;
        let parent = here.parent_of_groups()?;
        remove_abandoned(&parent);
        let name = format!("{PREFIX}{}-{}", std::process::id(), CREATED.fetch_add(1, Ordering::Relaxed));
        let directory = parent.join(name);
        std::fs::create_dir(&directory).ok()?;
        let group = Self { directory, limit, version: here.version };
        group.set().ok()?;
        Some(group)
    }

    fn set(&self) -> std::io::Result<()> {
        let limit = self.limit.to_string();
        let write = |file: &str, value: &str| std::fs::write(self.directory.join(file), value);
        match self.version {
            Version::V1 => {
                write("memory.limit_in_bytes", &limit)?;
                // Absent where the kernel does not count swap.
                write("memory.memsw.limit_in_bytes", &limit).ok();
            }
            Version::V2 => {
                write("memory.max", &limit)?;
                write("memory.swap.max", "0").ok();
                // As the kubelet sets it: a container ends as a whole.
                write("memory.oom.group", "1").ok();
            }
        }
        // Whether a program may be put into it.
        OpenOptions::new().write(true).open(self.directory.join("cgroup.procs")).map(drop)
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.directory.join(file)).unwrap_or_default()
    }

    /// Whether the kernel has killed one of its processes because of its limit, and not because the machine was full.
    fn has_killed(&self) -> bool {
        match self.version {
            Version::V1 => {
                // Not `memory.failcnt`: there are kernels that leave it at 0.
                let most: u64 = self.read("memory.max_usage_in_bytes").trim().parse().unwrap_or_default();
                counter(&self.read("memory.oom_control"), "oom_kill") > 0 && most >= self.limit / 16 * 15
            }
            Version::V2 => {
                let events = self.read("memory.events");
                counter(&events, "oom_kill") > 0 && counter(&events, "oom") > 0
            }
        }
    }

    async fn close(self) -> Option<u64> {
        let killed = self.has_killed().then_some(self.limit);
        for _ in 0..ATTEMPTS {
            kill_members(&self.directory);
            if std::fs::remove_dir(&self.directory).is_ok() {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        killed
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.directory).ok();
    }
}

/// The number behind `name` in lines of names and numbers.
fn counter(text: &str, name: &str) -> u64 {
    let number = |line: &str| line.split_once(' ').filter(|(found, _)| *found == name)?.1.parse().ok();
    text.lines().find_map(number).unwrap_or_default()
}

/// Removes the groups of supervisors that were killed themselves, and ends what is still in them.
fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(supervisor_of);
        if id.is_some_and(|id| kill(Pid::from_raw(id), None) == Err(nix::Error::ESRCH)) {
            kill_members(&entry.path());
            // The kernel keeps it while a killed process is on its way out; the next supervisor tries again.
            std::fs::remove_dir(entry.path()).ok();
        }
    }
}

fn kill_members(group: &Path) {
    let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for id in members.lines().filter_map(|line| line.parse().ok()) {
        // It fails only for one that has just ended.
        kill(Pid::from_raw(id), SIGKILL).ok();
    }
}

/// The process id in the name of a group.
fn supervisor_of(name: &str) -> Option<i32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// Where the memory cgroups are, and this process among them.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// The directory of the root.
    root: PathBuf,
    /// The directory of this process's own group.
    own: PathBuf,
}

impl Hierarchy {
    /// From the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
    fn find(own: &str, mounts: &str) -> Option<Self> {
        let mut lines = own.lines().filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            Some((controllers, path))
        });
        let of_v1 = lines.clone().find(|(controllers, _)| controllers.split(',').any(|it| it == "memory"));
        let (version, path) = match of_v1 {
            Some((_, path)) => (Version::V1, path),
            None => (Version::V2, lines.find(|(controllers, _)| controllers.is_empty())?.1),
        };
        let mount = mounts.lines().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let (kind, options) = (kind.next()?, kind.nth(1)?);
            let is_it = match version {
                Version::V1 => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
                Version::V2 => kind == "cgroup2",
            };
            let mut place = place.split(' ').skip(3);
            is_it.then_some((place.next()?, place.next()?))
        });
        let (mounted, root) = mount?;
        // Of a container, only its own part may be mounted.
        let below = Path::new(path).strip_prefix(mounted).ok()?;
        let root = PathBuf::from(root);
        Some(Self { version, own: root.join(below), root })
    }

    /// The directory in which a group for a program can be created.
    ///
    /// In version 2 a group with processes has no groups with limits below it, so it is the one above, which systemd delegates
    /// together with it; but not when that would free the program of a limit that this process has.
    fn parent_of_groups(&self) -> Option<PathBuf> {
        let read = |directory: &Path, file: &str| std::fs::read_to_string(directory.join(file));
        let limits = |directory: &Path| {
            let controllers = read(directory, "cgroup.subtree_control").unwrap_or_default();
            controllers.split_whitespace().any(|controller| controller == "memory")
        };
        match self.version {
            Version::V1 => Some(self.own.clone()),
            Version::V2 if limits(&self.own) => Some(self.own.clone()),
            Version::V2 => {
                let above = self.own.parent().filter(|above| above.starts_with(&self.root))?;
                let free = read(&self.own, "memory.max").ok()?.trim() == "max";
                (free && limits(above)).then(|| above.to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
25 1 0:23 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
26 1 0:24 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
27 1 0:25 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu";

    #[test]
    fn the_hierarchy_is_found_in_both_versions_and_in_a_container() {
        let find = |own: &str, mounts: &str| {
            let found = Hierarchy::find(own, mounts)?;
            Some((found.version, found.own.to_str().unwrap().to_owned()))
        };
        let v2 = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate";
        let part = "26 1 0:24 /docker/a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
        for (own, mounts, expected) in [
            ("4:memory:/a/b\n1:cpu:/\n0::/x", MOUNTS, Some((Version::V1, "/sys/fs/cgroup/memory/a/b"))),
            ("4:cpu,memory:/\n0::/x", MOUNTS, Some((Version::V1, "/sys/fs/cgroup/memory/"))),
            ("0::/user.slice/a.scope", v2, Some((Version::V2, "/sys/fs/cgroup/user.slice/a.scope"))),
            ("4:memory:/docker/a/b", part, Some((Version::V1, "/sys/fs/cgroup/memory/b"))),
            ("4:memory:/docker/c", part, None),
            ("4:memory:/a", v2, None),
            ("", MOUNTS, None),
        ] {
            let expected = expected.map(|(version, path)| (version, path.to_owned()));
            assert_eq!(find(own, mounts), expected, "{own}");
        }
    }

    #[test]
    fn in_version_2_a_group_goes_beside_the_own_one_unless_that_would_lift_a_limit() {
        for (own, maximum, above, expected) in [
            ("cpu", "max\n", "cpu memory pids\n", Some("a.slice")),
            ("cpu", "1024\n", "cpu memory\n", None),
            ("cpu", "max\n", "cpu\n", None),
            ("memory", "1024\n", "cpu\n", Some("a.slice/b.scope")),
        ] {
            let root = tempfile::tempdir().unwrap();
            let scope = root.path().join("a.slice/b.scope");
            std::fs::create_dir_all(&scope).unwrap();
            std::fs::write(scope.join("cgroup.subtree_control"), own).unwrap();
            std::fs::write(scope.join("memory.max"), maximum).unwrap();
            std::fs::write(root.path().join("a.slice/cgroup.subtree_control"), above).unwrap();
            let here = Hierarchy { version: Version::V2, root: root.path().to_owned(), own: scope };
            let expected = expected.map(|path| root.path().join(path));
            assert_eq!(here.parent_of_groups(), expected, "{own} {maximum} {above}");
        }
    }

    #[test]
    fn the_kernels_counters_are_read() {
        let events = "low 0\noom 2\noom_kill 1\noom_group_kill 7\n";
        assert_eq!((counter(events, "oom"), counter(events, "oom_kill")), (2, 1));
        assert_eq!(counter("oom_kill_disable 1\nunder_oom 0\n", "oom_kill"), 0);
    }

    #[test]
    fn a_group_names_the_supervisor_that_created_it() {
        assert_eq!(supervisor_of("tandem-123-0"), Some(123));
        for other in ["tandem-123", "tandem-x-1", "docker-1-2"] {
            assert_eq!(supervisor_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_wrapper_refuses_a_limit_that_it_does_not_know() {
        enter(OsStr::new(UNLIMITED)).unwrap();
        assert!(enter(OsStr::new("12")).unwrap_err().to_string().contains("unknown memory limit"));
    }

    #[test]
    fn an_address_space_holds_what_an_operator_was_seen_to_need_and_is_less_than_a_machine() {
        let seen = 262 << 20;
        assert!(address_space(256 << 20, 2) > 4 * seen);
        assert!(address_space(256 << 20, 2) < 5 << 30);
    }
}
