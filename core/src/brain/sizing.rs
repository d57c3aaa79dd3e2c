//! What the one that sizes the pool is told of it: the work that is asked for, what waits, what live sessions hold and
//! what a replica can do; and what would be lost with each replica.

use std::collections::BTreeMap;

use crate::cost::{Hardware, MeanRequest, RequestCost};
use crate::domain::{Moment, ReplicaId, RequestId, float};
use crate::fleet::{Replica, Standing};
use crate::queue::Use;
use crate::scaling::{Holding, Offered, Sample, cache_value};

use super::Brain;
use super::admission::Parked;
use super::books::Computed;
use super::event::Refusal;

/// A replica that was sent fewer requests than this is cold: what it shows says little of what it can do.
const WARM_AFTER: u64 = 64;
/// How much the newest request counts in what requests take.
const NEW_SHARE: f64 = 1.0 / 256.0;

/// What is counted for the one that sizes the pool.
#[derive(Debug, Default)]
pub(super) struct Sizing {
    /// The work that is asked for.
    pub(super) offered: Offered,
    /// What requests take, in the mean.
    usual: MeanRequest,
}

impl Brain {
    /// Takes what the pool was like since this was asked last. For one asker: it is counted anew afterwards.
    pub fn take_sample(&mut self, now: Moment) -> Sample {
        let mut sample = Sample::default();
        for it in self.fleet.iter().filter(|it| self.stays(it)) {
            *(match it.breaker.standing() {
                Standing::Up | Standing::Suspect { .. } => &mut sample.ready,
                Standing::Joining => &mut sample.starting,
                Standing::Out { .. } | Standing::Trial { .. } => &mut sample.unhealthy,
            }) += 1;
        }
        let came = self.sizing.offered.take();
        let sessions = self.admission.sessions();
        let counted = sample.ready + sample.unhealthy;
        let is_worked = |it: &&Replica| 0 < it.in_flight && !it.leaving;
        let mut worked = self.fleet.iter().filter(is_worked).peekable();
        let is_frozen = worked.peek().is_some()
            && worked.all(|it| it.reported.report().is_some() && !it.watch.is_working(now));
        Sample {
            offered_mu: came.offered_mu,
            beyond_contract_mu: came.beyond_contract_mu,
            refused_mu: came.refused_mu,
            held_mu: self.admission.held_mu() * self.sizing.offered.correction(),
            kv_tokens_needed: sessions.tokens,
            kv_tokens_per_replica: sessions
                .tokens_max
                .and_then(|it| it.checked_div(u64::try_from(counted).unwrap_or(u64::MAX))),
            capacity_mu_per_min: self.capacity(),
            floor: usize::try_from(self.settings.subsets.floor.unwrap_or(0)).unwrap_or(0),
            is_frozen,
            ..sample
        }
    }

    /// What one replica does in a minute within its promises, by those that are warm; by the hardware of the others
    /// where none is.
    fn capacity(&self) -> Option<f64> {
        let there = || self.fleet.iter().filter(|it| self.stays(it) && !it.is_joining());
        let warm = there().filter(|it| WARM_AFTER <= it.sent_total);
        let shown = mean(warm.map(|it| self.within_promises(&it.hardware) / it.pace.factor()));
        let told = || mean(there().map(|it| self.within_promises(&it.hardware)));
        let to_come = || self.admission.hardware_to_come().map(|it| self.within_promises(it));
        shown.or_else(told).or_else(to_come)
    }

    /// What a replica of this hardware does in a minute: up to its knee, and no more than keeps the time between
    /// tokens that is promised, for requests as they come.
    fn within_promises(&self, hardware: &Hardware) -> f64 {
        let (usual, gap_ms) = (&self.sizing.usual, self.settings.line.classes.token_gap_ms());
        let at_knee = hardware.capacity_mu_per_min;
        if usual.cost_ms <= 0.0 {
            return at_knee;
        }
        let per_min = 60_000.0 * usual.per_ms_within(&hardware.step, gap_ms);
        at_knee.min(per_min * hardware.mu(usual.cost_ms))
    }

    /// Tells whether a replica is one of those that the pool has and keeps.
    fn stays(&self, it: &Replica) -> bool {
        !it.leaving && !self.placement.is_drained(it.place)
    }

    /// Lists the replicas that are drained and have finished all they had.
    pub fn drained(&self) -> Vec<ReplicaId> {
        let drained = self.fleet.iter().filter(|it| self.placement.is_drained(it.place));
        drained.filter(|it| it.booked() == 0).map(|it| it.id).collect()
    }

    /// Says what would be lost with each replica: what its sessions would cost to read again, by their odds to return.
    pub fn holdings(&self, now: Moment) -> Vec<Holding> {
        let mut sessions: BTreeMap<ReplicaId, Vec<(f64, f64)>> = BTreeMap::new();
        for (key, tokens, counted) in self.admission.living() {
            let home = self.placement.home(now, key).and_then(|it| self.fleet.get(it));
            let Some(home) = home.filter(|_| 0 < tokens) else { continue };
            let again_ms = home.hardware.cost.prefill_ms(whole_tokens(tokens), 0);
            let odds = float(counted) / float(tokens);
            sessions.entry(home.id).or_default().push((odds, again_ms));
        }
        let stay = self.fleet.iter().filter(|it| self.stays(it));
        let holding = |it: &Replica| Holding {
            replica: it.id,
            is_ready: !it.is_joining(),
            cache_ms: cache_value(sessions.get(&it.id).into_iter().flatten().copied()),
            in_flight_mu: it.in_flight_mu(),
        };
        stay.map(holding).collect()
    }

    /// Learns what a request took.
    pub(super) fn learn_usual(&mut self, cost: &RequestCost, came: &Computed) {
        let newest = MeanRequest {
            prefill_ms: cost.prefill_ms(came.new, came.cached),
            output_tokens: f64::from(came.output),
            context_tokens: f64::from(came.context()),
            cost_ms: cost.cost_ms(came.new, came.cached, came.output, came.context()),
        };
        let is_first = self.sizing.usual.cost_ms <= 0.0;
        self.sizing.usual.learn(newest, if is_first { 1.0 } else { NEW_SHARE });
    }

    /// Counts a request that came, by what it was given of its contract.
    pub(super) fn count_offered(&mut self, now: Moment, parked: &Parked) {
        let mu = parked.estimate.work.as_mu();
        if parked.estimate.held.is_some_and(|it| it.usage == Use::BestEffort) {
            self.sizing.offered.on_beyond(mu);
        } else {
            self.sizing.offered.on_arrival(now, parked.fingerprint.0, mu);
        }
    }

    /// Counts a request that has waited in vain.
    pub(super) fn count_turned_away(&mut self, now: Moment, request: RequestId) {
        if let Some(mark) = self.sizing.offered.on_turned_away(now, request) {
            self.tell_turned_away(mark);
        }
    }

    /// Counts a request that is refused before it could wait.
    pub(super) fn count_refused(
        &mut self,
        now: Moment,
        fingerprint: u64,
        mu: f64,
        refusal: Refusal,
    ) {
        match refusal {
            Refusal::OverContract { .. } => self.sizing.offered.on_beyond(mu),
            Refusal::NoReplica { .. }
            | Refusal::Unauthorized
            | Refusal::LineFull { .. }
            | Refusal::DeadlineUnmeetable { .. }
            | Refusal::DeadlinePassed { .. }
            | Refusal::WaitedOut { .. }
            | Refusal::SessionsFull { .. } => {
                self.sizing.offered.on_refused(now, fingerprint, mu);
                self.tell_turned_away(fingerprint);
            }
            Refusal::TriesSpent
            | Refusal::BudgetSpent
            | Refusal::Quarantined { .. }
            | Refusal::Suspected { .. }
            | Refusal::Restarted { .. }
            | Refusal::NotKept => {}
        }
    }
}

fn whole_tokens(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

fn mean(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = figures.fold((0_u32, 0.0), |(count, sum), it| (count + 1, sum + it));
    (0 < count).then(|| sum / f64::from(count))
}
