//! Readings of the kernel: processor time and memory of a process with all it started, and the share
//! of the machine that the hypervisor and other processes took away. Times come from `schedstat`, in nanoseconds; the
//! ticks of `stat` are too coarse for a proxy that is almost idle.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Lists a process and everything below it.
fn tree(root: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|it| it.parse::<u32>().ok()) else { continue };
        // A process may end while we look.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        parents.extend(parent(&stat).map(|it| (it, pid)));
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|it| it.0 == parent).map(|it| it.1));
        next += 1;
    }
    Ok(found)
}

/// Reads the parent off a line of `/proc/PID/stat`. The name before it may hold anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Adds up the processor time of all threads of a process and its children.
pub(super) fn cpu_time(root: u32) -> Result<Duration> {
    let mut nanos = 0;
    for pid in tree(root)? {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.map_while(Result::ok) {
            let line = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            nanos += line.split(' ').next().and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(nanos))
}

/// Adds up the resident memory of a process and its children.
pub(super) fn resident_mb(root: u32) -> Result<f64> {
    let sizes = tree(root)?.into_iter().filter_map(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<u32>().ok()
    });
    Ok(sizes.map(f64::from).sum::<f64>() / 1024.0)
}

/// A tick of `/proc/stat`: a hundredth of a second on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// Where the machine's time has gone since it started.
#[derive(Debug, Clone, Copy)]
pub(super) struct MachineTime {
    total: Duration,
    stolen: Duration,
    busy: Duration,
    /// What this process and its children used.
    ours: Duration,
}

/// What of a span of time was not ours to use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lost {
    pub(super) stolen_percent: f64,
    pub(super) foreign_percent: f64,
}

impl MachineTime {
    pub(super) fn now() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        Self::parse(&stat, cpu_time(std::process::id())?).context("read /proc/stat")
    }

    fn parse(stat: &str, ours: Duration) -> Option<Self> {
        let line = stat.lines().find_map(|it| it.strip_prefix("cpu "))?;
        // What follows these eight is counted in user already.
        let ticks: Vec<u32> = line.split_whitespace().take(8).flat_map(str::parse).collect();
        let [user, nice, system, idle, waiting, hard, soft, stolen] = ticks.try_into().ok()?;
        let busy = user + nice + system + hard + soft;
        let total = busy + idle + waiting + stolen;
        Some(Self { total: TICK * total, stolen: TICK * stolen, busy: TICK * busy, ours })
    }

    /// Tells what the hypervisor and other processes took since `earlier`.
    pub(super) fn lost_since(self, earlier: Self) -> Lost {
        let total = self.total.saturating_sub(earlier.total).max(TICK).as_secs_f64();
        let busy = self.busy.saturating_sub(earlier.busy);
        let foreign = busy.saturating_sub(self.ours.saturating_sub(earlier.ours));
        Lost {
            stolen_percent: self.stolen.saturating_sub(earlier.stolen).as_secs_f64() * 100.0
                / total,
            foreign_percent: foreign.as_secs_f64() * 100.0 / total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent("42 (a) b) c) S 7 42 42 0"), Some(7));
        assert_eq!(parent("42"), None);
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        assert!(tree(std::process::id()).unwrap().contains(&std::process::id()));
        assert!(0.0 < resident_mb(std::process::id()).unwrap());
        cpu_time(std::process::id()).unwrap();
    }

    #[test]
    fn lost_time_is_a_share_of_all_time() {
        let at = |stat: &str, ours_ms| {
            MachineTime::parse(&format!("cpu {stat} 5 5\ncpu0 1"), Duration::from_millis(ours_ms))
        };
        let before = at("10 0 10 70 0 0 0 0", 50).unwrap();
        // A second later: half of it idle, 5% stolen, 45% busy, of which 350 ms were ours.
        let after = at("40 0 20 120 0 0 5 5", 400).unwrap();
        let lost = after.lost_since(before);
        assert!((lost.stolen_percent - 5.0).abs() < 1e-9, "{lost:?}");
        assert!((lost.foreign_percent - 10.0).abs() < 1e-9, "{lost:?}");
        assert!(at("1 2", 0).is_none());
    }
}
