//! What may be seen of a pool. Looking changes nothing, so a panic while looking is contained and no more:
//! the brain is as good as before, and the viewer sees an empty pool. What marks or takes something goes
//! through the guard like every event.

use std::collections::BTreeMap;

use cleave_core::brain::{
    AssignmentView, Brain, Expected, Explanation, ReplicaLoad, Shadows, Snapshot, TenantSnapshot,
    Waited, WorkloadDrift,
};
use cleave_core::cost::learned::Learned;
use cleave_core::domain::{Moment, ReplicaId, RequestId};
use cleave_core::queue::{ContractUsage, Tenant};

use crate::proxy::panics::attempt;
use crate::replicas::{Origin, Trouble};

use super::Pool;

/// What is expected of a request that was placed, and what is known of its wait if it was held.
pub(in crate::proxy) type Expectation = (Option<Expected>, Option<Waited>);

impl Pool {
    pub fn snapshot(&self) -> Snapshot {
        self.look(|brain, _| brain.snapshot())
    }

    /// What each tenant has used.
    pub fn tenants(&self) -> Vec<TenantSnapshot> {
        self.look(|brain, _| brain.tenants())
    }

    /// What is booked on each replica.
    pub fn load(&self) -> Vec<ReplicaLoad> {
        self.look(Brain::load)
    }

    /// What was predicted for decisions that were kept.
    pub fn shadows(&self) -> Shadows {
        self.look(|brain, _| brain.shadows())
    }

    /// What was learned of what work takes, for each class of replicas.
    pub fn learned_costs(&self) -> Vec<Learned> {
        self.look(|brain, _| brain.learned_costs())
    }

    /// How far predictions of work were off, for each workload.
    pub(in crate::proxy) fn workload_drifts(&self) -> Vec<WorkloadDrift> {
        self.look(|brain, _| brain.workload_drifts())
    }

    /// Shows which replicas hold which keys.
    pub fn assignment(&self) -> AssignmentView {
        self.look(Brain::assignment)
    }

    /// To be asked once for each verdict.
    pub(super) fn take_expected(&self, request: RequestId) -> Expectation {
        self.mark(|brain, _| brain.take_expected(request)).unwrap_or_default()
    }

    /// Names a replica that is there.
    pub(in crate::proxy) fn origin_of(&self, replica: ReplicaId) -> Option<Origin> {
        let members = self.members.load();
        members.iter().find(|it| it.id == replica).map(|it| it.origin.clone())
    }

    /// Where a tenant stands; nothing for one without a contract.
    pub(in crate::proxy) fn contract(&self, tenant: Tenant) -> Option<ContractUsage> {
        self.mark(|brain, now| brain.contract(now, tenant)).flatten()
    }

    /// Has the next decision on a request explained.
    pub(in crate::proxy) fn explain(&self, request: RequestId) {
        _ = self.mark(|brain, _| brain.explain(request));
    }

    /// Takes what was written down of a request since it was marked: what it went through before it was
    /// sent, and why it was sent where it was.
    pub(in crate::proxy) fn take_explanation(
        &self,
        request: RequestId,
    ) -> (Option<Waited>, Option<Explanation>) {
        let taken =
            self.mark(|brain, _| (brain.take_waited(request), brain.take_explanation(request)));
        taken.unwrap_or_default()
    }

    /// What is wrong with its replicas, by their address.
    pub fn troubles(&self) -> BTreeMap<String, Trouble> {
        let members = self.members.load();
        let troubled = members.iter().filter_map(|it| Some((it.origin.to_string(), it.trouble()?)));
        troubled.collect()
    }

    /// What it serves, as far as is known.
    pub fn models(&self) -> Vec<String> {
        crate::proxy::table::models_of(self).into_iter().map(|it| it.id).collect()
    }

    pub(super) fn look<T>(&self, at: impl Fn(&Brain, Moment) -> T) -> T {
        let (now, settings) = {
            let brain_state = self.lock();
            let now = self.clock.now();
            if let Ok(seen) = attempt(|| at(&brain_state.brain, now)) {
                return seen;
            }
            (now, brain_state.settings.clone())
        };
        self.metrics.panics.inc();
        at(&Brain::new(settings), now)
    }

    pub(super) fn mark<T>(&self, work: impl FnOnce(&mut Brain, Moment) -> T) -> Option<T> {
        let mut released = Vec::new();
        let done =
            self.guard(&mut released, |brain_state, now, _| work(&mut brain_state.brain, now));
        for replica in released {
            self.release(replica);
        }
        done.ok()
    }
}
