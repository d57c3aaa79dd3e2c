//! Answers as a client reads them: whole, or put together from a stream. Whatever a client would
//! stumble over is an error: another id in the middle, a second role, no end.

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the names are the API's")]
pub(crate) struct Usage {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
}

#[derive(Deserialize)]
struct Reply {
    id: String,
    created: u64,
    model: String,
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    message: Words,
    #[serde(default)]
    delta: Words,
    text: Option<String>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Words {
    role: Option<String>,
    content: Option<String>,
}

#[derive(Deserialize)]
struct Told {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    code: Option<String>,
    message: String,
}

/// Reads the reason out of an error.
pub(crate) fn code(body: &[u8]) -> Option<String> {
    let told: Told = serde_json::from_slice(body).ok()?;
    Some(told.error.code.unwrap_or(told.error.message))
}

/// Finds the event that says that the rest will not come.
pub(crate) fn error_event(stream: &str) -> Option<String> {
    stream.split("\n\n").find_map(|it| code(it.strip_prefix("data: ")?.as_bytes()))
}

pub(crate) fn read_plain(body: &[u8]) -> Result<(String, Option<Usage>)> {
    let reply: Reply = serde_json::from_slice(body).context("not an answer")?;
    let choice = reply.choices.into_iter().next().context("no choice")?;
    Ok((choice.message.content.or(choice.text).unwrap_or_default(), reply.usage))
}

/// Puts a stream together.
pub(crate) fn read_stream(stream: &str, chat: bool) -> Result<(String, Option<Usage>)> {
    let events = stream.strip_suffix("\n\n").context("it ends inside an event")?;
    let (mut text, mut usage, mut name) = (String::new(), None, None);
    let (mut roles, mut finishes, mut dones) = (0, 0, 0);
    for event in events.split("\n\n") {
        let data = event.strip_prefix("data: ").with_context(|| format!("no event: {event:?}"))?;
        if data == "[DONE]" {
            dones += 1;
            continue;
        }
        let reply: Reply = serde_json::from_str(data).with_context(|| format!("event {data:?}"))?;
        let own = (reply.id, reply.created, reply.model);
        ensure!(*name.get_or_insert_with(|| own.clone()) == own, "another answer: {own:?}");
        for choice in reply.choices {
            text.push_str(choice.delta.content.or(choice.text).as_deref().unwrap_or(""));
            roles += u32::from(choice.delta.role.is_some());
            finishes += u32::from(choice.finish_reason.is_some());
        }
        if let Some(figures) = reply.usage {
            ensure!(usage.replace(figures).is_none(), "figures come twice");
        }
    }
    if (roles, finishes, dones) != (u32::from(chat), 1, 1) {
        bail!("{roles} roles, {finishes} finishes, {dones} ends");
    }
    Ok((text, usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, choice: &str) -> String {
        format!(
            "data: {{\"id\":\"{id}\",\"created\":1,\"model\":\"m\",\"choices\":[{choice}]}}\n\n"
        )
    }

    #[test]
    fn a_whole_stream_is_read_and_every_flaw_is_found() {
        let role = event("a", r#"{"delta":{"role":"assistant","content":""}}"#);
        let word = event("a", r#"{"delta":{"content":"hi"}}"#);
        let end = event("a", r#"{"delta":{},"finish_reason":"stop"}"#) + "data: [DONE]\n\n";
        let whole = format!("{role}{word}{word}{end}");
        assert_eq!(read_stream(&whole, true).unwrap(), ("hihi".to_owned(), None));
        for flawed in [
            format!("{role}{word}"),
            format!("{role}{role}{word}{end}"),
            format!("{role}{}{end}", word.replace("\"a\"", "\"b\"")),
            format!("{role}{word}{end}{end}"),
            format!("{role}garbage\n\n{end}"),
            whole.trim_end().to_owned(),
        ] {
            assert!(read_stream(&flawed, true).is_err(), "{flawed}");
        }
        let told = "data: {\"error\":{\"message\":\"m\",\"code\":\"replica_lost\"}}\n\n";
        assert_eq!(error_event(&format!("{role}{told}")).as_deref(), Some("replica_lost"));
        assert_eq!(error_event(&whole), None);
    }
}
