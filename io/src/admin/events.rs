//! `GET /events`: what happens to the fleet, as server-sent events with ids. A reader that comes back
//! names the last id it saw (`Last-Event-ID`, as browsers do by themselves, or `?after=`) and goes on
//! from there; without one it gets what is kept, then what comes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::proxy::Router;
use crate::telemetry::Events;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct From {
    /// Number of the last event that the reader has.
    after: Option<u64>,
}

/// Where one reader is.
struct EventReader {
    events: Arc<Events>,
    newest: watch::Receiver<u64>,
    last: u64,
    ready: VecDeque<Event>,
}

#[derive(Serialize)]
struct Gap {
    missed: u64,
}

pub(super) async fn events(
    State(router): State<Arc<Router>>,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let named = headers.get("last-event-id").and_then(|it| it.to_str().ok()?.parse().ok());
    let last = named.or(from.after).unwrap_or(0);
    let events = Arc::clone(&router.events);
    let reader = EventReader { newest: events.follow(), events, last, ready: VecDeque::new() };
    let stream = unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    });
    Sse::new(stream).keep_alive(KeepAlive::default())
}

impl EventReader {
    /// Waits for the next event; none once the router is gone.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            self.newest.mark_unchanged();
            let (gap, entries) = self.events.after(self.last);
            if let Some(missed) = gap.filter(|_| self.last != 0 && !entries.is_empty()) {
                self.ready.push_back(write("gap", None, &Gap { missed }));
            }
            for entry in &entries {
                self.last = entry.id;
                self.ready.push_back(write(entry.incident.kind, Some(entry.id), entry));
            }
            if entries.is_empty() {
                self.newest.changed().await.ok()?;
            }
        }
    }
}

/// Writes one event. A gap has no number: the reader's place is still where it was.
fn write(kind: &str, number: Option<u64>, data: &impl Serialize) -> Event {
    let mut event = Event::default().event(kind);
    if let Some(number) = number {
        event = event.id(number.to_string());
    }
    event.json_data(data).expect("what events hold is plain text and numbers")
}
