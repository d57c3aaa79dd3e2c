//! What an engine says about itself on `/metrics`, under the names of several engines. Only what
//! keeps a calibration honest is read: whether other clients are being served, and how much of a
//! prompt was cached where the answer does not say.

use super::client::ReplicaClient;

const RUNNING: [&str; 3] =
    ["vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"];
const WAITING: [&str; 3] =
    ["vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"];
const GENERATED: [&str; 3] = [
    "vllm:generation_tokens_total",
    "sglang:generation_tokens_total",
    "llamacpp:tokens_predicted_total",
];
const HITS: [&str; 1] = ["vllm:prefix_cache_hits_total"];
const KV_TOKENS: [&str; 1] = ["sglang:max_total_num_tokens"];
const CACHE_CONFIG: &str = "vllm:cache_config_info";

/// One look at an engine; nothing where the engine does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct EngineCounters {
    pub(super) running: Option<f64>,
    pub(super) waiting: Option<f64>,
    /// Tokens written since the engine started.
    pub(super) generated_tokens: Option<f64>,
    /// Prompt tokens found in the cache since the engine started.
    pub(super) hit_tokens: Option<f64>,
    pub(super) kv_tokens: Option<f64>,
}

impl EngineCounters {
    /// Asks the engine; one without metrics reports nothing.
    pub(super) async fn fetch(client: &ReplicaClient) -> anyhow::Result<Self> {
        let (status, body) = client.get("/metrics").await?;
        if !status.is_success() {
            return Ok(Self::default());
        }
        Ok(Self::parse(&String::from_utf8_lossy(&body)))
    }

    fn parse(page: &str) -> Self {
        Self {
            running: sum(page, &RUNNING),
            waiting: sum(page, &WAITING),
            generated_tokens: sum(page, &GENERATED),
            hit_tokens: sum(page, &HITS),
            kv_tokens: sum(page, &KV_TOKENS).or_else(|| cache_config_tokens(page)),
        }
    }

    /// Counts requests in the engine; nothing when it has no such figure.
    pub(super) fn requests(&self) -> Option<f64> {
        Some(self.running? + self.waiting.unwrap_or(0.0))
    }
}

/// Adds up the values under any of the names: an engine has one of them, perhaps once per rank.
fn sum(page: &str, names: &[&str]) -> Option<f64> {
    let values = page.lines().filter_map(|line| {
        let (name, _, value) = split(line)?;
        names.contains(&name).then_some(value)
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

/// Cuts a line into name, labels and value; comments have none.
fn split(line: &str) -> Option<(&str, &str, f64)> {
    let (head, value) = line.trim_end().rsplit_once(' ')?;
    let (name, labels) = head.split_once('{').unwrap_or((head, ""));
    let value: f64 = value.parse().ok()?;
    (!line.starts_with('#') && value.is_finite()).then_some((name, labels, value))
}

fn cache_config_tokens(page: &str) -> Option<f64> {
    let mut lines = page.lines().filter_map(split);
    let (_, labels, _) = lines.find(|it| it.0 == CACHE_CONFIG)?;
    Some(label(labels, "num_gpu_blocks")? * label(labels, "block_size")?)
}

fn label(labels: &str, name: &str) -> Option<f64> {
    let values = labels.split(['{', ',', '}']).filter_map(|it| it.trim().split_once('='));
    values.filter(|it| it.0 == name).find_map(|it| it.1.trim_matches('"').parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_is_read_in_its_own_words() {
        let vllm = EngineCounters::parse(
            "# HELP vllm:num_requests_running Requests.\n\
             vllm:num_requests_running{engine=\"0\",model_name=\"a b\"} 2.0\n\
             vllm:num_requests_running{engine=\"1\",model_name=\"a b\"} 1.0\n\
             vllm:num_requests_waiting{engine=\"0\"} 4\n\
             vllm:prefix_cache_hits_total{engine=\"0\"} 512\n\
             vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1.0\n",
        );
        assert_eq!((vllm.requests(), vllm.hit_tokens), (Some(7.0), Some(512.0)));
        assert_eq!(vllm.kv_tokens, Some(1_600.0));
        let sglang =
            EngineCounters::parse("sglang:num_running_reqs{a=\"b\"} 3\nsglang:num_queue_reqs 1\n");
        assert_eq!(sglang.requests(), Some(4.0));
        let llama = EngineCounters::parse(
            "llamacpp:requests_processing 1\nllamacpp:tokens_predicted_total 9",
        );
        assert_eq!((llama.requests(), llama.generated_tokens), (Some(1.0), Some(9.0)));
    }

    #[test]
    fn a_page_of_something_else_reports_nothing() {
        for page in ["", "<html>hello 1</html>", "up 1\n", "vllm:num_requests_running NaN"] {
            assert_eq!(EngineCounters::parse(page), EngineCounters::default(), "{page}");
        }
    }
}
