//! `/metrics` under vLLM's names, so that whatever reads a real replica reads this one. Times are
//! those a client saw, that is engine time divided by the speed. All metric names live here.

use std::fmt::Write as _;
use std::time::SystemTime;

use cleave_sim::engine::Stats;

/// Upper bounds of the buckets in seconds, as vLLM has them for the time to the first token.
const BOUNDS_S: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];

/// Observed times, counted by size.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    counts: [u64; BOUNDS_S.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    pub(super) fn observe(&mut self, seconds: f64) {
        if let Some(at) = BOUNDS_S.iter().position(|bound| seconds <= *bound) {
            self.counts[at] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }
}

/// How long things took.
#[derive(Clone, Debug, Default)]
pub(super) struct Timings {
    pub(super) first_token: Histogram,
    pub(super) between_tokens: Histogram,
    pub(super) whole_request: Histogram,
}

/// What the page shows.
pub(super) struct Page<'a> {
    pub(super) model: &'a str,
    pub(super) block_tokens: u32,
    pub(super) capacity_tokens: u32,
    pub(super) stats: Stats,
    pub(super) timings: Timings,
    pub(super) started_at: SystemTime,
}

impl Page<'_> {
    /// Writes the page in the text format of Prometheus.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        let stats = &self.stats;
        let gauges: [(&str, &str, f64); 3] = [
            ("vllm:num_requests_running", "Requests in the running batch.", to_f64(stats.running)),
            (
                "vllm:num_requests_waiting",
                "Requests that wait to be scheduled.",
                to_f64(stats.waiting),
            ),
            ("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", stats.kv_used_share),
        ];
        for (name, help, value) in gauges {
            family(&mut text, name, help, "gauge");
            self.line(&mut text, name, "", &value);
        }
        let counters: [(&str, &str, u64); 6] = [
            (
                "vllm:prefix_cache_queries",
                "Tokens looked up in the cache.",
                stats.prefix_queries_tokens,
            ),
            ("vllm:prefix_cache_hits", "Tokens found in the cache.", stats.prefix_hits_tokens),
            ("vllm:num_preemptions", "Requests preempted for lack of KV.", stats.preemptions),
            ("vllm:prompt_tokens", "Prompt tokens processed.", stats.prompt_tokens),
            ("vllm:generation_tokens", "Tokens generated.", stats.generation_tokens),
            ("vllm:request_success", "Requests finished.", self.timings.whole_request.count),
        ];
        for (name, help, value) in counters {
            family(&mut text, &format!("{name}_total"), help, "counter");
            self.line(&mut text, &format!("{name}_total"), "", &value);
        }
        let histograms = [
            ("vllm:time_to_first_token_seconds", "Time to first token.", &self.timings.first_token),
            (
                "vllm:inter_token_latency_seconds",
                "Time between tokens.",
                &self.timings.between_tokens,
            ),
            ("vllm:e2e_request_latency_seconds", "Whole request.", &self.timings.whole_request),
        ];
        for (name, help, histogram) in histograms {
            self.histogram(&mut text, name, help, histogram);
        }
        let blocks = self.capacity_tokens / self.block_tokens;
        let config = format!(",block_size=\"{}\",num_gpu_blocks=\"{blocks}\"", self.block_tokens);
        family(&mut text, "vllm:cache_config_info", "The KV cache.", "gauge");
        self.line(&mut text, "vllm:cache_config_info", &config, &1);
        let started = self.started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        family(&mut text, "process_start_time_seconds", "When the process started.", "gauge");
        writeln!(text, "process_start_time_seconds {:.2}", started.as_secs_f64())
            .expect("a string takes everything");
        text
    }

    fn histogram(&self, text: &mut String, name: &str, help: &str, it: &Histogram) {
        family(text, name, help, "histogram");
        let mut below = 0;
        for (bound, count) in BOUNDS_S.iter().zip(it.counts) {
            below += count;
            self.line(text, &format!("{name}_bucket"), &format!(",le=\"{bound}\""), &below);
        }
        self.line(text, &format!("{name}_bucket"), ",le=\"+Inf\"", &it.count);
        self.line(text, &format!("{name}_sum"), "", &it.sum);
        self.line(text, &format!("{name}_count"), "", &it.count);
    }

    fn line(&self, text: &mut String, name: &str, labels: &str, value: &dyn std::fmt::Display) {
        let model = self.model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        writeln!(text, "{name}{{engine=\"0\",model_name=\"{model}\"{labels}}} {value}")
            .expect("a string takes everything");
    }
}

fn family(text: &mut String, name: &str, help: &str, kind: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
        .expect("a string takes everything");
}

fn to_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
