//! A running test program: what it prints, and its end. A program that is ended by force leaves nothing behind: its process
//! group is killed, the supervisors of what it started end that, and what is left then is killed too.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{SIGKILL, kill};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep, timeout_at};
use toolbox::announcement::Announcement;
use toolbox::process_group::ProcessGroup;

use super::lines::{Output, Said};

/// How long what a program has started may take to end after it: a supervisor takes at most 20 s.
const AFTERWARDS: Duration = Duration::from_secs(30);
/// Interval between two looks at what is left.
const POLL: Duration = Duration::from_millis(200);
/// Lines of each log that are shown.
const TAIL: usize = 20;

/// What happens in a program, by its place in the list.
pub(super) enum Event {
    Said(usize, String),
    Announced(usize, Announcement),
    /// The line of this test is begun.
    Begun(usize, String),
    Ended(usize, anyhow::Result<Ending>),
}

/// How a program ended.
pub(super) struct Ending {
    /// Its exit status; `None` when by a signal.
    pub(super) status: Option<i32>,
    /// What had to be killed after it was ended by force.
    pub(super) left_behind: Vec<String>,
}

/// A started test program.
pub(super) struct Process {
    pub(super) group: ProcessGroup,
    pub(super) output: Receiver,
    /// An entry of the environment that it and all that it starts have, and no other process.
    pub(super) mark: String,
}

impl Process {
    /// Tells what happens until its end, which `end` brings about.
    pub(super) async fn follow(mut self, number: usize, end: Arc<Notify>, send: UnboundedSender<Event>) {
        let ending = self.read(number, &end, &send).await;
        // The run has dropped the other end when it was interrupted.
        send.send(Event::Ended(number, ending)).ok();
    }

    async fn read(
        &mut self,
        number: usize,
        end: &Notify,
        send: &UnboundedSender<Event>,
    ) -> anyhow::Result<Ending> {
        let (mut lines, mut piece) = (Output::default(), vec![0; 8192]);
        let mut killed_at = None;
        loop {
            let read = tokio::select! {
                () = end.notified(), if killed_at.is_none() => {
                    self.group.kill();
                    killed_at = Some(Instant::now());
                    continue;
                }
                read = until(killed_at, self.output.read(&mut piece)) => read,
            };
            // A supervisor that does not end keeps the output open.
            let Some(read) = read else { break };
            let length = read?;
            if length == 0 {
                break;
            }
            for said in lines.read(&piece[..length]) {
                let event = match said {
                    Said::Line(line) => Event::Said(number, line),
                    Said::Announced(announcement) => Event::Announced(number, announcement),
                    Said::Begun(test) => Event::Begun(number, test),
                };
                send.send(event).ok();
            }
        }
        if let Some(line) = lines.last() {
            send.send(Event::Said(number, line)).ok();
        }
        let left_behind = match killed_at {
            Some(at) => end_what_is_left(&self.mark, at + AFTERWARDS).await,
            None => Vec::new(),
        };
        Ok(Ending { status: self.group.leader.wait().await?.code(), left_behind })
    }
}

/// `None` when it takes longer than may be after a kill.
async fn until<T>(killed_at: Option<Instant>, read: impl Future<Output = T>) -> Option<T> {
    match killed_at {
        Some(at) => timeout_at(at + AFTERWARDS, read).await.ok(),
        None => Some(read.await),
    }
}

/// Waits for the end of all processes with `mark` in their environment, and kills those that are left at `deadline`. Returns
/// their command lines.
async fn end_what_is_left(mark: &str, deadline: Instant) -> Vec<String> {
    let mut left = marked(mark);
    while !left.is_empty() && Instant::now() < deadline {
        sleep(POLL).await;
        left = marked(mark);
    }
    for (id, _) in &left {
        kill(*id, SIGKILL).ok();
    }
    left.into_iter().map(|(_, command)| command).collect()
}

/// The processes with `mark` in their environment, with their command lines; none where there is no `/proc`.
fn marked(mark: &str) -> Vec<(Pid, String)> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = processes.filter_map(|process| {
        let id: i32 = process.file_name().to_str()?.parse().ok()?;
        // It cannot be read of a process that has just ended, or is another user's.
        let environment = std::fs::read(process.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).find(|entry| *entry == mark.as_bytes())?;
        let command = std::fs::read(process.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        Some((Pid::from_raw(id), command.trim_end().to_owned()))
    });
    found.collect()
}

/// The ends of the logs in `directories`, which go when the program ends.
pub(super) fn ends_of_logs(directories: &[&Path]) -> String {
    let files = |directory: &&Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|it| it == "log")).collect::<Vec<PathBuf>>()
    };
    let mut logs: Vec<PathBuf> = directories.iter().flat_map(files).collect();
    logs.sort();
    logs.iter().map(|path| format!("{} ends with\n{}\n", path.display(), end_of(path))).collect()
}

fn end_of(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines: Vec<&str> = text.lines().rev().take(TAIL).collect();
    lines.reverse();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use tokio::process::Command;

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_is_left_of_a_program_is_killed_and_said_and_nothing_else() {
        let sleep = |mark: &str| {
            Command::new("sleep").arg("600").env("MARK", mark).kill_on_drop(true).spawn().unwrap()
        };
        let own = format!("left-{}", std::process::id());
        let (mut left, mut other) = (sleep(&own), sleep(&format!("{own}0")));
        let killed = end_what_is_left(&format!("MARK={own}"), Instant::now()).await;
        assert_eq!(killed, ["sleep 600"]);
        assert_eq!(left.wait().await.unwrap().signal(), Some(9));
        assert_eq!(other.try_wait().unwrap(), None);
    }
}
