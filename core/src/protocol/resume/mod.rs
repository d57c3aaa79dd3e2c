//! A streamed answer that another replica can continue: what was sent so far, what the other
//! replica is asked, and how its events must look so that the client sees one answer. Works on
//! whole events: what was passed on to the client is the truth, and half an event never was. It
//! decides nothing about replicas, and it never guesses: where the rest would not fit exactly, it
//! says so.

mod event;
mod request;
mod splice;

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Api;
use super::peek::{quoted, span_of};
pub use event::event_end;
use event::{Choice, Chunk, Delta, Read, UsageObject};
use request::Request;
use splice::splice;

/// What is kept of one answer at most; a longer one cannot be resumed any more.
const SAID_BYTES_MAX: usize = 256 << 10;

const DONE: &str = "data: [DONE]\n\n";

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAction {
    /// Passed on as it stands.
    Pass,
    /// Not passed on: the client has seen it.
    Skip,
    /// Passed on in this form.
    Write(Vec<u8>),
    /// Not passed on: the replica has failed. It is as if it had broken off before this event.
    Cut,
}

/// What can be done about an answer that broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// Another replica may go on.
    GoOn,
    /// Nothing was missing but this.
    Close(String),
    /// The client must be told.
    GiveUp,
}

/// What of an event tells it from those of another answer, as it stands there.
#[derive(Debug)]
struct Envelope {
    id: Option<String>,
    object: Option<String>,
    created: Option<String>,
    model: Option<String>,
}

/// One streamed answer, over as many replicas as it takes.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the stream")]
pub struct Resume {
    request: Request,
    /// What the first event said of itself; all later ones say the same.
    envelope: Option<Envelope>,
    /// Whether the role was sent to the client.
    role_said: bool,
    said: String,
    /// Tokens said, by the engine's count if it counts along, else one for each event with words.
    tokens: u32,
    /// Whether another replica has taken over.
    resumed: bool,
    /// Tokens said before it did.
    tokens_before: u32,
    /// White space that was said and then left out of the request for the rest, because templates
    /// trim it; the replica may say it again.
    swallow: String,
    /// Something was said that cannot be continued.
    hopeless: bool,
    finished: bool,
    usage_said: bool,
    over: bool,
}

impl Resume {
    /// Reads a request; `None` where its answer could not be continued exactly.
    pub fn new(api: Api, body: &[u8]) -> Option<Self> {
        Some(Self {
            request: Request::read(api, body)?,
            envelope: None,
            role_said: false,
            said: String::new(),
            tokens: 0,
            resumed: false,
            tokens_before: 0,
            swallow: String::new(),
            hopeless: false,
            finished: false,
            usage_said: false,
            over: false,
        })
    }

    /// Takes in the next whole event, and says what the client gets of it.
    pub fn on_event(&mut self, event: &[u8]) -> EventAction {
        match event::read(event) {
            // The engine's own words say more than ours, where no other replica can go on.
            Read::Chunk(chunk) if chunk.is_fault() && !self.hopeless => EventAction::Cut,
            Read::Chunk(chunk) if chunk.choices.is_some() => self.on_chunk(event, &chunk),
            Read::Done => {
                self.over = true;
                EventAction::Pass
            }
            Read::Comment => EventAction::Pass,
            Read::Chunk(_) | Read::Foreign => {
                self.hopeless = true;
                EventAction::Pass
            }
            Read::Garbage => EventAction::Cut,
        }
    }

    /// Notes that the answer broke off, and says what can be done. After `GoOn` the events of another
    /// replica follow.
    pub fn on_cut(&mut self) -> Continuation {
        let usage_owed = self.request.wants_usage && !self.usage_said;
        if self.over {
            return Continuation::Close(String::new());
        }
        if self.finished {
            return if usage_owed {
                Continuation::GiveUp
            } else {
                Continuation::Close(DONE.to_owned())
            };
        }
        if self.hopeless {
            return Continuation::GiveUp;
        }
        if self.request.left(self.tokens) == Some(0) {
            // All that could be said was, but for the reason to stop.
            return match self.last_words() {
                Some(words) if !usage_owed => Continuation::Close(words),
                _ => Continuation::GiveUp,
            };
        }
        self.resumed = true;
        self.swallow = self.said[self.asked().len()..].to_owned();
        if self.asked().is_empty() {
            self.tokens = 0;
        }
        self.tokens_before = self.tokens;
        Continuation::GoOn
    }

    /// Writes the body that asks another replica for the rest. `splices` are what goes out otherwise
    /// than it came anyway.
    pub fn body(&self, body: &[u8], splices: &[(Range<usize>, String)]) -> Vec<u8> {
        self.request.continued(body, splices, self.asked(), self.tokens)
    }

    /// Bytes kept of what was said.
    pub fn said_bytes(&self) -> usize {
        self.said.len()
    }

    /// Tells whether the answer was passed on to its end.
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Tells whether all further events may pass unread: they cannot be continued, and come from the
    /// replica that answered first.
    pub const fn is_idle(&self) -> bool {
        self.hopeless && !self.resumed
    }

    /// Forgoes another replica's help, because there is no room to keep what is said.
    pub fn give_up(&mut self) {
        self.hopeless = true;
        self.said = String::new();
    }

    /// What the other replica is told of what was said.
    fn asked(&self) -> &str {
        match self.request.api {
            Api::Chat => self.said.trim_end(),
            // A prompt is no template: nothing trims it.
            Api::Completions | Api::Responses | Api::Messages | Api::Other => &self.said,
        }
    }

    fn on_chunk(&mut self, event: &[u8], chunk: &Chunk<'_>) -> EventAction {
        let text = std::str::from_utf8(event).expect("it was read as text");
        let mut edits = EventEdits { text, list: Vec::new() };
        match &self.envelope {
            Some(envelope) if self.resumed => envelope.put(chunk, &mut edits),
            Some(_) => {}
            None => self.envelope = Some(Envelope::of(chunk)),
        }
        let mut empty = self.resumed;
        for choice in chunk.choices.iter().flatten() {
            empty &= self.on_choice(choice, &mut edits);
        }
        if let Some(figures) = &chunk.usage {
            empty = false;
            self.usage_said |= chunk.choices.as_ref().is_some_and(Vec::is_empty);
            self.on_figures(figures, &mut edits);
        }
        match (empty, edits.list.is_empty()) {
            (true, _) => EventAction::Skip,
            (false, true) => EventAction::Pass,
            (false, false) => EventAction::Write(splice(event, edits.list)),
        }
    }

    /// Takes in one choice; returns whether it says nothing the client does not know.
    fn on_choice(&mut self, choice: &Choice<'_>, edits: &mut EventEdits<'_>) -> bool {
        if choice.index.unwrap_or(0) != 0 || choice.logprobs.is_some() {
            self.hopeless = true;
        }
        let finishes = choice.finish_reason.is_some();
        self.finished |= finishes;
        let empty = match (choice.delta, choice.text) {
            (Some(raw), _) => self.on_delta(raw, edits),
            (None, Some(raw)) => {
                let (rest, new) = self.on_words(raw);
                if let Some(new) = new {
                    edits.put(Some(raw), quoted(&new));
                }
                rest == 0
            }
            (None, None) => true,
        };
        empty && !finishes
    }

    /// Takes in a chat's delta; returns whether it says nothing the client does not know.
    fn on_delta(&mut self, raw: &RawValue, edits: &mut EventEdits<'_>) -> bool {
        let Some(delta) = Delta::read(raw) else {
            self.hopeless = true;
            return false;
        };
        let more = delta.has_more();
        self.hopeless |= more;
        let (rest, new) = delta.get("content").map_or((0, None), |it| self.on_words(it));
        let role = delta.get("role").is_some();
        let role_again = role && self.role_said && self.resumed;
        if role_again || new.is_some() {
            edits.put(Some(raw), delta.rewritten(new.as_deref()));
        }
        let role_first = role && !self.role_said;
        self.role_said |= role;
        rest == 0 && !more && !role_first
    }

    /// Takes in words. Returns how many bytes of them are new to the client, and those if they are not
    /// all.
    fn on_words(&mut self, raw: &RawValue) -> (usize, Option<String>) {
        #[derive(Deserialize)]
        struct Words<'a>(#[serde(borrow)] Cow<'a, str>);
        let Ok(Words(words)) = serde_json::from_str(raw.get()) else {
            self.hopeless = true;
            return (raw.get().len(), None);
        };
        let known = shared(&words, &self.swallow);
        if known < words.len() {
            self.swallow.clear();
        } else {
            self.swallow.drain(..known);
        }
        let new = &words[known..];
        if !new.is_empty() {
            self.tokens = self.tokens.saturating_add(1);
            self.keep(new);
        } else if 0 < known {
            // The replica counts it among its own, and it was counted before.
            self.tokens_before = self.tokens_before.saturating_sub(1);
        }
        (new.len(), (0 < known).then(|| new.to_owned()))
    }

    fn keep(&mut self, words: &str) {
        if self.hopeless {
            return;
        }
        if SAID_BYTES_MAX < self.said.len() + words.len() {
            self.give_up();
        } else {
            self.said.push_str(words);
        }
    }

    /// Adds up the engine's figures: what was said before was the other's output, and this one's
    /// prompt. The total stays as it is.
    fn on_figures(&mut self, figures: &UsageObject<'_>, edits: &mut EventEdits<'_>) {
        let number = |raw: Option<&RawValue>| raw.and_then(|it| it.get().parse::<u32>().ok());
        let Some(output) = number(figures.completion_tokens) else { return };
        let output = output.saturating_add(self.tokens_before);
        self.tokens = output;
        if !self.resumed {
            return;
        }
        edits.put(figures.completion_tokens, output.to_string());
        let Some(input) = number(figures.prompt_tokens) else { return };
        let input = input.saturating_sub(self.tokens_before);
        edits.put(figures.prompt_tokens, input.to_string());
        let cached = figures.prompt_tokens_details.as_ref().and_then(|it| it.cached_tokens);
        if let Some(count) = number(cached) {
            edits.put(cached, count.min(input).to_string());
        }
    }

    /// Writes the end of an answer that was cut off by its cap.
    fn last_words(&self) -> Option<String> {
        let Envelope { id, object, created, model } = self.envelope.as_ref()?;
        let (id, object) = (id.as_ref()?, object.as_ref()?);
        let (created, model) = (created.as_ref()?, model.as_ref()?);
        let words = if self.request.api == Api::Chat { r#""delta":{}"# } else { r#""text":"""# };
        Some(format!(
            r#"data: {{"id":{id},"object":{object},"created":{created},"model":{model},"choices":[{{"index":0,{words},"logprobs":null,"finish_reason":"length"}}]}}{}"#,
            "\n\n".to_owned() + DONE
        ))
    }
}

impl Envelope {
    fn of(chunk: &Chunk<'_>) -> Self {
        let kept = |raw: Option<&RawValue>| raw.map(|it| it.get().to_owned());
        Self {
            id: kept(chunk.id),
            object: kept(chunk.object),
            created: kept(chunk.created),
            model: kept(chunk.model),
        }
    }

    fn put(&self, chunk: &Chunk<'_>, edits: &mut EventEdits<'_>) {
        let pairs =
            [(&self.id, chunk.id), (&self.created, chunk.created), (&self.model, chunk.model)];
        for (kept, raw) in pairs {
            if let Some(kept) = kept {
                edits.put(raw, kept.clone());
            }
        }
    }
}

/// What is to be changed in an event.
struct EventEdits<'a> {
    text: &'a str,
    list: Vec<(Range<usize>, String)>,
}

impl EventEdits<'_> {
    fn put(&mut self, raw: Option<&RawValue>, new: String) {
        if let Some(raw) = raw
            && raw.get() != new
        {
            self.list.push((span_of(raw, self.text), new));
        }
    }
}

/// Counts the leading bytes that two texts share, in whole characters.
fn shared(one: &str, other: &str) -> usize {
    let alike = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
    alike.map(|(it, _)| it.len_utf8()).sum()
}

#[cfg(test)]
mod tests;
