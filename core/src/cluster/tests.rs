//! What routers can rely on: every message comes back as it was, nothing that is no message does harm, and two links
//! agree again whatever is lost between them.

mod messages;

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::domain::{Moment, Place, PromptTail, RouterId, SliceKey};

use messages::news;

proptest! {
    #[test]
    fn every_message_comes_back_as_it_was(
        number: u64,
        pool: u64,
        part: Option<(u32, bool)>,
        news in prop::collection::vec(news(), 0..8),
    ) {
        let frame = match part {
            None => PeerFrame::News { number, pool, news },
            Some((part, is_last)) => PeerFrame::Whole { number, pool, part, is_last, news },
        };
        prop_assert_eq!(PeerFrame::decode(&frame.encode()), Ok(frame));
    }

    #[test]
    fn what_a_router_sees_comes_back_as_it_was(
        size: u32,
        left: u32,
        sees: Vec<u64>,
        store: Option<Option<u64>>,
    ) {
        let sees = sees.into_iter().map(RouterId).collect();
        let leader = |it: Option<u64>| it.map_or(StoreWord::Vacant, |it| StoreWord::Leader(RouterId(it)));
        let store = store.map_or(StoreWord::Silent, leader);
        let frame = PeerFrame::View(View { size, left, sees, store });
        prop_assert_eq!(PeerFrame::decode(&frame.encode()), Ok(frame));
        let (number, question) = (size.into(), vec![7; usize::try_from(left % 1_000).unwrap()]);
        let answer = (size % 2 == 0).then(|| question.clone());
        let asked = PeerFrame::Asked { number, question };
        prop_assert_eq!(PeerFrame::decode(&asked.encode()), Ok(asked));
        let answered = PeerFrame::Answered { number, answer };
        prop_assert_eq!(PeerFrame::decode(&answered.encode()), Ok(answered));
    }

    #[test]
    fn bytes_that_are_no_message_are_refused_and_nothing_else(bytes: Vec<u8>) {
        if let Ok(frame) = PeerFrame::decode(&bytes) {
            prop_assert_eq!(PeerFrame::decode(&frame.encode()), Ok(frame));
        }
    }

    #[test]
    fn a_message_with_a_flaw_does_no_harm(
        list in prop::collection::vec(news(), 1..4),
        at: prop::sample::Index,
        flaw: u8,
    ) {
        let mut bytes = PeerFrame::News { number: 1, pool: 2, news: list }.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= flaw;
        _ = PeerFrame::decode(&bytes);
        bytes.truncate(at);
        prop_assert!(PeerFrame::decode(&bytes).is_err(), "half a message is none");
    }

    #[test]
    fn whatever_is_lost_both_agree_when_it_is_quiet(
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0_u8..10), 1..120),
    ) {
        let mut pair = Pair::new();
        for (is_left, lost, deed) in steps {
            let from = usize::from(is_left);
            match deed {
                0..=5 => pair.happen(from),
                6 if lost => pair.lose(from),
                _ => pair.pass(50),
            }
        }
        (0..200).for_each(|_| pair.pass(50));
        prop_assert_eq!(&pair.ends[0].known, &pair.ends[1].done);
        prop_assert_eq!(&pair.ends[1].known, &pair.ends[0].done);
    }
}

/// A router that does things, told by their numbers, and knows what the other did.
struct End {
    link: Link,
    done: Vec<u64>,
    known: Vec<u64>,
    events: Vec<LinkEvent>,
    coming: VecDeque<Vec<u8>>,
}

/// Two routers and what is under way between them.
struct Pair {
    now: Moment,
    ends: [End; 2],
}

fn hello(router: u64) -> Hello {
    let address = format!("10.0.0.{router}:7000");
    Hello { version: VERSION, version_min: VERSION_MIN, router: RouterId(router), address }
}

/// Something that happened, by its number; others are to know it at once.
fn fact(number: u64) -> News {
    News::Home { key: SliceKey(number), replica: Place(number) }
}

impl Pair {
    fn new() -> Self {
        let now = Moment::ZERO;
        let end = |router| End {
            link: Link::new(now, hello(router)),
            done: Vec::new(),
            known: Vec::new(),
            events: Vec::new(),
            coming: VecDeque::new(),
        };
        let mut pair = Self { now, ends: [end(1), end(2)] };
        // The hello of a connection is not lost: without it there is no connection.
        pair.pass(1);
        pair
    }

    fn happen(&mut self, at: usize) {
        let it = &mut self.ends[at];
        let number = u64::try_from(it.done.len()).unwrap();
        it.done.push(number);
        it.link.tell(self.now, 9, &[fact(number)]);
        self.send();
    }

    fn lose(&mut self, at: usize) {
        self.ends[at].coming.pop_front();
    }

    fn send(&mut self) {
        for at in 0..2 {
            while let Some(frame) = self.ends[at].link.take(self.now) {
                self.ends[1 - at].coming.push_back(frame);
            }
        }
    }

    /// Delivers what is under way, and lets time pass.
    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.send();
        for at in 0..2 {
            let it = &mut self.ends[at];
            while let Some(frame) = it.coming.pop_front() {
                it.link.on_frame(self.now, &frame, &mut it.events).unwrap();
            }
            it.link.on_time(self.now, &mut it.events);
            self.act(at);
        }
        self.send();
    }

    fn act(&mut self, at: usize) {
        let it = &mut self.ends[at];
        for event in it.events.drain(..) {
            match event {
                LinkEvent::Heard { pool, news, is_whole } => {
                    assert_eq!(pool, 9);
                    if is_whole {
                        it.known.clear();
                    }
                    for news in news {
                        let News::Home { key, .. } = news else { panic!("{news:?}") };
                        it.known.push(key.0);
                    }
                }
                LinkEvent::Lacks => {
                    let done = it.done.iter().map(|it| fact(*it));
                    it.link.tell_whole(&[(9, done.collect())]);
                }
                LinkEvent::Met(_) | LinkEvent::Members(_) | LinkEvent::View(_) => {}
                LinkEvent::Unfit(_)
                | LinkEvent::Left
                | LinkEvent::Silent
                | LinkEvent::Asked { .. }
                | LinkEvent::Answered { .. } => panic!("{event:?}"),
            }
        }
    }
}

#[test]
fn what_happens_is_told_at_once_and_heard_in_order() {
    let mut pair = Pair::new();
    (0..3).for_each(|_| pair.pass(50));
    (0..40).for_each(|_| pair.happen(0));
    pair.pass(2);
    assert_eq!(pair.ends[1].known, pair.ends[0].done);
    assert!(Duration::ZERO < pair.ends[0].link.lag(pair.now));
    (0..3).for_each(|_| pair.pass(50));
    assert_eq!(pair.ends[0].link.lag(pair.now), Duration::ZERO, "it said that it heard");
    let totals = pair.ends[0].link.totals();
    assert_eq!((totals.gaps, totals.wholes_told, totals.overruns), (0, 1, 0));
    assert_eq!(pair.ends[1].link.peer(), Some(&hello(1)));
}

#[test]
fn a_peer_that_does_not_take_what_it_is_told_gets_all_of_it_anew_and_no_backlog() {
    let mut pair = Pair::new();
    (0..3).for_each(|_| pair.pass(50));
    let chain = PromptTail { more: vec![7; 10_000], ..PromptTail::default() };
    let big = News::Cached { replica: Place(1), block_tokens: 64, chain };
    for _ in 0..1_000 {
        pair.ends[0].link.tell(pair.now, 9, std::slice::from_ref(&big));
        assert!(pair.ends[0].link.pending_bytes() < 9 << 20, "it is bounded");
    }
    pair.ends[0].done.push(1);
    assert_eq!(pair.ends[0].link.totals().overruns, 1);
    (0..5).for_each(|_| pair.pass(50));
    assert_eq!(pair.ends[1].known, [1]);
    assert_eq!(pair.ends[0].link.totals().wholes_told, 2);
}

#[test]
fn a_silent_peer_is_noticed_and_a_leaving_one_says_so_last() {
    let mut events = Vec::new();
    let mut pair = Pair::new();
    pair.pass(50);
    pair.happen(0);
    pair.ends[0].link.tell(pair.now, 9, &[News::Forgot]);
    pair.ends[0].link.say_goodbye();
    let mut frames = Vec::new();
    while let Some(frame) = pair.ends[0].link.take(pair.now) {
        frames.push(PeerFrame::decode(&frame).unwrap());
    }
    assert_eq!(frames.last(), Some(&PeerFrame::Goodbye));
    let link = &mut pair.ends[1].link;
    link.on_frame(pair.now, &PeerFrame::Goodbye.encode(), &mut events).unwrap();
    assert_eq!(events, [LinkEvent::Left]);
    events.clear();
    link.on_time(pair.now + Duration::from_secs(4), &mut events);
    assert_eq!(events, [LinkEvent::Silent]);
}

#[test]
fn a_router_of_the_version_before_is_told_what_it_can_read() {
    let now = Moment::ZERO;
    let mut told = Vec::new();
    let view = View { store: StoreWord::Vacant, ..View::default() };
    for version in [1, 2, 3] {
        let (mut link, mut events) = (Link::new(now, hello(1)), Vec::new());
        let older = Hello { version, version_min: version, ..hello(2) };
        link.on_frame(now, &PeerFrame::Hello(older).encode(), &mut events).unwrap();
        link.tell_whole(&[(9, vec![News::AskedPlan, News::Forgot])]);
        link.tell_view(view.clone());
        let mut frames = Vec::new();
        while let Some(frame) = link.take(now) {
            frames.push(PeerFrame::decode(&frame).unwrap());
        }
        let news = frames.iter().find_map(|it| {
            let PeerFrame::Whole { news, .. } = it else { return None };
            Some(news.len())
        });
        let seen = frames.into_iter().find_map(|it| {
            let PeerFrame::View(View { store, .. }) = it else { return None };
            Some(store)
        });
        told.push((news, seen));
    }
    let [silent, vacant] = [StoreWord::Silent, StoreWord::Vacant].map(Some);
    assert_eq!(told, [(Some(1), None), (Some(2), silent), (Some(2), vacant)]);
}

#[test]
fn versions_that_do_not_meet_are_told_apart_and_nothing_comes_before_the_hello() {
    let now = Moment::ZERO;
    let mut link = Link::new(now, hello(1));
    let mut events = Vec::new();
    assert!(link.on_frame(now, &PeerFrame::Resend.encode(), &mut events).is_err());
    let newer = Hello { version: VERSION + 1, version_min: VERSION, ..hello(2) };
    let newest = Hello { version: VERSION + 9, version_min: VERSION + 8, ..hello(3) };
    link.on_frame(now, &PeerFrame::Hello(newest.clone()).encode(), &mut events).unwrap();
    assert_eq!(events, [LinkEvent::Unfit(newest)]);
    link.on_frame(now, &PeerFrame::Hello(newer.clone()).encode(), &mut events).unwrap();
    assert_eq!(events[1..], [LinkEvent::Met(newer), LinkEvent::Lacks]);
}
