//! Requests into sessions, for a closed loop over a trace that was recorded open-loop. Think time is what
//! the recording says; where it does not say when answers came, it is the whole time between
//! two arrivals, so the replay is never more eager than the people were. This holds the whole
//! trace, as runs: the turns of a session lie all over the file.

use std::sync::Arc;

use cleave_core::domain::Moment;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use super::lines::TraceError;
use super::request::{Session, Turn, index};
use super::source::Requests;

/// Collects the sessions of a trace, in order of their start.
pub(super) fn sessions(requests: Requests) -> Result<Vec<Session>, TraceError> {
    let mut sessions: IndexMap<u64, Session, FxBuildHasher> = IndexMap::default();
    for request in requests {
        let request = request?;
        let session = sessions.entry(request.session).or_insert_with(|| Session {
            id: request.session,
            tenant: request.tenant,
            class: request.class,
            deadline: request.deadline,
            start: Some(request.arrival),
            timed: true,
            turns: Vec::new(),
        });
        let at = request.arrival.since(session.start.unwrap_or(Moment::ZERO));
        let before = session.turns.last().map(|turn| turn.at);
        let think = request.think.unwrap_or_else(|| at.saturating_sub(before.unwrap_or(at)));
        let mut turn = Turn::new(at, think, request.prompt, request.output_tokens);
        turn.model = request.model.as_ref().map(Arc::clone);
        let last = session.turns.len().checked_sub(1).map(index);
        session.push(turn, last.as_slice());
    }
    Ok(sessions.into_values().collect())
}
