//! The process itself: its build, its time on the processor, its memory and its files, by the names that every
//! exporter uses; and the answers that the router gave by itself. Read from `/proc` at a scrape.

use std::fs;
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::labels::{Real, RealCounter, STATUS_CLASSES, class_of, fine_seconds, set_real};

/// Ticks of the processor's time in a second, on every Linux there is.
const TICKS_PER_S: f64 = 100.0;
const PAGE_BYTES: i64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabel {
    version: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
    status_class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ThreadLabel {
    thread: &'static str,
}

#[derive(Debug)]
pub(super) struct ProcessFamilies {
    build: Family<BuildLabel, Gauge>,
    errors: Family<CodeLabel, Counter>,
    loop_lag: Family<ThreadLabel, Histogram>,
    cpu: RealCounter,
    memory: Gauge,
    files: Gauge,
    files_max: Gauge,
    started: Real,
}

impl Default for ProcessFamilies {
    fn default() -> Self {
        let it = Self {
            build: Family::default(),
            errors: Family::default(),
            loop_lag: Family::new_with_constructor(fine_seconds),
            cpu: RealCounter::default(),
            memory: Gauge::default(),
            files: Gauge::default(),
            files_max: Gauge::default(),
            started: Real::default(),
        };
        it.build.get_or_create(&BuildLabel { version: env!("CARGO_PKG_VERSION") }).set(1);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        it.started.set(since.unwrap_or_default().as_secs_f64());
        it
    }
}

impl ProcessFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register("cleave_build_info", "1, with the version", self.build.clone());
        it.register(
            "cleave_router_errors",
            "Errors that the router answered by itself, by code",
            self.errors.clone(),
        );
        it.register(
            "cleave_loop_lag_seconds",
            "How late threads did what they had to do at a time, looked at once a second or more often",
            self.loop_lag.clone(),
        );
        it.register("process_cpu_seconds", "Time on the processor", self.cpu.clone());
        it.register("process_resident_memory_bytes", "Memory in use", self.memory.clone());
        it.register("process_open_fds", "Open files", self.files.clone());
        it.register("process_max_fds", "Files that may be open", self.files_max.clone());
        it.register(
            "process_start_time_seconds",
            "When the process was started, in Unix time",
            self.started.clone(),
        );
    }

    pub(super) fn on_error(&self, code: &'static str, status: u16) {
        let status_class = STATUS_CLASSES[class_of(status)];
        self.errors.get_or_create(&CodeLabel { code, status_class }).inc();
    }

    pub(super) fn on_lag(&self, thread: &'static str, lag: Duration) {
        self.loop_lag.get_or_create(&ThreadLabel { thread }).observe(lag.as_secs_f64());
    }

    /// Reads what the system says of the process; what it does not say stays as it was.
    pub(super) fn look(&self) {
        if let Some(ticks) = fs::read_to_string("/proc/self/stat").ok().and_then(|it| ticks(&it)) {
            set_real(&self.cpu, ticks / TICKS_PER_S);
        }
        let pages = fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|it| it.split(' ').nth(1)?.parse::<i64>().ok());
        if let Some(pages) = pages {
            self.memory.set(pages * PAGE_BYTES);
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            self.files.set(i64::try_from(files.count()).unwrap_or(i64::MAX));
        }
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let line = limits.lines().find_map(|it| it.strip_prefix("Max open files"));
        if let Some(max) = line.and_then(|it| it.split_whitespace().next()?.parse().ok()) {
            self.files_max.set(max);
        }
    }
}

/// Adds up the time in user and in system mode; the name before them may have blanks.
fn ticks(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let user: f64 = fields.nth(11)?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}
