//! What was last advised for a pool, what came of it, and how it went: written by the scaling task, read by the admin
//! port and the metrics. Bounded, and empty for a pool that is not scaled.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use cleave_core::cluster::FoundOut;
use cleave_core::domain::{Moment, RouterId};
use cleave_core::scaling::{Advice, Reason};

/// How many points of the past are kept: eight hours of a quiet pool.
const POINTS_MAX: usize = 480;
/// What another router told counts this long: it tells once a second.
const TOLD_MAX: Duration = Duration::from_secs(5);
/// A point is kept at least this often.
const POINT_EVERY: Duration = Duration::from_secs(60);

/// The number that the router which leads told this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedSize {
    pub router: RouterId,
    pub at: Moment,
    pub replicas: u32,
    pub reason: Reason,
}

/// What is known of the number of replicas of one pool.
#[derive(Debug, Default)]
pub struct ScaleBoard(Mutex<ScaleState>);

/// A pool that is scaled, at one moment.
#[derive(Clone, Debug, Default)]
pub struct ScaleState {
    /// Nothing before the first advice.
    pub advice: Option<Advice>,
    /// Whether the advice is acted on here; where another router leads, it is that one's.
    pub is_own: bool,
    /// What another router told last.
    pub told: Option<LedSize>,
    /// Replicas that are drained to be taken away, or are about to be.
    pub victims: Vec<String>,
    /// What was last done, and how it went.
    pub last: Option<ScaleStep>,
    pub steps_done: u64,
    pub steps_failed: u64,
    /// Replica hours since the router started.
    pub replica_hours: f64,
    pub points: VecDeque<ScalePoint>,
}

/// One time that something was done about the number of replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleStep {
    pub at: SystemTime,
    pub replicas: usize,
    pub victims: Vec<String>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// The past, at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalePoint {
    pub at: SystemTime,
    pub wanted: usize,
    pub reason: &'static str,
    pub ready: usize,
    pub starting: usize,
    pub demand_mu_per_min: f64,
    pub held_mu: f64,
}

impl ScaleBoard {
    /// Shows how things stand.
    pub fn state(&self) -> ScaleState {
        self.lock().clone()
    }

    /// Tells how many replicas are wanted, if that is known.
    pub fn wanted(&self) -> Option<usize> {
        self.lock().advice.map(|it| it.wanted)
    }

    /// Takes in an advice, `elapsed` after the one before.
    pub fn on_advice(&self, at: SystemTime, advice: &Advice, is_own: bool, elapsed: Duration) {
        let mut state = self.lock();
        let terms = &advice.terms;
        let there = terms.ready.saturating_add(terms.starting).saturating_add(terms.unhealthy);
        let there = u32::try_from(there).unwrap_or(u32::MAX);
        state.replica_hours += f64::from(there) * elapsed.as_secs_f64() / 3600.0;
        (state.advice, state.is_own) = (Some(*advice), is_own);
        let point = ScalePoint {
            at,
            wanted: advice.wanted,
            reason: advice.reason.as_str(),
            ready: terms.ready,
            starting: terms.starting,
            demand_mu_per_min: terms.demand_mu_per_min,
            held_mu: terms.held_mu,
        };
        let key = |it: &ScalePoint| (it.wanted, it.reason, it.ready, it.starting);
        let is_due = state.points.back().is_none_or(|last| {
            let age = at.duration_since(last.at).unwrap_or(POINT_EVERY);
            key(last) != key(&point) || POINT_EVERY <= age
        });
        if is_due {
            if state.points.len() == POINTS_MAX {
                state.points.pop_front();
            }
            state.points.push_back(point);
        }
    }

    /// Takes in what another router told. The one that leads is believed at the next look.
    pub fn on_told(&self, told: LedSize) {
        self.lock().told = Some(told);
    }

    /// What any router told lately.
    pub fn told(&self, now: Moment) -> Option<LedSize> {
        self.lock().told.filter(|it| now.since(it.at) <= TOLD_MAX)
    }

    /// Writes the number as other routers are told it.
    pub fn sized(&self) -> Option<FoundOut> {
        let Advice { wanted, reason, .. } = self.lock().advice?;
        let replicas = u32::try_from(wanted).unwrap_or(u32::MAX);
        Some(FoundOut::Sized { replicas, reason })
    }

    pub fn set_victims(&self, victims: Vec<String>) {
        self.lock().victims = victims;
    }

    /// Notes what was done, and counts it.
    pub fn on_step(&self, step: ScaleStep) {
        let mut state = self.lock();
        if step.error.is_some() {
            state.steps_failed += 1;
        } else {
            state.steps_done += 1;
        }
        state.last = Some(step);
    }

    /// Forgets all of it, when the pool is not scaled any more.
    pub fn clear(&self) {
        *self.lock() = ScaleState::default();
    }

    fn lock(&self) -> MutexGuard<'_, ScaleState> {
        // Every change is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use cleave_core::scaling::{Reason, Terms};

    use super::*;

    #[test]
    fn the_past_is_kept_at_each_change_and_each_minute_and_is_bounded() {
        let (board, second) = (ScaleBoard::default(), Duration::from_secs(1));
        let advise = |at: u64, wanted: usize| {
            let terms = Terms { ready: 2, ..Terms::default() };
            let advice = Advice { wanted, reason: Reason::Steady, terms };
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at);
            board.on_advice(at, &advice, true, second);
        };
        (0..120).for_each(|it| advise(it, 2));
        advise(120, 3);
        let wanted: Vec<usize> = board.state().points.iter().map(|it| it.wanted).collect();
        assert_eq!(wanted, [2, 2, 3]);
        assert!((board.state().replica_hours - 242.0 / 3600.0).abs() < 1e-9);
        (0..10_000).for_each(|it| advise(200 + it, usize::try_from(it).unwrap()));
        assert_eq!(board.state().points.len(), POINTS_MAX);
        board.clear();
        assert_eq!(board.wanted(), None);
    }

    #[test]
    fn what_another_router_told_counts_while_it_is_fresh() {
        let (board, at) = (ScaleBoard::default(), Moment::ZERO);
        let told = LedSize { router: RouterId(7), at, replicas: 5, reason: Reason::Backlog };
        board.on_told(told);
        assert_eq!(board.told(at + TOLD_MAX), Some(told));
        assert_eq!(board.told(at + 2 * TOLD_MAX), None);
    }
}
