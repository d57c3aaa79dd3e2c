//! From an ask to an answer: make the text up, let the engine time it, and put it into the shape of
//! the API it was asked by, streamed or whole. The one flow that all generating APIs share; a shape
//! only says how things are written.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use cleave_sim::engine::{Event, Job};
use futures_util::stream;
use http::header;
use serde::Serialize;

use super::Replica;
use super::ask::{Ask, Tool, render_call};
use super::driver::Ticket;
use super::events::Events;
use super::refusal::{ErrorDialect, Refusal, json, to_json};
use super::stored::StoredResponse;
use super::text::{self, Author, Draft, TOKEN_BYTES};

/// How one API writes answers.
pub(super) trait Shape: Sized + Send + 'static {
    const DIALECT: ErrorDialect;
    const ID_PREFIX: &'static str;

    /// Reads a request of this API.
    fn read(body: &[u8]) -> Result<(Ask, Self), Refusal>;

    /// Opens the stream; called when the first token is there.
    fn open(&mut self, made: &Made, events: &mut Events);

    /// Adds a piece of the text, or of the arguments of the call.
    fn piece(&mut self, made: &Made, text: &str, events: &mut Events);

    fn close(&mut self, made: &Made, events: &mut Events);

    /// Writes the answer in one piece.
    fn whole(&self, made: &Made) -> Vec<u8>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    Stop,
    Length,
    ToolCall,
}

/// An answer and its facts.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) id: String,
    pub(super) created_s: u64,
    pub(super) model: String,
    pub(super) prompt_tokens: u32,
    pub(super) cached_tokens: u32,
    pub(super) output_tokens: u32,
    pub(super) finish: Finish,
    pub(super) call: Option<Call>,
    /// All that the model writes, with the marks a client never sees.
    raw: String,
    /// Where what the client sees begins.
    seen_from: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
}

impl Made {
    /// Returns the text, or the arguments of the call.
    pub(super) fn text(&self) -> &str {
        &self.raw[self.seen_from..]
    }

    /// Returns what the client sees of the token at this place.
    fn piece(&self, token: usize) -> &str {
        let edge = |token: usize| {
            text::ceil_char_boundary(&self.raw, TOKEN_BYTES * token).max(self.seen_from)
        };
        &self.raw[edge(token)..edge(token + 1)]
    }
}

/// Answers a request of one API.
pub(super) async fn generate<S: Shape>(replica: &Replica, body: &[u8]) -> Response {
    let begun = S::read(body).and_then(|(mut ask, shape)| {
        if let Some(id) = ask.previous.take() {
            let stored = replica.shared.stored.get(&id);
            let stored = stored.ok_or(Refusal::UnknownResponse { id })?;
            ask.prompt.splice(..0, stored.said);
        }
        let (made, ticket) = begin(replica, &ask, S::ID_PREFIX)?;
        let (events, tokens) = Default::default();
        let kept = ask.stores.then(|| (replica.clone(), ask.prompt));
        Ok((ask.stream, Generation { made, ticket, shape, events, tokens, kept }))
    });
    match begun {
        Err(refusal) => refusal.into_response(S::DIALECT),
        Ok((true, generation)) => generation.stream(),
        Ok((false, generation)) => generation.collect().await,
    }
}

/// Makes an answer up and hands it to the engine.
fn begin(replica: &Replica, ask: &Ask, id_prefix: &str) -> Result<(Made, Ticket), Refusal> {
    let shared = &replica.shared;
    let model = replica.resolve(ask.model.as_deref())?.to_owned();
    let (prompt_tokens, tokens_max) =
        (text::count_tokens(ask.prompt.len()), shared.driver.capacity_tokens());
    let room = tokens_max.saturating_sub(prompt_tokens);
    let written = match go_on(shared.author, ask, room) {
        Ok(Some(rest)) => Ok(rest),
        Ok(None) => write(shared.author, ask, room),
        Err(wanted) => Err(wanted),
    };
    let mut made = written.map_err(|wanted| Refusal::TooLong {
        tokens: u64::from(prompt_tokens) + u64::from(wanted),
        tokens_max,
    })?;
    let mut all = ask.prompt.clone();
    all.extend_from_slice(made.raw.as_bytes());
    let job = Job {
        id: 0,
        block_hashes: text::hash_blocks(&all, shared.block_tokens),
        prompt_tokens,
        // The end takes a step too, even where nothing is left to say.
        output_tokens: made.output_tokens.max(1),
        given_tokens: 0,
    };
    let ticket = shared
        .driver
        .submit(job)
        .map_err(|it| Refusal::TooLong { tokens: it.tokens, tokens_max: it.capacity_tokens })?;
    made.id = format!("{id_prefix}{}", replica.name_request(ticket.id));
    (made.model, made.prompt_tokens) = (model, prompt_tokens);
    Ok((made, ticket))
}

/// Writes an answer; fails with its length where there is no room for it.
fn write(author: Author, ask: &Ask, room: u32) -> Result<Made, u32> {
    let mut draft = author.begin(&ask.prompt);
    let natural = draft.natural_tokens();
    let (wanted, finish) = ask.length(natural, room)?;
    let called = ask.tool.as_ref().and_then(|it| call(&mut draft, it, ask.output_tokens_max));
    Ok(called.unwrap_or_else(|| Made::new(draft.write(wanted.max(1)), 0, finish, None)))
}

/// Goes on with an answer that was begun; nothing when the end of the prompt is no beginning of it.
fn go_on(author: Author, ask: &Ask, room: u32) -> Result<Option<Made>, u32> {
    let (before, said) = ask.prompt.split_at(ask.prompt.len() - ask.said_bytes);
    if said.is_empty() {
        return Ok(None);
    }
    let mut draft = author.begin(before);
    let said_tokens = text::count_tokens(said.len());
    let natural = draft.natural_tokens();
    let (wanted, finish) = ask.length(natural.saturating_sub(said_tokens), room)?;
    let mut all = draft.write(said_tokens.saturating_add(wanted));
    let goes_on = all.as_bytes().starts_with(said);
    Ok(goes_on.then(|| Made::new(all.split_off(said.len()), 0, finish, None)))
}

impl Ask {
    /// Tells how many tokens are written of those the model would write, and how that ends; fails
    /// with their number where it exceeds `room`.
    fn length(&self, natural: u32, room: u32) -> Result<(u32, Finish), u32> {
        let wanted = match self.output_tokens_max {
            Some(max) if self.ignore_eos => max,
            Some(max) => max.min(natural),
            None => natural,
        };
        let stops = wanted == natural && !self.ignore_eos;
        let finish = if stops { Finish::Stop } else { Finish::Length };
        if room < wanted { Err(wanted) } else { Ok((wanted, finish)) }
    }
}

/// Calls a tool with made-up arguments of the right types; nothing when the cap leaves no room for
/// them.
fn call(draft: &mut Draft, tool: &Tool, tokens_max: Option<u32>) -> Option<Made> {
    let arguments: BTreeMap<&str, Argument> =
        tool.arguments.iter().map(|(name, kind)| (name.as_str(), argument(draft, kind))).collect();
    let arguments = String::from_utf8(to_json(&arguments)).expect("JSON is UTF-8");
    let mut raw = render_call(&tool.name, &arguments);
    let seen_from = raw.len() - arguments.len();
    let bytes_max = usize::try_from(tokens_max.unwrap_or(u32::MAX)).unwrap_or(usize::MAX);
    let cut = text::ceil_char_boundary(&raw, bytes_max.saturating_mul(TOKEN_BYTES));
    if cut <= seen_from {
        return None;
    }
    let finish = if cut < raw.len() { Finish::Length } else { Finish::ToolCall };
    raw.truncate(cut);
    let call = Call { id: format!("call_{:016x}", draft.id()), name: tool.name.clone() };
    Some(Made::new(raw, seen_from, finish, Some(call)))
}

#[derive(Serialize)]
#[serde(untagged)]
enum Argument {
    Text(String),
    Number(u32),
    Flag(bool),
    List([String; 1]),
    Object(BTreeMap<String, String>),
}

fn argument(draft: &mut Draft, kind: &str) -> Argument {
    match kind {
        "integer" | "number" => Argument::Number(draft.number()),
        "boolean" => Argument::Flag(draft.number() < 50),
        "array" => Argument::List([draft.word()]),
        "object" => Argument::Object(BTreeMap::new()),
        _ => Argument::Text(draft.word()),
    }
}

impl Made {
    fn new(raw: String, seen_from: usize, finish: Finish, call: Option<Call>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            id: String::new(),
            created_s: now.as_secs(),
            model: String::new(),
            prompt_tokens: 0,
            cached_tokens: 0,
            output_tokens: text::count_tokens(raw.len()),
            finish,
            call,
            raw,
            seen_from,
        }
    }
}

struct Generation<S> {
    made: Made,
    ticket: Ticket,
    shape: S,
    events: Events,
    /// Tokens seen so far.
    tokens: usize,
    /// Where the answer is kept, and what came before it.
    kept: Option<(Replica, Vec<u8>)>,
}

impl<S: Shape> Generation<S> {
    async fn collect(mut self) -> Response {
        while let Some(event) = self.ticket.next().await {
            self.note(event);
        }
        json(self.shape.whole(&self.made))
    }

    /// Sends headers at once and each event when it is due, as vLLM does.
    fn stream(self) -> Response {
        let body = stream::unfold(self, |mut generation| async {
            let event = generation.next_event().await?;
            Some((Ok::<Bytes, Infallible>(event), generation))
        });
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        (headers, Body::from_stream(body)).into_response()
    }

    async fn next_event(&mut self) -> Option<Bytes> {
        // Giving way once makes the server flush what it has before it takes the next event.
        tokio::task::yield_now().await;
        loop {
            if let Some(event) = self.events.next() {
                return Some(event);
            }
            let event = self.ticket.next().await?;
            self.note(event);
            self.write(event);
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::FirstToken { cached_tokens } => self.made.cached_tokens = cached_tokens,
            Event::Token => {}
            Event::Finished { .. } => self.keep(),
        }
    }

    fn keep(&mut self) {
        let Some((replica, mut said)) = self.kept.take() else { return };
        said.extend_from_slice(self.made.raw.as_bytes());
        let reply = self.shape.whole(&self.made);
        replica.shared.stored.put(&self.made.id, StoredResponse { said, reply });
    }

    fn write(&mut self, event: Event) {
        let Self { made, shape, events, tokens, .. } = self;
        match event {
            Event::FirstToken { .. } => shape.open(made, events),
            Event::Token => {}
            Event::Finished { .. } => return shape.close(made, events),
        }
        let piece = made.piece(*tokens);
        if !piece.is_empty() {
            shape.piece(made, piece, events);
        }
        *tokens += 1;
    }
}

/// Lets the engine read some inputs without writing anything, all at once; returns their tokens.
pub(super) async fn read_only(replica: &Replica, inputs: &[Vec<u8>]) -> Result<u32, Refusal> {
    let shared = &replica.shared;
    let mut tokens = 0_u32;
    let mut tickets = VecDeque::new();
    for input in inputs {
        let prompt_tokens = text::count_tokens(input.len());
        let block_hashes = text::hash_blocks(input, shared.block_tokens);
        let job = Job { id: 0, block_hashes, prompt_tokens, output_tokens: 1, given_tokens: 0 };
        tickets.push_back(shared.driver.submit(job).map_err(|it| Refusal::TooLong {
            tokens: it.tokens,
            tokens_max: it.capacity_tokens,
        })?);
        tokens = tokens.saturating_add(prompt_tokens);
    }
    while let Some(mut ticket) = tickets.pop_front() {
        while ticket.next().await.is_some() {}
    }
    Ok(tokens)
}
