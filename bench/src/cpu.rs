//! How much processor time a process has used, as the kernel counts it.

use anyhow::Context as _;

/// Ticks in a second of the times in `/proc/PID/stat` (`USER_HZ`): 100 on every architecture that Linux runs clusters on.
const TICKS: f64 = 100.0;

/// In seconds, of all of its threads, in user and kernel mode, to a hundredth.
pub(crate) fn seconds(pid: u32) -> anyhow::Result<f64> {
    let file = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {file}; processor time is measured on Linux only"))?;
    parse(&stat).with_context(|| format!("{file} has no times"))
}

/// `utime` and `stime` are the 14th and 15th field (the manual's page `proc_pid_stat`). The second, the program's name, may contain spaces
/// and parentheses.
fn parse(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_times_are_added_and_a_name_with_a_parenthesis_is_no_obstacle() {
        let stat = "42 (a) b) (c)) S 1 42 42 0 -1 4194560 10 20 30 40 150 75 8 9 20 0 7 0 100";
        assert_eq!(parse(stat), Some(2.25));
        assert_eq!(parse("42 (a) S 1 2"), None);
        assert_eq!(parse(""), None);
    }
}
