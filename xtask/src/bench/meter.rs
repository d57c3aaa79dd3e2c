//! Readings of the kernel: processor time and memory of a process with all it started, and the share
//! of the machine that the hypervisor took away. Times come from `schedstat`, in nanoseconds; the
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

/// Where the machine's time has gone since it started, in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct MachineTime {
    total: u64,
    stolen: u64,
}

impl MachineTime {
    pub(super) fn now() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        Self::parse(&stat).context("read /proc/stat")
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|it| it.strip_prefix("cpu "))?;
        // user nice system idle iowait irq softirq steal; what follows is counted in user.
        let ticks: Vec<u64> = line.split_whitespace().take(8).flat_map(str::parse).collect();
        Some(Self { total: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }

    /// Gives the per cent of the time since `earlier` that the machine did not get.
    pub(super) fn stolen_percent_since(self, earlier: Self) -> u64 {
        let total = self.total.saturating_sub(earlier.total).max(1);
        (self.stolen.saturating_sub(earlier.stolen) * 100).div_ceil(total)
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
    fn stolen_time_is_a_share_of_all_time() {
        let at = |steal| {
            MachineTime::parse(&format!("cpu 10 0 10 70 0 0 0 {steal} 5 5\ncpu0 1")).unwrap()
        };
        assert_eq!(at(0).stolen_percent_since(at(0)), 0);
        assert_eq!(at(10).stolen_percent_since(at(0)), 100);
        let later = MachineTime::parse("cpu 60 0 20 105 0 0 0 5").unwrap();
        assert_eq!(later.stolen_percent_since(at(0)), 5);
    }
}
