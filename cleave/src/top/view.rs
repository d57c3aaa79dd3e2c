//! One picture of a router: what was read in, text out. It never writes anywhere and never asks the
//! time, so every picture can be tested. Replicas in trouble come first, because a window has an end.

use std::collections::BTreeMap;
use std::time::Duration;

use super::read::{
    Entry, Given, LoadPage, PeerRouter, PinStatus, PoolStatus, ReplicaStatus, Routers, Status,
};
use crate::style::Style;

const BAR_CELLS: u64 = 10;
/// Lines kept for events at the foot.
const EVENTS_MAX: usize = 10;
/// Pins shown of each pool; `cleave assignment` has all.
const PINS_MAX: usize = 5;

/// One moment.
#[derive(Debug, Default)]
pub(super) struct TopFrame {
    pub(super) status: Status,
    pub(super) load: LoadPage,
    pub(super) routers: Routers,
    /// Newest last.
    pub(super) events: Vec<Entry>,
    /// Requests a second, by pool and replica, since the moment before.
    pub(super) rates: BTreeMap<(String, String), f64>,
    /// Bytes a second to and from each other router, since the moment before.
    pub(super) byte_rates: BTreeMap<String, f64>,
}

impl TopFrame {
    /// Fills in rates from the moment before.
    pub(super) fn compare(&mut self, before: &Self, elapsed: Duration) {
        let sent = |status: &Status| -> BTreeMap<(String, String), u64> {
            let each = |pool: &PoolStatus| {
                let name = pool.name.clone();
                let each = pool.replicas.iter();
                each.map(move |it| ((name.clone(), it.url.clone()), it.sent_total))
                    .collect::<Vec<_>>()
            };
            status.pools.iter().flat_map(each).collect()
        };
        let (then, now) = (sent(&before.status), sent(&self.status));
        for (replica, sent) in now {
            if let Some(before) = then.get(&replica) {
                let new = u32::try_from(sent.saturating_sub(*before)).unwrap_or(u32::MAX);
                self.rates.insert(replica, f64::from(new) / elapsed.as_secs_f64().max(1e-3));
            }
        }
        for it in &self.routers.peers {
            let then = before.routers.peers.iter().find(|peer| peer.id == it.id);
            if let Some(new) = then.and_then(|then| it.bytes().checked_sub(then.bytes())) {
                let new = u32::try_from(new).unwrap_or(u32::MAX);
                let rate = f64::from(new) / elapsed.as_secs_f64().max(1e-3);
                self.byte_rates.insert(it.id.clone(), rate);
            }
        }
    }

    /// Draws it in at most `lines_max` lines.
    pub(super) fn draw(&self, style: Style, lines_max: usize) -> String {
        let mut lines = vec![self.title(style)];
        self.routers(style, &mut lines);
        let events = self.events.len().min(EVENTS_MAX);
        let foot = if events == 0 { 0 } else { events + 2 };
        for pool in &self.status.pools {
            lines.push(String::new());
            self.pool(pool, style, &mut lines);
        }
        let room = lines_max.saturating_sub(foot).max(1);
        if room < lines.len() {
            let more = lines.len() + 1 - room;
            lines.truncate(room - 1);
            lines.push(style.dim(format!("… {more} more")));
        }
        if 0 < events {
            lines.push(String::new());
            lines.push(style.dim("events"));
            let newest = &self.events[self.events.len() - events..];
            lines.extend(newest.iter().map(|it| event(it, style)));
        }
        lines.join("\n") + "\n"
    }

    fn title(&self, style: Style) -> String {
        let Status { version, ready, draining, connections, .. } = &self.status;
        let state = match (draining, ready) {
            (true, _) => style.yellow("draining"),
            (false, true) => style.green("ready"),
            (false, false) => style.red("not ready"),
        };
        format!("{} {version}  {state}  {connections} connections", style.bold("cleave"))
    }

    /// Shows the routers that decide as one; nothing for one that is alone.
    fn routers(&self, style: Style, lines: &mut Vec<String>) {
        let Routers { own: Some(_), state, expected, present, leader, leads, peers } =
            &self.routers
        else {
            return;
        };
        let state = match state.as_str() {
            "whole" => style.green(state),
            "majority" => style.yellow(state),
            _ => style.red(state),
        };
        let leading = match leader {
            Some(_) if *leads => "this one leads".to_owned(),
            Some(leader) => format!("{leader} leads"),
            None => "none leads".to_owned(),
        };
        let name = style.bold("routers");
        lines.push(String::new());
        lines.push(format!("{name}  {state}  {present} of {expected}  {leading}"));
        let peer = |it: &PeerRouter| {
            let name = if it.address.is_empty() { &it.id } else { &it.address };
            let state = format!("{:<20}", it.state);
            let state = if it.state == "talking" { style.green(state) } else { style.red(state) };
            let (in_flight, lag_ms) = (it.in_flight, it.lag_seconds * 1e3);
            let rate = self.byte_rates.get(&it.id).map(|it| format!("{:.1} kB/s", it / 1e3));
            let rate = rate.unwrap_or_default();
            format!("{name:<30}{state}{in_flight:>4} in flight  lag {lag_ms:>6.1} ms  {rate}")
        };
        lines.extend(peers.iter().map(peer));
    }

    fn pool(&self, pool: &PoolStatus, style: Style, lines: &mut Vec<String>) {
        let PoolStatus { name, policy, requests_in_flight, sessions, .. } = pool;
        lines.push(format!(
            "{}  {policy}  {requests_in_flight} in flight  {sessions} sessions, {} moved  {}",
            style.bold(name),
            pool.sessions_moved_total,
            style.dim(pool.models.join(", ")),
        ));
        if let Some(Given { by }) = &pool.frozen {
            lines.push(style.yellow(format!("frozen by {by}")));
        }
        lines.extend(pool.pins.iter().take(PINS_MAX).map(|it| style.yellow(pin(it))));
        let more = pool.pins.len().saturating_sub(PINS_MAX);
        if 0 < more {
            lines.push(style.yellow(format!("and {more} pins more")));
        }
        lines.push(style.dim(format!(
            "{:<30}{:<20}{:<15}{:>8}{:>8}{:>6}{:>10}{:>9}{:>8}",
            "replica", "state", "in flight", "wait", "run", "KV", "tokens", "req/s", "failed"
        )));
        let mut replicas: Vec<&ReplicaStatus> = pool.replicas.iter().collect();
        replicas.sort_by_key(|it| (it.state == "up", &it.url));
        let most = pool.replicas.iter().map(|it| it.in_flight).max().unwrap_or(0);
        lines.extend(replicas.into_iter().map(|it| self.replica(name, it, most, style)));
    }

    fn replica(&self, pool: &str, it: &ReplicaStatus, most: u64, style: Style) -> String {
        let load = self.load.of(pool, &it.url);
        let report = load.and_then(|it| it.report);
        let shown = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
        let state = match (&it.reason, &it.drained) {
            (Some(reason), _) => format!("{} {reason}", it.state),
            (None, Some(given)) => format!("{} by {}", it.state, given.by),
            (None, None) => it.state.clone(),
        };
        let state = format!("{state:<20}");
        let state = match it.state.as_str() {
            "up" => style.green(state),
            "out" => style.red(state),
            _ => style.yellow(state),
        };
        let tokens = load.map(|it| it.booked.waiting_prompt_tokens + it.booked.output_tokens);
        let rate = self.rates.get(&(pool.to_owned(), it.url.clone()));
        format!(
            "{:<30}{state}{:>4} {}{:>8}{:>8}{:>6}{:>10}{:>9}{:>8}",
            it.url.split_once("://").map_or(it.url.as_str(), |it| it.1),
            it.in_flight,
            style.cyan(format!("{:<10}", bar(it.in_flight, most))),
            shown(report.map(|it| it.waiting.to_string())),
            shown(report.map(|it| it.running.to_string())),
            shown(report.map(|it| format!("{:.0}%", it.kv_used_share * 100.0))),
            shown(tokens.map(|it| it.to_string())),
            shown(rate.map(|it| format!("{it:.1}"))),
            it.failed_total,
        )
    }
}

fn pin(it: &PinStatus) -> String {
    let PinStatus { workload, name, replicas, by, at } = it;
    let (name, count) = (name.as_ref().unwrap_or(workload), replicas.len());
    format!("{name} pinned to {count} by {by} at {at}")
}

fn event(it: &Entry, style: Style) -> String {
    // The day is known.
    let time = it.at.split('T').next_back().unwrap_or(&it.at).trim_end_matches('Z');
    let of = [it.pool.as_deref(), it.replica.as_deref()];
    let of = of.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let why = [it.reason.as_deref(), it.detail.as_deref()];
    let why = why.into_iter().flatten().collect::<Vec<_>>().join(": ");
    let line = format!("{} {of} {} {why}", it.kind, it.state);
    let line = if it.alert { style.red(line) } else { line };
    format!("{}  {line}", style.dim(time))
}

/// Draws a count so that `most` fills the bar; a count above zero always shows.
fn bar(count: u64, most: u64) -> String {
    let cells = (count * BAR_CELLS).div_ceil(most.max(1));
    "█".repeat(usize::try_from(cells).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(replicas: usize) -> TopFrame {
        let replica = |number: usize| ReplicaStatus {
            url: format!("http://gpu-{number}:8000"),
            state: if number == 3 { "out" } else { "up" }.to_owned(),
            reason: (number == 3).then(|| "unreachable".to_owned()),
            in_flight: 4,
            sent_total: 100,
            ..ReplicaStatus::default()
        };
        let pool = PoolStatus {
            name: "chat".to_owned(),
            policy: "session".to_owned(),
            replicas: (0..replicas).map(replica).collect(),
            ..PoolStatus::default()
        };
        let status = Status { ready: true, pools: vec![pool], ..Status::default() };
        let entry = Entry {
            at: "2026-11-15T07:00:01.123Z".to_owned(),
            kind: "replica".to_owned(),
            replica: Some("http://gpu-3:8000".to_owned()),
            state: "out".to_owned(),
            reason: Some("unreachable".to_owned()),
            ..Entry::default()
        };
        TopFrame { status, events: vec![entry], ..TopFrame::default() }
    }

    #[test]
    fn trouble_comes_first_and_events_stand_at_the_foot() {
        let text = frame(8).draw(Style::Plain, 100);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("ready"), "{text}");
        assert!(
            lines[4].starts_with("gpu-3:8000") && lines[4].contains("out unreachable"),
            "{text}"
        );
        assert!(lines.last().unwrap().starts_with("07:00:01.123  replica http://gpu-3"), "{text}");
        assert!(lines.iter().all(|it| it.chars().count() <= 120), "{text}");
    }

    #[test]
    fn orders_in_force_are_shown_with_who_gave_them() {
        let mut it = frame(1);
        let pool = &mut it.status.pools[0];
        pool.frozen = Some(Given { by: "bob".to_owned() });
        pool.pins = (0..7)
            .map(|number| PinStatus {
                workload: format!("0000000{number}"),
                name: (number == 0).then(|| "acme × chat".to_owned()),
                replicas: vec!["http://a:1".to_owned(), "http://b:1".to_owned()],
                by: "alice".to_owned(),
                at: "2026-01-02T03:04:05Z".to_owned(),
            })
            .collect();
        let text = it.draw(Style::Plain, 100);
        let pin =
            "acme × chat pinned to 2 by alice at 2026-01-02T03:04:05Z\n00000001 pinned to 2 by";
        assert!(text.contains("\nfrozen by bob\n") && text.contains(pin), "{text}");
        assert!(text.contains("\nand 2 pins more\n"), "{text}");
    }

    #[test]
    fn a_small_window_shows_its_share_and_says_how_much_is_missing() {
        let text = frame(50).draw(Style::Plain, 24);
        assert_eq!(text.lines().count(), 24);
        assert!(text.contains("… 34 more"), "{text}");
    }

    #[test]
    fn routers_that_decide_as_one_are_shown_with_the_one_that_leads() {
        let peer = |id: &str, state: &str| PeerRouter {
            id: id.to_owned(),
            address: format!("10.0.0.{id}:7400"),
            state: state.to_owned(),
            lag_seconds: 0.0105,
            bytes_told: 4_000,
            in_flight: 7,
            ..PeerRouter::default()
        };
        let with = |peers: Vec<PeerRouter>| {
            let routers = Routers {
                own: Some("1".to_owned()),
                state: "whole".to_owned(),
                expected: 3,
                present: 3,
                leader: Some("2".to_owned()),
                leads: false,
                peers,
            };
            TopFrame { routers, ..frame(1) }
        };
        let before = with(vec![peer("2", "talking"), peer("3", "talking")]);
        let mut now = with(vec![peer("2", "talking"), peer("3", "lost")]);
        now.routers.peers[0].bytes_heard = 3_000;
        now.compare(&before, Duration::from_secs(2));
        let text = now.draw(Style::Plain, 100);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "routers  whole  3 of 3  2 leads");
        assert!(lines[3].starts_with("10.0.0.2:7400") && lines[3].ends_with("1.5 kB/s"), "{text}");
        assert!(lines[3].contains("7 in flight  lag   10.5 ms"), "{text}");
        assert!(lines[4].contains("lost"), "{text}");
    }

    #[test]
    fn rates_are_what_came_since_the_moment_before() {
        let (before, mut now) = (frame(2), frame(2));
        now.status.pools[0].replicas[0].sent_total = 150;
        now.compare(&before, Duration::from_secs(2));
        let text = now.draw(Style::Plain, 100);
        let row = text.lines().find(|it| it.starts_with("gpu-0")).unwrap();
        assert!(row.contains(" 25.0 "), "{text}");
    }
}
