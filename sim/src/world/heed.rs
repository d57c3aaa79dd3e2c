//! What routers say of replicas, compared with what happened to them: how long a hang went unnoticed, and
//! whether a healthy replica was put out. It changes nothing in the world.

use std::time::Duration;

use cleave_core::brain::{Notice, QuarantineScope, Refusal};
use cleave_core::domain::Moment;
use cleave_core::fleet::{Reason, Silence};

use super::replica::{Replica, Standing};
use super::requests::index;
use super::{Poison, World};

/// Verdicts kept for the results.
const VERDICTS_MAX: usize = 10_000;
/// For this long after an illness a verdict may still be about it.
const AFTERMATH: Duration = Duration::from_secs(60);
/// The bar: a hang is found within this, or three times the silence that its work explains.
const FOUND_WITHIN: Duration = Duration::from_secs(5);

/// A request that was served this often is not blamed for crashes that it was there at by chance.
const OFTEN: u32 = 100;

/// A router's verdict on a replica that it put out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOut {
    pub at: Moment,
    pub replica: usize,
    pub reason: Reason,
    /// How long the replica had hung, if it did.
    pub hung_for: Option<Duration>,
}

/// What quarantine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quarantined {
    /// Requests refused of the tenant whose requests do harm, and of others.
    pub guilty: u64,
    pub innocent: u64,
    /// Times that a replica was brought down by a request.
    pub brought_down: u64,
}

impl World {
    /// Lists the replicas that were put out, in order.
    pub fn put_out(&self) -> &[PutOut] {
        &self.put_out
    }

    pub fn quarantined(&self) -> Quarantined {
        self.quarantined
    }

    /// Counts the replicas that a harmful request has reached; none where no tenant does harm.
    pub fn reached(&self) -> Option<usize> {
        self.poison.map(|_| self.reached.len())
    }

    /// Takes in what a router has to say of its replicas.
    pub(super) fn heed(&mut self, router: usize) {
        for notice in self.routers[router].brain.take_notices() {
            if let Notice::Changed { replica, now, silence, .. } = notice
                && let ("out", Some(reason)) = (now.name, now.reason)
            {
                self.judge_verdict(index(replica), reason, silence);
            }
        }
    }

    fn judge_verdict(&mut self, replica: usize, reason: Reason, silence: Option<Silence>) {
        let it = &self.replicas[replica];
        let hung_for = match it.standing {
            Standing::Hung { since } => Some(self.now.since(since)),
            Standing::Up | Standing::Down | Standing::Gone => None,
        };
        let well = it.well_since.is_some_and(|since| AFTERMATH < self.now.since(since));
        // What other routers have sent somewhere, a router can only guess.
        let alone = self.routers.len() == 1;
        let blameless = matches!(reason, Reason::Hung | Reason::Slow) && well && alone;
        // No replica is put out before there is another one, so only then can it be late.
        let is_well =
            |it: &Replica| it.well_since.is_some_and(|at| 2 * AFTERMATH < self.now.since(at));
        let others = self.replicas.iter().enumerate().filter(|(at, _)| *at != replica);
        let replaced = others.into_iter().any(|(_, it)| is_well(it) && it.is_up());
        let late = silence.is_some_and(|it| FOUND_WITHIN.max(3 * it.expected) < it.lasted)
            && replaced
            && alone;
        let broken = if blameless {
            Some(format!("replica {replica} is well and was put out as {}", reason.as_str()))
        } else if late {
            Some(format!("replica {replica} hung for too long unnoticed: {silence:?}"))
        } else {
            None
        };
        self.broken = self.broken.take().or(broken.filter(|_| self.settings.checks));
        if self.put_out.len() < VERDICTS_MAX {
            self.put_out.push(PutOut { at: self.now, replica, reason, hung_for });
        }
    }

    /// Counts a request that was refused because of what it did, or is thought to have done.
    pub(super) fn count_quarantined(&mut self, request: u64, refusal: Refusal) {
        let tenant = self.flights.get(&request).map(|it| it.tenant);
        let guilty = matches!((self.poison, tenant), (Some(Poison { tenant: it, .. }), Some(own)) if it == own);
        if guilty {
            self.quarantined.guilty += 1;
            return;
        }
        self.quarantined.innocent += 1;
        let served = self.prompt_of(request).and_then(|it| self.served.get(&it).copied());
        // wider scopes blame it for what others of its workload did.
        let is_own =
            !matches!(refusal, Refusal::Quarantined { scope } if scope != QuarantineScope::Request);
        if OFTEN <= served.unwrap_or(0) && is_own && self.settings.checks {
            let broken =
                format!("a prompt that was served {served:?} times is {}", refusal.as_str());
            self.broken = self.broken.take().or(Some(broken));
        }
    }

    /// Notes that a request was served whole.
    pub(super) fn note_served(&mut self, request: u64) {
        if let Some(prompt) = self.prompt_of(request).filter(|_| self.settings.checks) {
            *self.served.entry(prompt).or_default() += 1;
        }
    }

    /// Names the prompt of a request, and the router that has it.
    fn prompt_of(&self, request: u64) -> Option<(usize, u64)> {
        let flight = self.flights.get(&request)?;
        Some((flight.router, *flight.hashes.last()?))
    }
}
