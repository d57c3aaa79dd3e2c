//! Pages of each engine, as they write them.

use proptest::prelude::*;

use super::*;

fn read(page: &str) -> Option<Report> {
    read_report(page.as_bytes(), Moment::ZERO)
}

/// Checks waiting, running, share of KV in use and tokens it holds.
fn check(page: &str, waiting: u32, running: u32, kv_used_share: f64, kv_tokens_max: Option<u64>) {
    let taken_at = Moment::ZERO;
    let waiting_tokens = None;
    let want = Report { taken_at, waiting, running, waiting_tokens, kv_used_share, kv_tokens_max };
    assert_eq!(read(page), Some(want), "{page}");
}

const VLLM_PAGE: &str = r#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny {llama}"} 3.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="tiny {llama}"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 70.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="tiny {llama}"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="tiny {llama}"} 2.512e+03
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="tiny {llama}"} 12.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="32",cache_dtype="auto",engine="0",hash_block_size="16",num_cpu_blocks="None",num_gpu_blocks="1024",sliding_window="None"} 1.0
"#;

#[test]
fn vllm_is_read_by_its_new_names_and_its_old() {
    check(VLLM_PAGE, 1, 3, 0.25, Some(32_768));
    let old = VLLM_PAGE.replace("kv_cache_usage_perc", "gpu_cache_usage_perc");
    check(&old, 1, 3, 0.25, Some(32_768));
    let before_start = VLLM_PAGE.replace("\"1024\"", "\"None\"");
    check(&before_start, 1, 3, 0.25, None);
}

#[test]
fn the_engines_of_one_page_add_up() {
    let second = VLLM_PAGE.replace("engine=\"0\"", "engine=\"1\"").replace("} 0.25", "} 0.75");
    check(&format!("{VLLM_PAGE}{second}"), 2, 6, 0.5, Some(65_536));
}

#[test]
fn a_mock_replica_is_read_as_what_it_mocks() {
    check(
        "vllm:num_requests_running{engine=\"0\",model_name=\"mock-8b\"} 2\n\
         vllm:num_requests_waiting{engine=\"0\",model_name=\"mock-8b\"} 0\n\
         vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"mock-8b\"} 0.125\n\
         vllm:cache_config_info{engine=\"0\",model_name=\"mock-8b\",block_size=\"16\",num_gpu_blocks=\"32768\"} 1\n",
        0,
        2,
        0.125,
        Some(524_288),
    );
}

#[test]
fn sglang_tensorrt_llm_and_llama_cpp_are_read_by_their_names() {
    check(
        "sglang:num_running_reqs{engine_type=\"unified\",model_name=\"m\",tp_rank=\"0\"} 7.0\n\
         sglang:num_queue_reqs{engine_type=\"unified\",model_name=\"m\",tp_rank=\"0\"} 2.0\n\
         sglang:token_usage{engine_type=\"unified\",model_name=\"m\",tp_rank=\"0\"} 0.5\n\
         sglang:max_total_num_tokens{model_name=\"m\"} 471258.0\n",
        2,
        7,
        0.5,
        Some(471_258),
    );
    check(
        "trtllm_num_requests_running{model_name=\"m\"} 3.0\n\
         trtllm_num_requests_waiting{model_name=\"m\"} 1.0\n\
         trtllm_kv_cache_utilization{model_name=\"m\"} 0.75\n",
        1,
        3,
        0.75,
        None,
    );
    check(
        "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"waiting\",version=\"1\"} 4\n\
         nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"scheduled\",version=\"1\"} 5\n\
         nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"max\",version=\"1\"} 512\n\
         nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\",model=\"tensorrt_llm\",version=\"1\"} 64\n\
         nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"tensorrt_llm\",version=\"1\"} 0.5\n\
         nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"tensorrt_llm\",version=\"1\"} 6239\n",
        4,
        5,
        0.5,
        Some(399_296),
    );
    check(
        "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 1\r\n\
         llamacpp:requests_deferred 4 1700000000000\nllamacpp:kv_cache_usage_ratio 0.5\n",
        4,
        1,
        0.5,
        None,
    );
}

#[test]
fn what_is_no_engine_s_page_is_no_report() {
    for page in ["", "404 page not found\n", "{\"iterLatencyMS\": 3}", "process_open_fds 7\n"] {
        assert_eq!(read(page), None, "{page}");
    }
    for value in ["", "NaN", "-1", "+Inf", "x"] {
        assert_eq!(read(&format!("vllm:num_requests_running {value}\n")), None, "{value}");
    }
    check("llamacpp:requests_processing 1e300\n", 0, u32::MAX, 0.0, None);
}

proptest! {
    #[test]
    fn no_page_makes_it_panic(page in "(vllm:num_requests_running|vllm:cache_config_info|[{}\"=, 0-9\n#\u{e9}]){0,30}") {
        _ = read(&page);
    }

    #[test]
    fn a_page_cut_anywhere_says_nothing_wrong(cut in 0..VLLM_PAGE.len()) {
        if let Some(report) = read_report(&VLLM_PAGE.as_bytes()[..cut], Moment::ZERO) {
            prop_assert!(report.running <= 3 && report.waiting <= 1 && report.kv_used_share <= 0.25);
        }
    }
}

#[test]
fn a_page_tells_which_process_wrote_it() {
    let page = b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7e+09\n\
                 vllm:generation_tokens_total{engine=\"0\"} 40\nvllm:generation_tokens_total{engine=\"1\"} 2\n";
    let birth = read_birth(page).unwrap();
    assert_eq!((birth.started_ms, birth.worked_tokens), (Some(1_700_000_000_000), Some(42)));
    assert_eq!(read_birth(b"up 1\n"), None);
}
