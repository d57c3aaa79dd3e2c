//! `GET /live`: what the page shows, as server-sent events twice a second. Frames are made once for all that
//! watch, and not at all while none does. A page says where it was (`?after=`, the newest sample of the hour that
//! it has) and gets the rest.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use cleave_core::brain::LiveView;
use cleave_core::domain::ReplicaId;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::proxy::Router;

use super::fleet::FleetNames;
use super::now::{LatelyCache, LiveNow};
use super::past::Past;

const FRAME: Duration = Duration::from_millis(500);
/// How many frames pass before names are looked up again though no replica came or went: weights, models and
/// classes may have changed.
const FRAMES_TO_NAMES: u32 = 20;

/// Makes frames while any page watches.
#[derive(Debug)]
pub(in crate::admin) struct LiveHub {
    frames: watch::Sender<Option<Arc<LiveFrame>>>,
    wanted: Notify,
    /// Pools that the page is to show side by side.
    compared: Vec<String>,
    /// Streams end with it, so that pages come back to a successor.
    ended: CancellationToken,
}

#[derive(Debug)]
struct LiveFrame {
    /// As JSON. Names are the same text as long as they do not change.
    fleet: Arc<str>,
    now: String,
}

/// What is carried from one frame to the next.
#[derive(Debug, Default)]
struct FrameMaker {
    lately: LatelyCache,
    ids: Vec<Vec<ReplicaId>>,
    fleet: Option<Arc<str>>,
    frames: u32,
}

impl LiveHub {
    pub(in crate::admin) fn new(compared: Vec<String>) -> Self {
        let (frames, wanted, ended) =
            (watch::Sender::new(None), Notify::new(), CancellationToken::new());
        Self { frames, wanted, compared, ended }
    }

    /// Makes frames until `stop`.
    pub(in crate::admin) async fn run(&self, router: &Router, stop: &CancellationToken) {
        let _ended = self.ended.clone().drop_guard();
        _ = stop.run_until_cancelled(self.make(router)).await;
    }

    async fn make(&self, router: &Router) {
        let mut maker = FrameMaker::default();
        let mut ticks = interval(FRAME);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.frames.receiver_count() == 0 {
                self.wanted.notified().await;
                continue;
            }
            ticks.tick().await;
            self.frames.send_replace(Some(Arc::new(maker.frame(router, &self.compared))));
        }
    }
}

impl FrameMaker {
    fn frame(&mut self, router: &Router, compared: &[String]) -> LiveFrame {
        let views: Vec<LiveView> = router.pools().iter().map(|it| it.live()).collect();
        let ids = |it: &LiveView| it.replicas.iter().map(|it| it.id).collect();
        let ids: Vec<Vec<ReplicaId>> = views.iter().map(ids).collect();
        self.frames = self.frames.wrapping_add(1);
        if ids != self.ids || self.frames.is_multiple_of(FRAMES_TO_NAMES) {
            self.fleet = None;
            self.ids = ids;
        }
        self.lately.renew(router);
        let made = || Arc::from(json(&FleetNames::of(router, compared)));
        let fleet = Arc::clone(self.fleet.get_or_insert_with(made));
        LiveFrame { fleet, now: json(&LiveNow::of(router, views, &self.lately)) }
    }
}

fn json(data: &impl Serialize) -> String {
    serde_json::to_string(data).expect("what the page is told is plain text and numbers")
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::admin) struct LiveQuery {
    /// The newest sample that the page has, in seconds of Unix time.
    after: u64,
    /// The number of the last event that it has.
    event: u64,
}

/// Where one page is.
struct PageViewer {
    router: Arc<Router>,
    ended: CancellationToken,
    frames: watch::Receiver<Option<Arc<LiveFrame>>>,
    fleet: Option<Arc<str>>,
    sampled_s: u64,
    event: u64,
    ready: VecDeque<Event>,
}

pub(in crate::admin) async fn live(
    State(router): State<Arc<Router>>,
    Extension(hub): Extension<Arc<LiveHub>>,
    Query(seen): Query<LiveQuery>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut frames = hub.frames.subscribe();
    frames.mark_unchanged();
    hub.wanted.notify_one();
    let viewer = PageViewer {
        router,
        ended: hub.ended.clone(),
        frames,
        fleet: None,
        sampled_s: seen.after,
        event: seen.event,
        ready: VecDeque::new(),
    };
    let stream = unfold(viewer, |mut viewer| async move {
        let event = viewer.next().await?;
        Some((Ok(event), viewer))
    });
    Sse::new(stream).keep_alive(KeepAlive::default())
}

impl PageViewer {
    /// Waits for what is to be told next; nothing once the port is closed.
    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() {
            self.ended.run_until_cancelled(self.frames.changed()).await?.ok()?;
            let frame = self.frames.borrow_and_update().clone()?;
            self.take(&frame);
        }
        self.ready.pop_front()
    }

    fn take(&mut self, frame: &LiveFrame) {
        if self.fleet.as_ref() != Some(&frame.fleet) {
            self.fleet = Some(Arc::clone(&frame.fleet));
            self.tell("fleet", &frame.fleet);
        }
        self.tell("now", &frame.now);
        let newest = self.router.flow.newest_s();
        if self.sampled_s < newest {
            let past = Past::after(&self.router, self.sampled_s);
            self.sampled_s = newest;
            if let Some(past) = past {
                self.tell("past", &json(&past));
            }
        }
        let (_, entries) = self.router.events.after(self.event);
        for entry in &entries {
            self.event = entry.id;
            self.tell("event", &json(entry));
        }
    }

    fn tell(&mut self, kind: &str, json: &str) {
        self.ready.push_back(Event::default().event(kind).data(json));
    }
}
