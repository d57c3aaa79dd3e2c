//! What an engine's metrics page says of its load: requests waiting and running, KV memory in use and
//! in all. Each engine is a small table of names. Only those lines are read; the rest of the page,
//! mostly histograms, is passed over. A page without a line we know is no report, rather than one that
//! says the engine is idle.

use std::ops::AddAssign;

use memchr::memchr;

use crate::domain::{Moment, ProcessAge, Report, whole, whole_u32};

/// The series of one engine, each by its name and, where one name covers several, a label.
struct Names {
    waiting: &'static [Series],
    running: &'static [Series],
    kv_used_share: &'static [Series],
    kv_tokens_max: Capacity,
}

type Series = (&'static str, Option<(&'static str, &'static str)>);

/// How an engine says how many tokens its KV memory holds.
enum Capacity {
    Untold,
    Tokens(Series),
    /// Blocks, and tokens in each of them.
    Blocks(Series, Series),
    /// The same two as labels of one series.
    Labels {
        series: &'static str,
        blocks: &'static str,
        block_tokens: &'static str,
    },
}

const ENGINES: [Names; 5] = [VLLM, SGLANG, TENSORRT_LLM, TRITON_TENSORRT_LLM, LLAMA_CPP];

const VLLM: Names = Names {
    waiting: &[("vllm:num_requests_waiting", None)],
    running: &[("vllm:num_requests_running", None)],
    // The second is the name in older versions.
    kv_used_share: &[("vllm:kv_cache_usage_perc", None), ("vllm:gpu_cache_usage_perc", None)],
    kv_tokens_max: Capacity::Labels {
        series: "vllm:cache_config_info",
        blocks: "num_gpu_blocks",
        block_tokens: "block_size",
    },
};

const SGLANG: Names = Names {
    waiting: &[("sglang:num_queue_reqs", None)],
    running: &[("sglang:num_running_reqs", None)],
    kv_used_share: &[("sglang:token_usage", None)],
    kv_tokens_max: Capacity::Tokens(("sglang:max_total_num_tokens", None)),
};

const TENSORRT_LLM: Names = Names {
    waiting: &[("trtllm_num_requests_waiting", None)],
    running: &[("trtllm_num_requests_running", None)],
    kv_used_share: &[("trtllm_kv_cache_utilization", None)],
    kv_tokens_max: Capacity::Untold,
};

const TRITON_TENSORRT_LLM: Names = Names {
    waiting: &[("nv_trt_llm_request_metrics", Some(("request_type", "waiting")))],
    running: &[("nv_trt_llm_request_metrics", Some(("request_type", "scheduled")))],
    kv_used_share: &[(TRITON_BLOCKS, Some((TRITON_BLOCK_TYPE, "fraction")))],
    kv_tokens_max: Capacity::Blocks(
        (TRITON_BLOCKS, Some((TRITON_BLOCK_TYPE, "max"))),
        (TRITON_BLOCKS, Some((TRITON_BLOCK_TYPE, "tokens_per"))),
    ),
};

const TRITON_BLOCKS: &str = "nv_trt_llm_kv_cache_block_metrics";
const TRITON_BLOCK_TYPE: &str = "kv_cache_block_type";

const LLAMA_CPP: Names = Names {
    waiting: &[("llamacpp:requests_deferred", None)],
    running: &[("llamacpp:requests_processing", None)],
    kv_used_share: &[("llamacpp:kv_cache_usage_ratio", None)],
    kv_tokens_max: Capacity::Untold,
};

/// Reads a metrics page in the Prometheus text format; `None` when no engine we know wrote it.
pub fn read_report(page: &[u8], taken_at: Moment) -> Option<Report> {
    ENGINES.iter().find_map(|names| names.read(page, taken_at))
}

/// When a process started, as the client libraries of Prometheus tell it.
const STARTED: &str = "process_start_time_seconds";

/// Tokens an engine has generated since it started.
const GENERATED: [&str; 3] = [
    "vllm:generation_tokens_total",
    "sglang:generation_tokens_total",
    "llamacpp:tokens_predicted_total",
];

/// Reads which process wrote a metrics page; `None` when it does not tell.
pub fn read_birth(page: &[u8]) -> Option<ProcessAge> {
    let (mut started, mut worked) = (Sum::default(), Sum::default());
    for sample in samples(page) {
        if sample.is((STARTED, None)) {
            started += sample.value();
        } else if GENERATED.iter().any(|it| sample.is((it, None))) {
            worked += sample.value();
        }
    }
    let told = |sum: &Sum, value: f64| (0 < sum.count).then(|| whole(value));
    let birth = ProcessAge {
        started_ms: told(&started, started.mean() * 1e3),
        worked_tokens: told(&worked, worked.sum),
    };
    (birth != ProcessAge::default()).then_some(birth)
}

impl Names {
    fn read(&self, page: &[u8], taken_at: Moment) -> Option<Report> {
        let (mut waiting, mut running, mut used) = (Sum::default(), Sum::default(), Sum::default());
        let (mut capacity, mut block_tokens) = (Sum::default(), Sum::default());
        for sample in samples(page) {
            let take = |sum: &mut Sum, series: &[Series]| {
                if series.iter().any(|it| sample.is(*it)) {
                    *sum += sample.value();
                }
            };
            take(&mut waiting, self.waiting);
            take(&mut running, self.running);
            take(&mut used, self.kv_used_share);
            match self.kv_tokens_max {
                Capacity::Untold => {}
                Capacity::Tokens(tokens) => take(&mut capacity, &[tokens]),
                Capacity::Blocks(blocks, tokens) => {
                    take(&mut capacity, &[blocks]);
                    take(&mut block_tokens, &[tokens]);
                }
                Capacity::Labels { series, blocks, block_tokens } => {
                    if sample.is((series, None)) {
                        capacity += sample.product(blocks, block_tokens);
                    }
                }
            }
        }
        if let Capacity::Blocks(..) = self.kv_tokens_max {
            capacity.sum *= block_tokens.mean();
        }
        (0 < waiting.count + running.count).then(|| Report {
            taken_at,
            waiting: whole_u32(waiting.sum),
            running: whole_u32(running.sum),
            waiting_tokens: None,
            kv_used_share: used.mean().clamp(0.0, 1.0),
            kv_tokens_max: Some(u64::from(whole_u32(capacity.sum))).filter(|it| 0 < *it),
        })
    }
}

/// Values of one series. One page may speak of several engines (data parallelism): their requests and
/// their memory add up, their shares are averaged.
#[derive(Default)]
struct Sum {
    count: u32,
    sum: f64,
}

impl Sum {
    fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / f64::from(self.count) }
    }
}

impl AddAssign<Option<f64>> for Sum {
    fn add_assign(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.count = self.count.saturating_add(1);
            self.sum += value;
        }
    }
}

/// One line of a page: `name{labels} value`.
struct MetricSample<'a> {
    name: &'a [u8],
    labels: &'a [u8],
    rest: &'a [u8],
}

fn samples(page: &[u8]) -> impl Iterator<Item = MetricSample<'_>> {
    let lines = page.split(|it| *it == b'\n').filter(|it| !it.starts_with(b"#"));
    lines.map(|line| {
        let end = line.iter().position(|it| b"{ \t".contains(it)).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        // A value never holds a brace, so the last one ends the labels, whatever they say.
        let close = memchr(b'{', rest).and_then(|_| memchr::memrchr(b'}', rest));
        let (labels, rest) = rest.split_at(close.map_or(0, |it| it + 1));
        MetricSample { name, labels, rest }
    })
}

impl MetricSample<'_> {
    fn is(&self, (name, label): Series) -> bool {
        let labelled = |(key, want): (&str, &str)| self.label(key) == Some(want.as_bytes());
        self.name == name.as_bytes() && label.is_none_or(labelled)
    }

    /// Reads the value: a number that is no less than nothing.
    fn value(&self) -> Option<f64> {
        let mut words = self.rest.split(u8::is_ascii_whitespace).filter(|it| !it.is_empty());
        number(words.next()?)
    }

    /// Finds a label's text. Those of engines have no quotes inside.
    fn label(&self, key: &str) -> Option<&[u8]> {
        let mark = format!("{key}=\"");
        let starts = memchr::memmem::find_iter(self.labels, &mark);
        // Else `block_size` would be found in `max_block_size`.
        let mut own = starts.filter(|it| *it == 0 || b"{, ".contains(&self.labels[it - 1]));
        let text = &self.labels[own.next()? + mark.len()..];
        text.get(..memchr(b'"', text)?)
    }

    fn product(&self, one: &str, other: &str) -> Option<f64> {
        Some(number(self.label(one)?)? * number(self.label(other)?)?)
    }
}

fn number(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.is_finite() && 0.0 <= value).then_some(value)
}

#[cfg(test)]
mod tests;
