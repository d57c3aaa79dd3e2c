//! What waits to be sent to a peer, and how long it may. What another router needs for its next decision goes at once,
//! unless something went a moment before; whatever may be older rides along, or goes by itself once it has waited long
//! enough. So however much happens, a peer is written to a few hundred times a second at most, and mostly much less.

use std::collections::{BTreeMap, VecDeque};

use crate::cluster::encoding::encode_news;
use crate::cluster::frame::FRAME_BYTES_MAX;
use crate::cluster::news::{News, URGENT};
use crate::domain::{Moment, RequestId};
use crate::fleet::Load;

/// News of one frame: as many as begin within this.
const BATCH_BYTES: usize = 128 << 10;
/// Streams of which only the last progress is kept until it is sent.
const STREAMS_MAX: usize = 4096;

/// News that are written and wait to be sent.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) pool: u64,
    /// Of a whole, which part of it this is, and whether it is the last.
    pub(super) part: Option<(u32, bool)>,
    pub(super) count: usize,
    pub(super) bytes: Vec<u8>,
}

/// How far a stream has come since that was told last.
#[derive(Clone, Copy, Debug, Default)]
struct StreamNews {
    has_begun: bool,
    left: Option<Load>,
}

#[derive(Debug)]
pub(super) struct Outbox {
    batches: VecDeque<Batch>,
    bytes: usize,
    /// Streams of which only the last counts, by pool and request.
    streams: BTreeMap<(u64, RequestId), StreamNews>,
    /// When all of it is to be sent at the latest.
    due: Moment,
    /// Whether it is being sent.
    is_going: bool,
    /// When something was sent last.
    sent_at: Option<Moment>,
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self {
            batches: VecDeque::new(),
            bytes: 0,
            streams: BTreeMap::new(),
            due: Moment::MAX,
            is_going: false,
            sent_at: None,
        }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.streams.is_empty()
    }

    /// When it is to be sent at the latest; [`Moment::MAX`] where nothing waits.
    pub(super) const fn due(&self) -> Moment {
        if self.is_going { Moment::ZERO } else { self.due }
    }

    /// Adds what a peer of this version can read.
    pub(super) fn tell(&mut self, now: Moment, version: u32, pool: u64, news: &[News]) {
        for it in news.iter().filter(|it| it.version() <= version) {
            let patience = it.patience();
            let soonest = if patience <= URGENT { self.soonest(now) } else { now + patience };
            self.due = self.due.min(soonest);
            if let News::Begun { request } = it {
                self.stream(pool, *request).has_begun = true;
            } else if let News::Progressed { request, left } = it {
                self.stream(pool, *request).left = Some(*left);
            } else {
                if let Some(request) = over(it) {
                    self.end_stream(pool, request);
                }
                self.write(pool, it, None);
            }
        }
    }

    /// Puts everything there is to tell in the place of what waits, in frames of its own.
    pub(super) fn tell_whole(&mut self, version: u32, pools: &[(u64, Vec<News>)]) {
        self.clear();
        for (pool, news) in pools {
            self.begin_batch(*pool, Some((0, false)));
            for it in news.iter().filter(|it| it.version() <= version) {
                self.write(*pool, it, Some((0, false)));
            }
        }
        if pools.is_empty() {
            self.begin_batch(0, Some((0, false)));
        }
        for (part, batch) in (0..).zip(&mut self.batches) {
            batch.part = Some((part, false));
        }
        if let Some(Batch { part: Some((_, is_last)), .. }) = self.batches.back_mut() {
            *is_last = true;
        }
        self.is_going = true;
    }

    /// Drops all of it.
    pub(super) fn clear(&mut self) {
        self.batches.clear();
        self.streams.clear();
        (self.bytes, self.due, self.is_going) = (0, Moment::MAX, false);
    }

    /// Has all that waits be sent now.
    pub(super) fn send(&mut self) {
        self.write_streams();
        self.due = Moment::MAX;
        self.is_going = !self.batches.is_empty();
    }

    /// Takes what is to be sent next, if it is time.
    pub(super) fn take(&mut self, now: Moment) -> Option<Batch> {
        if self.due <= now {
            self.send();
        }
        if !self.is_going {
            return None;
        }
        let batch = self.batches.pop_front()?;
        self.bytes -= batch.bytes.len();
        self.is_going = !self.batches.is_empty();
        self.due = if self.is_empty() { Moment::MAX } else { self.due };
        self.sent_at = Some(now);
        Some(batch)
    }

    /// When something that is urgent can go.
    fn soonest(&self, now: Moment) -> Moment {
        self.sent_at.map_or(now, |it| now.max(it + URGENT))
    }

    fn stream(&mut self, pool: u64, request: RequestId) -> &mut StreamNews {
        if STREAMS_MAX <= self.streams.len() {
            self.write_streams();
        }
        self.streams.entry((pool, request)).or_default()
    }

    /// Forgets how far a stream has come that is over, but not that it began.
    fn end_stream(&mut self, pool: u64, request: RequestId) {
        if self.streams.remove(&(pool, request)).is_some_and(|it| it.has_begun) {
            self.write(pool, &News::Begun { request }, None);
        }
    }

    fn write_streams(&mut self) {
        for ((pool, request), StreamNews { has_begun, left }) in std::mem::take(&mut self.streams) {
            if has_begun {
                self.write(pool, &News::Begun { request }, None);
            }
            if let Some(left) = left {
                self.write(pool, &News::Progressed { request, left }, None);
            }
        }
    }

    fn begin_batch(&mut self, pool: u64, part: Option<(u32, bool)>) {
        self.batches.push_back(Batch { pool, part, count: 0, bytes: Vec::new() });
    }

    /// Writes one of the news into the last batch, or into another one where it does not belong there or has no room.
    fn write(&mut self, pool: u64, news: &News, part: Option<(u32, bool)>) {
        let has_room = |it: &Batch| {
            let is_same = it.pool == pool && it.part.is_some() == part.is_some();
            is_same && it.bytes.len() <= BATCH_BYTES
        };
        if !self.batches.back().is_some_and(has_room) {
            self.begin_batch(pool, part);
        }
        let Some(batch) = self.batches.back_mut() else { return };
        let before = batch.bytes.len();
        encode_news(news, &mut batch.bytes);
        // One that no frame can hold is left out; the comparison of samples finds what it was.
        if FRAME_BYTES_MAX / 2 < batch.bytes.len() - before {
            batch.bytes.truncate(before);
            return;
        }
        batch.count += 1;
        self.bytes += batch.bytes.len() - before;
    }
}

/// The request whose try so far is over by these news, if one is.
fn over(news: &News) -> Option<RequestId> {
    if let News::Opened(opened) = news {
        Some(opened.request)
    } else if let News::Ended { request, .. } = news {
        Some(*request)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::frame::VERSION;
    use crate::cluster::{FoundOut, Opened, PeerFrame};

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn request(number: u64) -> RequestId {
        RequestId(number)
    }

    fn opened(number: u64) -> News {
        News::Opened(Box::new(Opened { request: request(number), ..Opened::default() }))
    }

    fn progressed(number: u64, tokens: u64) -> News {
        let left = Load { growth_tokens: tokens, ..Load::default() };
        News::Progressed { request: request(number), left }
    }

    fn tell(outbox: &mut Outbox, ms: u64, news: &[News]) {
        outbox.tell(at(ms), VERSION, 9, news);
    }

    /// Takes what is to be sent, by how many batches it is in.
    fn take(outbox: &mut Outbox, ms: u64) -> Vec<Vec<News>> {
        let mut taken = Vec::new();
        while let Some(Batch { pool, count, bytes, .. }) = outbox.take(at(ms)) {
            let frame = crate::cluster::frame::encode_list(1, pool, None, count, &bytes);
            let Ok(PeerFrame::News { news, .. }) = PeerFrame::decode(&frame) else { panic!() };
            taken.push(news);
        }
        taken
    }

    #[test]
    fn what_is_urgent_goes_at_once_and_what_follows_soon_after_together() {
        let mut outbox = Outbox::new();
        tell(&mut outbox, 10, &[opened(1)]);
        assert_eq!(take(&mut outbox, 10), [[opened(1)]]);
        assert_eq!(outbox.due(), Moment::MAX, "nothing is woken for nothing");
        tell(&mut outbox, 11, &[opened(2)]);
        tell(&mut outbox, 11, &[opened(3)]);
        assert_eq!(take(&mut outbox, 11), [[]; 0]);
        assert_eq!(outbox.due(), at(12));
        assert_eq!(take(&mut outbox, 12), [[opened(2), opened(3)]]);
    }

    #[test]
    fn what_may_wait_goes_along_or_alone_when_its_time_has_come() {
        let mut outbox = Outbox::new();
        let begun = |number| News::Begun { request: request(number) };
        tell(&mut outbox, 0, &[begun(1)]);
        assert_eq!(take(&mut outbox, 5), [[]; 0]);
        tell(&mut outbox, 6, &[opened(2)]);
        assert_eq!(take(&mut outbox, 6), [[opened(2), begun(1)]]);
        let demand = News::Found(FoundOut::Demand { offered: 1, beyond: 0, refused: 0 });
        tell(&mut outbox, 10, &[begun(2)]);
        tell(&mut outbox, 29, std::slice::from_ref(&demand));
        assert_eq!(outbox.due(), at(30));
        assert_eq!(take(&mut outbox, 30), [[demand, begun(2)]]);
        assert!(outbox.is_empty() && outbox.bytes() == 0);
    }

    #[test]
    fn of_the_progress_of_a_stream_the_last_is_told_and_none_of_one_that_is_over() {
        let mut outbox = Outbox::new();
        let begun = |number| News::Begun { request: request(number) };
        let ended = News::Ended { request: request(1), came: None };
        tell(&mut outbox, 0, &[begun(2), progressed(2, 9), progressed(2, 8), progressed(1, 7)]);
        tell(&mut outbox, 0, &[begun(1), ended.clone()]);
        // That it began before it ended is kept, and that it is over comes after that.
        let [told] = take(&mut outbox, 20).try_into().unwrap();
        assert_eq!(told, [begun(1), ended, begun(2), progressed(2, 8)]);
    }

    #[test]
    fn however_many_streams_go_on_what_waits_of_them_is_bounded() {
        let mut outbox = Outbox::new();
        let streams = u64::try_from(STREAMS_MAX).unwrap();
        (0..3 * streams).for_each(|it| tell(&mut outbox, 0, &[progressed(it, it)]));
        assert!(outbox.streams.len() <= STREAMS_MAX);
        assert!(0 < outbox.bytes(), "and counts against what may wait");
        let told: usize = take(&mut outbox, 20).iter().map(Vec::len).sum();
        assert_eq!(told, 3 * STREAMS_MAX);
    }
}
