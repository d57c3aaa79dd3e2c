//! The protocol with one other router: introduce, tell, hear, find gaps, repair them. What is under way to a peer is
//! bounded. A peer that falls behind is not sent the backlog: once it has heard what was sent, it is told everything
//! anew, and the same repairs a gap. A driver carries frames in order; where it loses one, the numbers show it.
//!
//! A link lives as long as one connection. What its end means for the books of the other router, the brain decides.

mod asking;
mod outbox;
mod standing;

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::Moment;

use super::codec::Malformed;
use super::election::View;
use super::frame::{self, Hello, PeerFrame, RouterAt, VERSION, VERSION_MIN};
use super::link_event::{LinkEvent, LinkTotals};
use super::news::News;
use super::tenure::StoreWord;
use outbox::{Batch, Outbox};

/// What may be under way to a peer, or wait to be.
const UNHEARD_BYTES_MAX: usize = 8 << 20;
/// What a peer may tell in one go, at most.
const WHOLE_BYTES_MAX: usize = 64 << 20;
/// A sign of life is sent this often.
const BEAT: Duration = Duration::from_millis(200);
/// How soon it is told what was heard, by itself; sooner where something goes anyway.
const ANSWER: Duration = Duration::from_millis(50);
const ANSWER_ALONG: Duration = Duration::from_millis(10);
/// A peer that was not heard of for this long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How long to wait for what was asked for.
const ASK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Link {
    peer: Option<Hello>,
    /// The version that this end writes where the peer reads it.
    own_version: u32,
    /// Frames that carry no news.
    control: VecDeque<PeerFrame>,
    outbox: Outbox,
    /// The number of the last frame of news that was sent, and those the peer has not heard yet.
    told: u64,
    unheard: VecDeque<(u64, Moment, usize)>,
    unheard_bytes: usize,
    /// The peer must be told everything before it is told more.
    is_behind: bool,
    /// The driver was asked for everything.
    has_asked: bool,
    /// The number of the last frame of news that was heard.
    heard: u64,
    /// Since when the peer is to be told what was heard.
    owes_heard: Option<Moment>,
    /// Something is missing, and was asked for last then.
    gap: Option<Moment>,
    /// Parts of a whole that is coming.
    staged: Vec<(u64, Vec<News>)>,
    staged_parts: u32,
    staged_bytes: usize,
    heard_at: Moment,
    told_at: Moment,
    /// The number of the last question.
    asked: u64,
    totals: LinkTotals,
}

impl Link {
    /// Begins to talk to a peer.
    pub fn new(now: Moment, own: Hello) -> Self {
        Self {
            peer: None,
            own_version: own.version,
            control: VecDeque::from([PeerFrame::Hello(own)]),
            outbox: Outbox::new(),
            told: 0,
            unheard: VecDeque::new(),
            unheard_bytes: 0,
            is_behind: true,
            has_asked: false,
            heard: 0,
            owes_heard: None,
            gap: None,
            staged: Vec::new(),
            staged_parts: 0,
            staged_bytes: 0,
            heard_at: now,
            told_at: now,
            asked: 0,
            totals: LinkTotals::default(),
        }
    }

    /// The peer, once it has introduced itself.
    pub const fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref()
    }

    pub const fn totals(&self) -> LinkTotals {
        self.totals
    }

    /// Tells what happened in a pool; nothing while the peer is to be told everything.
    pub fn tell(&mut self, now: Moment, pool: u64, news: &[News]) {
        if self.is_behind {
            return;
        }
        self.outbox.tell(now, self.version(), pool, news);
        if UNHEARD_BYTES_MAX < self.pending_bytes() {
            self.fall_behind();
            self.totals.overruns += 1;
        }
    }

    /// Tells everything there is to tell, pool by pool. It replaces what waits.
    pub fn tell_whole(&mut self, pools: &[(u64, Vec<News>)]) {
        self.outbox.tell_whole(self.version(), pools);
        (self.is_behind, self.has_asked) = (false, false);
        self.totals.wholes_told += 1;
    }

    /// Notes that news were lost before they came here: the peer must be told everything.
    pub fn miss(&mut self) {
        if !self.is_behind {
            self.fall_behind();
            self.totals.overruns += 1;
        }
    }

    pub fn tell_members(&mut self, members: Vec<RouterAt>) {
        self.control.push_back(PeerFrame::Members(members));
    }

    /// Tells what this router sees, in the place of what it was going to tell.
    pub fn tell_view(&mut self, view: View) {
        let version = self.version();
        if self.peer.is_some() && 2 <= version {
            let store = if 3 <= version { view.store } else { StoreWord::Silent };
            let view = View { store, ..view };
            self.control.retain(|it| !matches!(it, PeerFrame::View(_)));
            self.control.push_back(PeerFrame::View(view));
        }
    }

    /// Says that this router leaves, after all that it has told.
    pub fn say_goodbye(&mut self) {
        self.control.push_back(PeerFrame::Goodbye);
    }

    /// When to call [`Link::take`] next.
    pub fn due(&self) -> Moment {
        if self.control.is_empty() { self.outbox.due() } else { Moment::ZERO }
    }

    /// Has all that waits be sent now.
    pub fn hurry(&mut self) {
        self.outbox.send();
    }

    /// Takes the next frame to send, if it is time. Where one goes, all goes that waits.
    pub fn take(&mut self, now: Moment) -> Option<Vec<u8>> {
        if now < self.due() {
            return None;
        }
        if !self.control.is_empty() {
            self.outbox.send();
        }
        if self.owes_heard.is_some_and(|it| ANSWER_ALONG <= now.since(it)) {
            self.answer_heard();
        }
        let is_news_first = matches!(self.control.front(), Some(PeerFrame::Goodbye) | None);
        let batch = if is_news_first { self.outbox.take(now) } else { None };
        let bytes = match batch {
            Some(Batch { pool, part, count, bytes }) => {
                self.told += 1;
                let frame = frame::encode_list(self.told, pool, part, count, &bytes);
                self.unheard.push_back((self.told, now, frame.len()));
                self.unheard_bytes += frame.len();
                frame
            }
            None => self.control.pop_front()?.encode(),
        };
        self.told_at = now;
        self.totals.bytes_told += u64::try_from(bytes.len()).unwrap_or(0);
        Some(bytes)
    }

    /// Takes in a frame that has come.
    pub fn on_frame(
        &mut self,
        now: Moment,
        bytes: &[u8],
        events: &mut Vec<LinkEvent>,
    ) -> Result<(), Malformed> {
        self.heard_at = now;
        self.totals.bytes_heard += u64::try_from(bytes.len()).unwrap_or(0);
        let frame = PeerFrame::decode(bytes)?;
        if self.peer.is_none() && !matches!(frame, PeerFrame::Hello(_)) {
            return Err(Malformed::Unknown(bytes.first().copied().unwrap_or(0)));
        }
        match frame {
            PeerFrame::Hello(hello) => {
                let is_fit = VERSION_MIN <= hello.version && hello.version_min <= VERSION;
                if is_fit && self.peer.is_none() {
                    self.peer = Some(hello.clone());
                    events.push(LinkEvent::Met(hello));
                    self.lack(events);
                } else if !is_fit {
                    events.push(LinkEvent::Unfit(hello));
                }
            }
            PeerFrame::Members(members) => events.push(LinkEvent::Members(members)),
            PeerFrame::View(view) => events.push(LinkEvent::View(view)),
            PeerFrame::News { number, pool, news } => {
                let is_next = self.is_next(now, number) && self.gap.is_none();
                if is_next && !news.is_empty() {
                    note_heard(pool, news, events);
                }
            }
            PeerFrame::Whole { number, pool, part, is_last, news } => {
                self.stage(now, number, part, (pool, news), bytes.len());
                if is_last && self.staged_parts == part + 1 {
                    self.unstage(events);
                }
            }
            PeerFrame::Heard { number, told } => {
                self.on_heard(number);
                self.on_told(now, told);
            }
            PeerFrame::Resend => {
                self.fall_behind();
                self.lack(events);
            }
            PeerFrame::Goodbye => events.push(LinkEvent::Left),
            PeerFrame::Asked { number, question } => {
                events.push(LinkEvent::Asked { number, question });
            }
            PeerFrame::Answered { number, answer } => {
                events.push(LinkEvent::Answered { number, answer });
            }
        }
        Ok(())
    }

    /// When to call [`Link::on_time`] next.
    pub fn next_wakeup(&self) -> Moment {
        let answer = self.owes_heard.map_or(Moment::MAX, |it| it + ANSWER);
        (self.told_at + BEAT).min(self.heard_at + SILENCE_MAX).min(answer)
    }

    /// Does what only time brings.
    pub fn on_time(&mut self, now: Moment, events: &mut Vec<LinkEvent>) {
        if SILENCE_MAX <= now.since(self.heard_at) {
            events.push(LinkEvent::Silent);
            return;
        }
        let is_owed = self.owes_heard.is_some_and(|it| ANSWER <= now.since(it));
        if BEAT <= now.since(self.told_at) || is_owed {
            self.answer_heard();
        }
        if self.gap.is_some_and(|at| ASK_AGAIN <= now.since(at)) {
            self.ask(now);
        }
        // One that fell behind is told everything once nothing is under way to it.
        if self.is_behind && self.unheard.is_empty() && self.peer.is_some() {
            self.lack(events);
        }
    }

    fn lack(&mut self, events: &mut Vec<LinkEvent>) {
        if !std::mem::replace(&mut self.has_asked, true) {
            events.push(LinkEvent::Lacks);
        }
    }

    /// Says what was heard, and what was told.
    fn answer_heard(&mut self) {
        self.owes_heard = None;
        // Where the peer takes nothing, one is enough.
        self.control.retain(|it| !matches!(it, PeerFrame::Heard { .. }));
        self.control.push_back(PeerFrame::Heard { number: self.heard, told: self.told });
    }

    /// Drops what waits: the peer will be told everything.
    fn fall_behind(&mut self) {
        self.outbox.clear();
        self.is_behind = true;
    }

    /// Notes what the peer has heard.
    fn on_heard(&mut self, number: u64) {
        while let Some((_, _, bytes)) = self.unheard.front().filter(|it| it.0 <= number) {
            self.unheard_bytes -= bytes;
            self.unheard.pop_front();
        }
    }

    /// Finds out whether the last that was told is missing.
    fn on_told(&mut self, now: Moment, told: u64) {
        if self.heard < told && self.gap.is_none() {
            self.totals.gaps += 1;
            self.ask(now);
        }
    }

    /// Tells whether a frame is the next one; else something is missing.
    fn is_next(&mut self, now: Moment, number: u64) -> bool {
        let is_next = number == self.heard + 1;
        self.heard = self.heard.max(number);
        self.owes_heard = self.owes_heard.or(Some(now));
        if !is_next && self.gap.is_none() {
            self.totals.gaps += 1;
            self.ask(now);
        }
        is_next
    }

    fn ask(&mut self, now: Moment) {
        self.gap = Some(now);
        (self.staged, self.staged_parts, self.staged_bytes) = Default::default();
        self.control.push_back(PeerFrame::Resend);
    }

    /// Keeps a part of a whole until all parts are there. A first part begins a new whole, also after a gap.
    fn stage(
        &mut self,
        now: Moment,
        number: u64,
        part: u32,
        (pool, news): (u64, Vec<News>),
        bytes: usize,
    ) {
        if part == 0 {
            (self.staged, self.staged_parts, self.staged_bytes) = Default::default();
            self.heard = number - number.min(1);
        }
        let is_next = self.is_next(now, number) && part == self.staged_parts;
        if !is_next || WHOLE_BYTES_MAX < self.staged_bytes {
            return;
        }
        self.staged_parts += 1;
        self.staged_bytes += bytes;
        match self.staged.iter_mut().find(|it| it.0 == pool) {
            Some(it) => it.1.extend(news),
            None => self.staged.push((pool, news)),
        }
    }

    fn unstage(&mut self, events: &mut Vec<LinkEvent>) {
        self.gap = None;
        self.totals.wholes_heard += 1;
        (self.staged_parts, self.staged_bytes) = (0, 0);
        let staged = std::mem::take(&mut self.staged).into_iter();
        events.extend(staged.map(|(pool, news)| LinkEvent::Heard { pool, news, is_whole: true }));
    }
}

/// Notes news that were heard. What comes right after other news of the same pool is heard with them.
fn note_heard(pool: u64, more: Vec<News>, events: &mut Vec<LinkEvent>) {
    match events.last_mut() {
        Some(LinkEvent::Heard { pool: same, news, is_whole: false }) if *same == pool => {
            news.extend(more);
        }
        _ => events.push(LinkEvent::Heard { pool, news: more, is_whole: false }),
    }
}
