//! Streams as engines write them, cut at every byte: content is seen with its event, and not before.

use super::*;

/// Reads the events in two pieces each, cut at every byte: the last one has the first content.
fn first_content_is_last(events: &[&str]) {
    let (last, before) = events.split_last().expect("there is one with content");
    for cut in 0..=last.len() {
        let mut first = FirstContent::default();
        for event in before {
            let (one, other) = event.as_bytes().split_at(cut.min(event.len()));
            first.on_chunk(one);
            first.on_chunk(other);
            assert!(!first.is_seen(), "cut at {cut}: {event}");
        }
        assert_eq!(first.empty_events(), u64::try_from(before.len()).unwrap());
        let (one, other) = last.as_bytes().split_at(cut);
        first.on_chunk(one);
        first.on_chunk(other);
        assert!(first.is_seen(), "cut at {cut}: {last}");
        assert_eq!(first.empty_events(), u64::try_from(before.len()).unwrap());
    }
    let all = events.concat();
    for size in [1, 2, 7, 64, all.len()] {
        let mut first = FirstContent::default();
        for piece in all.as_bytes().chunks(size) {
            first.on_chunk(piece);
        }
        assert!(first.is_seen(), "pieces of {size}: {all}");
        assert_eq!(first.empty_events(), u64::try_from(before.len()).unwrap(), "{all}");
    }
    let mut first = FirstContent::default();
    for byte in before.concat().as_bytes() {
        first.on_chunk(&[*byte]);
        assert!(!first.is_seen(), "byte by byte: {}", before.concat());
    }
}

const KEEP_ALIVE: &str = ": keep-alive\n\n";
const VLLM_ROLE: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":null},\"logprobs\":null,\"finish_reason\":null}],\"prompt_token_ids\":null}\n\n";

#[test]
fn a_chat_s_first_content_is_its_first_word_and_not_its_role() {
    let word = "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n";
    first_content_is_last(&[VLLM_ROLE, word]);
    first_content_is_last(&[KEEP_ALIVE, VLLM_ROLE, KEEP_ALIVE, KEEP_ALIVE, word]);
    let sglang = "data: {\"id\":\"a\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":null,\"tool_calls\":null},\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}],\"usage\":null}\n\n";
    first_content_is_last(&[sglang, word]);
    let transformers = "data: {\"id\":\"req_0\",\"choices\":[{\"delta\":{\"content\":null,\"function_call\":null,\"refusal\":null,\"role\":\"assistant\",\"tool_calls\":null},\"finish_reason\":null,\"index\":0,\"logprobs\":null}],\"created\":1,\"model\":\"org/m@main\",\"object\":\"chat.completion.chunk\",\"service_tier\":null,\"system_fingerprint\":\"\",\"usage\":null}\r\n\r\n";
    first_content_is_last(&[transformers, word]);
    let spaced = "data: { \"choices\" : [ { \"delta\" : { \"role\" : \"assistant\" , \"content\" : \"\" } } ] }\n\n";
    let half =
        "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}],\"usage\":{\"prompt_tokens\":9}}\n\n";
    let none = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9},\"note\":\"text\"}\n\n";
    let nothing =
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[],\"role\":\"assistant\"}}]}\n\n";
    let escaped =
        "data: {\"x\":\"\\\"}],\\\\\",\"choices\":[{\"delta\":{\"content\":\"\\\"\"}}]}\n\n";
    first_content_is_last(&[spaced, half, none, nothing, escaped]);
    let with_role =
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"Hi\"}}]}\n\n";
    first_content_is_last(&[with_role]);
}

#[test]
fn thoughts_and_tool_calls_and_the_reason_to_stop_are_content() {
    for delta in [
        r#""delta":{"reasoning_content":"Hm"}"#,
        r#""delta":{"content":null,"reasoning":"Hm"}"#,
        r#""delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]}"#,
        r#""delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\""}}]}"#,
        r#""delta":{},"finish_reason":"stop""#,
        r#""finish_reason":"length","delta":{"content":""}"#,
    ] {
        let event = format!("data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,{delta}}}]}}\n\n");
        first_content_is_last(&[VLLM_ROLE, &event]);
    }
}

#[test]
fn a_completion_s_first_content_is_its_first_text() {
    let empty = "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n";
    let text = "data: {\"id\":\"cmpl-1\",\"choices\":[{\"index\":0,\"text\":\" a\",\"logprobs\":null,\"finish_reason\":null}]}\n\n";
    first_content_is_last(&[text]);
    first_content_is_last(&[KEEP_ALIVE, empty, text]);
}

#[test]
fn a_response_s_first_content_is_its_first_delta_or_the_name_of_a_call() {
    let created = "event: response.created\ndata: {\"response\":{\"id\":\"resp_1\",\"instructions\":\"delta\",\"output\":[],\"tools\":[{\"name\":\"f\",\"type\":\"function\"}]},\"sequence_number\":0,\"type\":\"response.created\"}\n\n";
    let going = "event: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"response\":{\"id\":\"resp_1\"}}\n\n";
    let item = "event: response.output_item.added\ndata: {\"item\":{\"id\":\"msg_1\",\"content\":[],\"role\":\"assistant\",\"status\":\"in_progress\",\"type\":\"message\"},\"output_index\":0,\"type\":\"response.output_item.added\"}\n\n";
    let part = "event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\",\"item_id\":\"msg_1\",\"part\":{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[]}}\n\n";
    let thought_part = "data: {\"type\":\"response.reasoning_summary_part.added\",\"part\":{\"type\":\"summary_text\",\"text\":\"\"}}\n\n";
    let empty = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"\",\"item_id\":\"msg_1\",\"logprobs\":[]}\n\n";
    let delta = "event: response.output_text.delta\ndata: {\"content_index\":0,\"delta\":\"Hi\",\"item_id\":\"msg_1\",\"type\":\"response.output_text.delta\"}\n\n";
    let opening = [created, going, item, part, thought_part, empty];
    first_content_is_last(&[&opening[..], &[delta]].concat());
    let thought = "data: {\"type\":\"response.reasoning_text.delta\",\"delta\":\"Hm\"}\n\n";
    first_content_is_last(&[created, going, thought]);
    let call = "data: {\"type\":\"response.output_item.added\",\"item\":{\"arguments\":\"\",\"call_id\":\"c\",\"name\":\"f\",\"type\":\"function_call\",\"id\":\"fc\"}}\n\n";
    first_content_is_last(&[created, going, call]);
    let failed = "data: {\"type\":\"response.failed\",\"response\":{\"id\":\"resp_1\"}}\n\n";
    first_content_is_last(&[created, failed]);
}

#[test]
fn a_message_s_first_content_is_what_is_in_its_first_block() {
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":\"m\",\"stop_reason\":null,\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n";
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    let block = |block: &str| {
        format!(
            "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{block}}}\n\n"
        )
    };
    let delta = |delta: &str| {
        format!(
            "event: content_block_delta\ndata: {{\"delta\":{delta},\"index\":0,\"type\":\"content_block_delta\"}}\n\n"
        )
    };
    let text = block(r#"{"type":"text","text":"","citations":null}"#);
    let word = delta(r#"{"type":"text_delta","text":"Hi"}"#);
    first_content_is_last(&[
        start,
        &text,
        ping,
        &delta(r#"{"type":"text_delta","text":""}"#),
        &word,
    ]);
    let thinks = block(r#"{"type":"thinking","thinking":"","signature":""}"#);
    let thought = delta(r#"{"type":"thinking_delta","thinking":"Hm"}"#);
    first_content_is_last(&[start, ping, &thinks, &thought]);
    first_content_is_last(&[
        start,
        &block(r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#),
    ]);
    let ends = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null}}\n\n";
    first_content_is_last(&[start, ends]);
}

#[test]
fn what_is_no_event_of_a_known_form_counts_and_what_has_no_data_does_not() {
    let no_data = ["\n\n", "event: x\n\n", "id: 7\nretry: 10\n\n", ":\r\n\r\n", "data:\n\n"];
    let mut first = FirstContent::default();
    for event in no_data {
        first.on_chunk(event.as_bytes());
        assert!(!first.is_seen(), "{event}");
    }
    assert_eq!(first.empty_events(), 4, "blank lines alone are no event");
    for event in [
        "data: 1\n\n",
        "data: [DONE]\n\n",
        "data: {\"error\":{\"code\":500}}\n\n",
        "data: {\"token\":{\"text\":\"a\"}}\n\n",
        "data: {\ndata: \"choices\":\ndata: [{\"text\":\"a\"}]}\n\n",
        "data:{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
    ] {
        first_content_is_last(&[KEEP_ALIVE, event]);
    }
}

#[test]
fn another_replica_s_first_content_is_looked_for_anew() {
    let mut first = FirstContent::default();
    first.on_chunk(VLLM_ROLE.as_bytes());
    first.on_chunk(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n");
    assert!(first.is_seen());
    first.look_again();
    first.on_chunk(VLLM_ROLE.as_bytes());
    assert_eq!((first.is_seen(), first.empty_events()), (false, 2));
}
