//! What happened to the fleet and to the router: each change of state with its reason, once in the
//! log and once in a ring of the newest. A reader on the admin port may go on from where it was.
//! Nothing waits for a reader: one that is too slow is told how many events it missed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use tokio::sync::watch;
use tracing::{info, warn};

/// Events kept for readers that come late.
const KEPT_MAX: usize = 1024;

/// Something that happened, before it has a number and a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Incident {
    /// `replica`, `quarantine`, `order`, `reload`, `drain`, `pool`, `sessions`, `cluster`, `certificate`, or `task`.
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// What is so from now on.
    pub state: &'static str,
    /// What was so before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The token by which it was ordered, or what caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The figures behind it, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether an operator should look at it.
    pub alert: bool,
}

/// One event as readers get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Grows by one with each, from the milliseconds of Unix time at which the router started: so it grows
    /// over a restart too, and a reader of another life is known by its number.
    pub id: u64,
    /// When it happened, in UTC as RFC 3339 writes it.
    pub at: String,
    #[serde(flatten)]
    pub incident: Incident,
}

/// The newest events.
#[derive(Debug)]
pub struct Events {
    /// The number of the first event.
    first: u64,
    kept: Mutex<VecDeque<Entry>>,
    newest: watch::Sender<u64>,
}

impl Default for Events {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self::numbered_from(u64::try_from(since.as_millis()).unwrap_or(1).max(1))
    }
}

impl Events {
    fn numbered_from(first: u64) -> Self {
        Self { first, kept: Mutex::default(), newest: watch::Sender::new(0) }
    }

    /// Writes an event to the log and keeps it for readers.
    pub fn publish(&self, incident: Incident) {
        log(&incident);
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let id = {
            let mut kept = self.lock();
            let id = kept.back().map_or(self.first, |it| it.id + 1);
            if kept.len() == KEPT_MAX {
                kept.pop_front();
            }
            kept.push_back(Entry { id, at, incident });
            id
        };
        // Two threads may come here in either order; readers look for themselves what is new.
        self.newest.send_modify(|it| *it = id.max(*it));
    }

    /// Lists what came after the event of that number, and says how many of those are not kept any
    /// more, if any are not. A reader that names a number of an earlier run of the router may have
    /// missed the end of that, and gets all there is.
    pub fn after(&self, id: u64) -> (Option<u64>, Vec<Entry>) {
        let kept = self.lock();
        let (oldest, next) = (kept.front(), kept.back().map_or(self.first, |it| it.id + 1));
        let is_stranger = id != 0 && !(self.first..next).contains(&id);
        let last = if is_stranger { 0 } else { id };
        let missed = oldest.map_or(0, |it| it.id - (last + 1).clamp(self.first, it.id));
        let gap = (is_stranger || 0 < missed).then_some(missed);
        (gap, kept.iter().filter(|it| last < it.id).cloned().collect())
    }

    /// Lets a reader wait for the number of the newest event to change.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        // A panic elsewhere cannot leave a list of events half changed.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(it: &Incident) {
    let Incident { kind, state, alert, .. } = *it;
    let (pool, replica) = (it.pool.as_deref(), it.replica.as_deref());
    let (before, reason, detail) = (it.before, it.reason, it.detail.as_deref());
    let by = it.by.as_deref();
    if alert {
        warn!(kind, pool, replica, before, state, reason, by, detail, "event");
    } else {
        info!(kind, pool, replica, before, state, reason, by, detail, "event");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(count: usize) -> Events {
        let events = Events::numbered_from(1);
        for _ in 0..count {
            events.publish(Incident { kind: "replica", state: "up", ..Incident::default() });
        }
        events
    }

    fn ids(entries: &[Entry]) -> Vec<u64> {
        entries.iter().map(|it| it.id).collect()
    }

    #[test]
    fn a_reader_goes_on_from_where_it_was() {
        let events = published(3);
        let (missed, all) = events.after(0);
        assert_eq!((missed, ids(&all)), (None, vec![1, 2, 3]));
        let (missed, rest) = events.after(2);
        assert_eq!((missed, ids(&rest)), (None, vec![3]));
        assert_eq!(events.after(3), (None, vec![]));
    }

    #[test]
    fn the_newest_are_kept_and_a_late_reader_learns_how_many_it_missed() {
        let events = published(KEPT_MAX + 10);
        let (missed, kept) = events.after(3);
        assert_eq!((missed, kept.len()), (Some(7), KEPT_MAX));
        assert_eq!(kept[0].id, 11);
    }

    #[test]
    fn a_reader_from_before_a_restart_gets_all_and_is_told_of_a_gap() {
        let events = Events::numbered_from(1_000);
        assert_eq!(events.after(30), (Some(0), vec![]));
        (0..3).for_each(|_| events.publish(Incident::default()));
        for id in [30, 999, 1_003, u64::MAX] {
            let (gap, all) = events.after(id);
            assert_eq!((gap, ids(&all)), (Some(0), vec![1_000, 1_001, 1_002]), "{id}");
        }
        assert_eq!(events.after(1_001).0, None);
    }

    #[test]
    fn whoever_follows_hears_of_each_new_one() {
        let events = published(1);
        let mut newest = events.follow();
        assert!(!newest.has_changed().unwrap());
        events.publish(Incident::default());
        assert!(newest.has_changed().unwrap());
        assert_eq!(*newest.borrow_and_update(), 2);
    }

    #[test]
    fn an_event_says_only_what_it_knows() {
        let incident = Incident { kind: "drain", state: "draining", ..Incident::default() };
        let entry = Entry { id: 7, at: "now".to_owned(), incident };
        let json = serde_json::to_string(&entry).unwrap();
        assert_eq!(json, r#"{"id":7,"at":"now","kind":"drain","state":"draining","alert":false}"#);
    }
}
