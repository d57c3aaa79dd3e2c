use proptest::prelude::*;
use serde::Deserialize;

use super::*;

const CHAT: &str = r#"{"model":"m","stream":true,"max_tokens":900,"messages":[{"role":"user","content":"hi ]}\""}],"stream_options":{"include_usage":true}}"#;
const COMPLETION: &str = r#"{"prompt":"Once \"upon","stream":true,"max_tokens":900,"model":"m"}"#;

/// Tokens the pretended engine counts for the client's own prompt.
const PROMPT_TOKENS: usize = 7;

/// A pretended engine that would write `text`, in tokens of `sizes` characters, and begins after
/// `said`.
struct Engine<'a> {
    api: Api,
    text: &'a str,
    sizes: &'a [usize],
    number: usize,
}

impl Engine<'_> {
    /// Writes all events from where the request leaves off.
    fn events(&self, said: &str, wants_usage: bool) -> Vec<String> {
        let rest: Vec<char> = self.text[said.len()..].chars().collect();
        let mut events = Vec::new();
        if self.api == Api::Chat {
            events.push(self.event(r#""delta":{"role":"assistant","content":""}"#, "null"));
        }
        let (mut at, mut tokens) = (0, 0);
        while at < rest.len() {
            let size = self.sizes[tokens % self.sizes.len()].min(rest.len() - at);
            let word = quoted(&rest[at..at + size].iter().collect::<String>());
            let words = if self.api == Api::Chat {
                format!(r#""delta":{{"content":{word},"tool_calls":null}}"#)
            } else {
                format!(r#""text":{word}"#)
            };
            events.push(self.event(&words, "null"));
            (at, tokens) = (at + size, tokens + 1);
        }
        let nothing = if self.api == Api::Chat { r#""delta":{}"# } else { r#""text":"""# };
        events.push(self.event(nothing, "\"stop\""));
        if wants_usage {
            let prompt = PROMPT_TOKENS + self.tokens_in(said);
            let usage = format!(
                r#"{{"prompt_tokens":{prompt},"completion_tokens":{tokens},"total_tokens":{}}}"#,
                prompt + tokens
            );
            let n = self.number;
            events.push(format!(
                "data: {{\"id\":\"x-{n}\",\"created\":{n},\"model\":\"m-{n}\",\"choices\":[],\"usage\":{usage}}}\n\n"
            ));
        }
        events.push(DONE.to_owned());
        events
    }

    fn event(&self, words: &str, finish: &str) -> String {
        let n = self.number;
        format!(
            "data: {{\"id\":\"x-{n}\",\"object\":\"o\",\"created\":{n},\"model\":\"m-{n}\",\"choices\":[{{\"index\":0,{words},\"finish_reason\":{finish}}}],\"usage\":null}}\n\n"
        )
    }

    /// One size for all tokens makes their number a question of length.
    fn tokens_in(&self, text: &str) -> usize {
        text.chars().count().div_ceil(self.sizes[0])
    }
}

#[derive(Deserialize)]
struct SentMessage {
    role: String,
    content: String,
}

#[derive(Deserialize)]
struct Sent {
    #[serde(default)]
    messages: Vec<SentMessage>,
    prompt: Option<String>,
    continue_final_message: Option<bool>,
    add_generation_prompt: Option<bool>,
    max_tokens: u32,
}

/// Reads from a request for the rest what was sent already, as an engine would.
fn said_in(body: &[u8]) -> String {
    let sent: Sent = serde_json::from_slice(body).unwrap();
    if let Some(prompt) = sent.prompt {
        return prompt.strip_prefix("Once \"upon").unwrap().to_owned();
    }
    match &sent.messages[..] {
        [user] => {
            assert!(user.content == "hi ]}\"" && sent.continue_final_message.is_none());
            String::new()
        }
        [_, last] => {
            assert_eq!(last.role, "assistant");
            let flags = (sent.continue_final_message, sent.add_generation_prompt);
            assert_eq!(flags, (Some(true), Some(false)));
            last.content.clone()
        }
        other => panic!("{} messages", other.len()),
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    text: String,
    roles: usize,
    finishes: usize,
    dones: usize,
    usage: Option<(u32, u32, u32)>,
    ids: Vec<String>,
}

#[derive(Deserialize)]
struct SeenChunk {
    id: String,
    created: u32,
    model: String,
    choices: Vec<SeenChoice>,
    usage: Option<SeenUsage>,
}

#[derive(Deserialize)]
struct SeenChoice {
    #[serde(default)]
    delta: SeenDelta,
    text: Option<String>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct SeenDelta {
    role: Option<String>,
    content: Option<String>,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names are the API's")]
struct SeenUsage {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
}

/// Reads a stream as a client would.
fn seen(stream: &str) -> Seen {
    let mut seen = Seen::default();
    for event in stream.split_terminator("\n\n") {
        let data = event.strip_prefix("data: ").unwrap();
        if data == "[DONE]" {
            seen.dones += 1;
            continue;
        }
        let chunk: SeenChunk = serde_json::from_str(data).unwrap();
        let id = format!("{} {} {}", chunk.id, chunk.created, chunk.model);
        if !seen.ids.contains(&id) {
            seen.ids.push(id);
        }
        for choice in chunk.choices {
            seen.text += choice.delta.content.or(choice.text).as_deref().unwrap_or("");
            seen.roles += usize::from(choice.delta.role.is_some());
            seen.finishes += usize::from(choice.finish_reason.is_some());
        }
        if let Some(usage) = chunk.usage {
            assert!(seen.usage.is_none(), "figures come once");
            seen.usage = Some((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens));
        }
    }
    seen
}

/// Streams an answer that breaks off again and again, each time after a given number of events.
/// Returns what the client gets, `None` where it must be told that the rest will not come.
fn streamed(
    api: Api,
    body: &str,
    text: &str,
    sizes: &[usize],
    cuts: &[prop::sample::Index],
) -> Option<String> {
    let mut resume = Resume::new(api, body.as_bytes()).expect("a plain request");
    let mut out = Vec::new();
    let mut request = body.as_bytes().to_owned();
    for number in 0.. {
        let engine = Engine { api, text, sizes, number };
        let events = engine.events(&said_in(&request), resume.request.wants_usage);
        let whole = cuts.get(number).map_or(events.len(), |it| it.index(events.len()));
        for event in &events[..whole] {
            assert_eq!(event_end(event.as_bytes()), Some(event.len()));
            match resume.on_event(event.as_bytes()) {
                EventAction::Pass => out.extend_from_slice(event.as_bytes()),
                EventAction::Write(other) => out.extend_from_slice(&other),
                EventAction::Skip => {}
                EventAction::Cut => panic!("a sound event"),
            }
        }
        if resume.is_over() {
            break;
        }
        match resume.on_cut() {
            Continuation::GoOn => request = resume.body(body.as_bytes(), &[]),
            Continuation::Close(last) => {
                out.extend_from_slice(last.as_bytes());
                break;
            }
            Continuation::GiveUp => return None,
        }
    }
    Some(String::from_utf8(out).unwrap())
}

fn text() -> impl Strategy<Value = String> {
    // Much white space, quotes, and characters of more than one byte.
    prop::collection::vec(
        prop::sample::select(vec!["a", " ", "\n", "\"", "é", "😀", "\\", "x"]),
        1..60,
    )
    .prop_map(|it| it.concat())
}

proptest! {
    #[test]
    fn no_character_is_lost_or_said_twice_wherever_the_replicas_break_off(
        text in text(),
        sizes in prop::collection::vec(1..5_usize, 1..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        for (api, body) in [(Api::Chat, CHAT), (Api::Completions, COMPLETION)] {
            let Some(stream) = streamed(api, body, &text, &sizes, &cuts) else { continue };
            let seen = seen(&stream);
            prop_assert_eq!(&seen.text, &text);
            prop_assert_eq!(seen.roles, usize::from(api == Api::Chat));
            prop_assert_eq!((seen.finishes, seen.dones, seen.ids.len()), (1, 1, 1));
        }
    }

    #[test]
    fn figures_are_added_up_once(
        text in "[a-z]{1,40}",
        size in 1..4_usize,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        // All tokens but the last of the whole have one size, from either replica.
        let Some(stream) = streamed(Api::Chat, CHAT, &text, &[size], &cuts) else { return Ok(()) };
        let (input, output) = (u32::try_from(PROMPT_TOKENS).unwrap(), text.len().div_ceil(size));
        let output = u32::try_from(output).unwrap();
        prop_assert_eq!(seen(&stream).usage, Some((input, output, input + output)));
    }

    #[test]
    fn any_bytes_can_come(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut resume = Resume::new(Api::Chat, CHAT.as_bytes()).unwrap();
        resume.on_event(&bytes);
        resume.on_event(format!("data: {}\n\n", String::from_utf8_lossy(&bytes)).as_bytes());
        resume.on_cut();
        _ = Resume::new(Api::Chat, &bytes);
        if let Some(end) = event_end(&bytes) {
            prop_assert!(bytes[..end].ends_with(b"\n") && event_end(&bytes[..end - 1]).is_none());
        }
    }
}

fn chat_with(fields: &str) -> bool {
    let body = format!(
        r#"{{"stream":true,"messages":[{{"role":"user","content":"hi"}}],"max_tokens":9{fields}}}"#
    );
    Resume::new(Api::Chat, body.as_bytes()).is_some()
}

#[test]
fn only_requests_whose_rest_would_be_exact_are_resumed() {
    for fields in [
        "",
        r#","n":1,"temperature":0.5,"logprobs":false,"seed":null,"unknown":null"#,
        r#","response_format":{"type":"text"},"tools":[],"tool_choice":"auto""#,
        r#","stream_options":{"include_usage":true,"continuous_usage_stats":true}"#,
    ] {
        assert!(chat_with(fields), "{fields}");
    }
    for fields in [
        r#","n":2"#,
        r#","seed":7"#,
        r#","logprobs":true"#,
        r#","response_format":{"type":"json_object"}"#,
        r#","guided_regex":"a+""#,
        r#","continue_final_message":false"#,
        r#","unknown":1"#,
        r#","max_completion_tokens":"9""#,
    ] {
        assert!(!chat_with(fields), "{fields}");
    }
    let bad = |api, body: &str| assert!(Resume::new(api, body.as_bytes()).is_none(), "{body}");
    bad(Api::Chat, r#"{"messages":[{"role":"user"}]}"#);
    bad(Api::Chat, r#"{"stream":true,"messages":[]}"#);
    bad(Api::Chat, r#"{"stream":true,"messages":[{"role":"assistant","content":"I"}]}"#);
    bad(Api::Completions, r#"{"stream":true,"prompt":"no cap is said"}"#);
    bad(Api::Completions, r#"{"stream":true,"prompt":["two","prompts"],"max_tokens":9}"#);
    bad(Api::Messages, CHAT);
}

#[test]
fn the_rest_has_what_is_left_of_the_cap_and_the_model_by_its_other_name() {
    let mut resume = Resume::new(Api::Completions, COMPLETION.as_bytes()).unwrap();
    let event = "data: {\"choices\":[{\"text\":\"a\\n\"}]}\n\n";
    (0..3).for_each(|_| assert_eq!(resume.on_event(event.as_bytes()), EventAction::Pass));
    assert_eq!(resume.on_cut(), Continuation::GoOn);
    let at = COMPLETION.find("\"m\"").unwrap();
    let body = resume.body(COMPLETION.as_bytes(), &[(at..at + 3, quoted("other"))]);
    assert_eq!(
        String::from_utf8(body).unwrap(),
        r#"{"prompt":"Once \"upona\na\na\n","stream":true,"max_tokens":897,"model":"other"}"#
    );
    let sent: Sent = serde_json::from_slice(&resume.body(COMPLETION.as_bytes(), &[])).unwrap();
    assert_eq!(sent.max_tokens, 897);
}

fn chat() -> Resume {
    Resume::new(Api::Chat, CHAT.as_bytes()).unwrap()
}

#[test]
fn tool_calls_thoughts_and_figures_per_token_cannot_be_resumed() {
    for delta in [
        r#""delta":{"tool_calls":[{"index":0}]}"#,
        r#""delta":{"reasoning_content":"hm"}"#,
        r#""delta":{"content":"a"},"logprobs":{"content":[]}"#,
        r#""index":1,"delta":{"content":"a"}"#,
        r#""delta":{"content":"\ud800"}"#,
    ] {
        let mut resume = chat();
        let event = format!("data: {{\"choices\":[{{{delta}}}]}}\n\n");
        assert_eq!(resume.on_event(event.as_bytes()), EventAction::Pass, "{delta}");
        assert!(resume.is_idle(), "{delta}");
        assert_eq!(resume.on_cut(), Continuation::GiveUp);
    }
}

#[test]
fn an_engine_s_own_failure_and_garbage_are_cuts_and_other_errors_are_passed_on() {
    let verdict = |event: &[u8]| chat().on_event(event);
    assert_eq!(verdict(b"data: {\"error\":{\"code\":500}}\n\n"), EventAction::Cut);
    assert_eq!(verdict(b"data: {\"error\":{\"code\":400}}\n\n"), EventAction::Pass);
    assert_eq!(verdict(b"data: {\"half\n\n"), EventAction::Cut);
    assert_eq!(verdict(b"\xff\xfe\n\n"), EventAction::Cut);
    assert_eq!(verdict(b"garbage\n\n"), EventAction::Cut);
    assert_eq!(verdict(b": a comment\n\n"), EventAction::Pass);
    assert_eq!(verdict(b"event: x\ndata: {}\n\n"), EventAction::Pass);
}

#[test]
fn an_answer_that_lacks_only_its_end_is_closed() {
    let mut resume = Resume::new(Api::Completions, COMPLETION.as_bytes()).unwrap();
    resume.on_event(b"data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n");
    assert_eq!(resume.on_cut(), Continuation::Close(DONE.to_owned()));
    resume.on_event(DONE.as_bytes());
    assert_eq!(resume.on_cut(), Continuation::Close(String::new()));

    let capped = COMPLETION.replace("900", "1");
    let mut resume = Resume::new(Api::Completions, capped.as_bytes()).unwrap();
    let event = "data: {\"id\":\"i\",\"object\":\"o\",\"created\":1,\"model\":\"m\",\"choices\":[{\"text\":\"a\"}]}\n\n";
    resume.on_event(event.as_bytes());
    let Continuation::Close(end) = resume.on_cut() else { panic!("it is complete") };
    let seen = seen(&end);
    assert_eq!((seen.finishes, seen.dones, seen.ids), (1, 1, vec!["i 1 m".to_owned()]));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut resume = chat();
    let word = "x".repeat(1000);
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{word}\"}}}}]}}\n\n");
    for _ in 0..SAID_BYTES_MAX / 1000 + 2 {
        assert_eq!(resume.on_event(event.as_bytes()), EventAction::Pass);
        assert!(resume.said_bytes() <= SAID_BYTES_MAX);
    }
    assert!(resume.is_idle());
    assert_eq!((resume.on_cut(), resume.said_bytes()), (Continuation::GiveUp, 0));
}
