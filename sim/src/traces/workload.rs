//! A workload as the world sees it: made from a trace, from tenants over content, or from a
//! generator, and pulled one request at a time. This is the only place that matches a format to its
//! reader and a loop to its player.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cleave_core::domain::Moment;

use super::draw;
use super::format::Format;
use super::group;
use super::lines::{Lines, TraceError};
use super::mix::{ClassShare, Mix};
use super::player::Player;
use super::readers::servegen::Clients;
use super::readers::{Bailian, BurstGpt, LmCache, RequestLines, SessionLines};
use super::recording::Recording;
use super::replay::{Loop, Replay, Scale};
use super::request::{Class, Request, Session, Ticket};
use super::source::{OpenLoop, Requests, Sessions, Source};
use super::synthetic::Synthetic;
use super::tenants::Composition;
use super::ties::Ties;

/// Mooncake's recorder wrote a timestamp every three seconds.
const MOONCAKE_BUCKET: Duration = Duration::from_secs(3);
/// `BurstGPT`'s timestamps are whole seconds.
const BURSTGPT_BUCKET: Duration = Duration::from_secs(1);

/// Requests to be played, in order of arrival.
pub struct Workload {
    source: Box<dyn Source>,
    left: u64,
    /// What sessions are labelled with, by this seed.
    labels: Option<(u64, Mix)>,
    /// The class whose requests alone are played, and the next of them.
    only: Option<Class>,
    next: Option<Request>,
}

/// What a file holds.
enum Content {
    Requests(Requests),
    Sessions(Sessions),
    Clients(Clients),
}

impl Workload {
    /// Opens a trace, whose format is told by its first line unless named.
    pub fn open(path: &Path, format: Option<Format>, replay: &Replay) -> Result<Self, TraceError> {
        match content(path, format, replay)? {
            Content::Requests(requests) => Self::of_requests(requests, replay),
            Content::Sessions(sessions) => Ok(Self::of_sessions(sessions, replay)),
            Content::Clients(clients) => {
                let requests = super::lengths::requests(Arc::new(clients), replay);
                Ok(Self::new(OpenLoop::new(requests), replay))
            }
        }
    }

    /// Plays what a router recorded, in one file or several.
    pub fn of_recordings(files: &[PathBuf], replay: &Replay) -> Result<Self, TraceError> {
        let requests = Recording::open(files.iter().map(PathBuf::as_path))?.whole()?;
        Self::of_requests(Box::new(requests.into_iter().map(Ok)), replay)
    }

    /// Plays the tenants of a `ServeGen` file over the content of another trace. Open-loop, every
    /// arrival of a tenant is a request; closed-loop, it is the start of a session.
    pub fn compose(
        tenants: &Path,
        content_of: &Path,
        classes: &[ClassShare],
        replay: &Replay,
    ) -> Result<Self, TraceError> {
        let clients = Arc::new(Clients::open(tenants)?);
        let mut sessions = whole_content(content_of, replay)?;
        for session in &mut sessions {
            session.cut_prompts(replay.prompt_tokens_max);
        }
        sessions.retain(|session| !session.turns.is_empty());
        let composition = Composition::new(clients, sessions.into(), classes, replay);
        // The arrivals are already cut and scaled.
        let rest = Replay {
            rate_scale: Scale::ONE,
            from: Duration::ZERO,
            until: Duration::MAX,
            ..replay.clone()
        };
        Ok(match replay.pace {
            Loop::Open => Self::new(OpenLoop::new(Box::new(composition.requests())), replay),
            Loop::Closed => Self::of_sessions(Box::new(composition.sessions()), &rest),
        })
    }

    /// Generates a workload.
    pub fn synthetic(synthetic: &Synthetic, replay: &Replay) -> Self {
        match synthetic {
            Synthetic::SharedPrefix(it) => {
                Self::new(OpenLoop::new(shaped(it.requests(replay.seed), replay)), replay)
            }
            Synthetic::HeavyTail(it) => {
                Self::new(OpenLoop::new(shaped(it.requests(replay.seed), replay)), replay)
            }
            Synthetic::MultiTurn(it) => {
                let replay = Replay { starts: it.starts, ..replay.clone() };
                Self::of_sessions(it.generate(replay.seed), &replay)
            }
        }
    }

    /// Plays requests that arrive in order.
    pub fn of_requests(requests: Requests, replay: &Replay) -> Result<Self, TraceError> {
        Ok(match replay.pace {
            Loop::Open => Self::new(OpenLoop::new(shaped(requests, replay)), replay),
            Loop::Closed => {
                let sessions = group::sessions(requests)?;
                Self::of_sessions(Box::new(sessions.into_iter().map(Ok)), replay)
            }
        })
    }

    /// Plays sessions; those with a recorded start come in its order.
    pub fn of_sessions(sessions: Sessions, replay: &Replay) -> Self {
        Self::new(Player::new(sessions, replay.clone()), replay)
    }

    fn new(source: impl Source + 'static, replay: &Replay) -> Self {
        let (labels, only, next) = (None, None, None);
        Self { source: Box::new(source), left: replay.requests_max, labels, only, next }
    }

    /// Deals tenants and classes to its sessions, over what the recording says.
    #[must_use]
    pub fn labelled(self, seed: u64, mix: Mix) -> Self {
        Self { labels: Some((seed, mix)), ..self }
    }

    /// Leaves out the requests of all classes but one, which come when they would come among the
    /// others. For open loops: nothing waits for what is left out.
    #[must_use]
    pub fn only(self, class: Class) -> Self {
        Self { only: Some(class), ..self }
    }

    /// Says when the next request arrives. None: nothing more comes until something ends, or ever.
    pub fn next_arrival(&mut self) -> Result<Option<Moment>, TraceError> {
        if self.only.is_some() {
            self.find_next()?;
            return Ok(self.next.as_ref().map(|it| it.arrival));
        }
        if self.left == 0 { Ok(None) } else { self.source.next_arrival() }
    }

    /// Takes the next request.
    pub fn take(&mut self) -> Result<Option<Request>, TraceError> {
        if self.only.is_some() {
            self.find_next()?;
            return Ok(self.next.take());
        }
        self.pull()
    }

    fn find_next(&mut self) -> Result<(), TraceError> {
        while self.next.is_none() {
            let Some(request) = self.pull()? else { return Ok(()) };
            self.next = Some(request).filter(|it| Some(it.class) == self.only);
        }
        Ok(())
    }

    fn pull(&mut self) -> Result<Option<Request>, TraceError> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut request = self.source.take()?;
        if let (Some(request), Some((seed, mix))) = (&mut request, &self.labels) {
            mix.label(*seed, request);
        }
        self.left -= u64::from(request.is_some());
        Ok(request)
    }

    /// Learns that a request has ended, however it ended; what waited for it may now arrive.
    pub fn on_end(&mut self, now: Moment, ticket: Ticket) {
        self.source.on_end(now, ticket);
    }
}

/// Tells the format of a file by its first line; none when that looks like nothing known.
pub fn format_of(path: &Path) -> Result<Option<Format>, TraceError> {
    Ok(Format::detect(Lines::open(path)?.peek()?))
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workload").field("left", &self.left).finish_non_exhaustive()
    }
}

/// Opens a file with the reader of its format.
fn content(path: &Path, format: Option<Format>, replay: &Replay) -> Result<Content, TraceError> {
    let mut lines = Lines::open(path)?;
    let detected = Format::detect(lines.peek()?);
    let Some(format) = format.or(detected) else {
        return Err(TraceError::UnknownFormat { file: lines.file() });
    };
    let spread = |requests: Requests, bucket| Box::new(Ties::new(requests, bucket, replay.seed));
    Ok(match format {
        Format::Mooncake | Format::Azure => {
            let requests = Box::new(RequestLines::new(lines));
            Content::Requests(spread(requests, MOONCAKE_BUCKET))
        }
        Format::BurstGpt => {
            Content::Requests(spread(Box::new(BurstGpt::new(lines)), BURSTGPT_BUCKET))
        }
        Format::Bailian => Content::Requests(Box::new(Bailian::new(lines))),
        Format::Sessions => {
            Content::Sessions(Box::new(SessionLines::new(lines, replay.share_tools)))
        }
        Format::Recording => {
            let requests = Recording::of_file(lines)?.whole()?;
            Content::Requests(Box::new(requests.into_iter().map(Ok)))
        }
        Format::LmCache => Content::Sessions(Box::new(LmCache::new(lines))),
        Format::ServeGen => Content::Clients(Clients::read(lines)?),
    })
}

/// Reads all sessions of a file.
fn whole_content(path: &Path, replay: &Replay) -> Result<Vec<Session>, TraceError> {
    match content(path, None, replay)? {
        Content::Requests(requests) => group::sessions(requests),
        Content::Sessions(sessions) => sessions.collect(),
        Content::Clients(_) => {
            Err(TraceError::NoContent { file: path.display().to_string().into() })
        }
    }
}

/// Cuts requests to the part that is to be played, and squeezes their time.
fn shaped(requests: Requests, replay: &Replay) -> Requests {
    let (from, until) = (Moment::ZERO + replay.from, Moment::ZERO + replay.until);
    let (factor, tokens_max) = (1.0 / replay.rate_scale.get(), replay.prompt_tokens_max);
    let before_end =
        move |it: &Result<Request, _>| it.as_ref().map_or(true, |it| it.arrival < until);
    let played = move |it: &Result<Request, _>| {
        it.as_ref().map_or(true, |it| from <= it.arrival && it.prompt.tokens() <= tokens_max)
    };
    let squeezed = move |it: Result<Request, _>| {
        it.map(|request| {
            let since = draw::scaled(request.arrival.since(from), factor);
            Request { arrival: Moment::ZERO + since, ..request }
        })
    };
    Box::new(requests.take_while(before_end).filter(played).map(squeezed))
}
