//! Learning: what does work really take here? This machine watches first tokens, the gaps between tokens and
//! whole answers, says what the engine did in each of these times (`sightings`), and has the coefficients of
//! each hardware class follow (`cost/learned`). Once a second it hands the fleet what came of it: replicas
//! are priced anew, and what is compared with predictions is put in proportion, so that a replica stays as
//! slow beside its class as it was.
//!
//! A class is what was given the same figures. Which replica is slow beside the others is the business of
//! their pace: times are divided by it before a class learns from them.

mod sightings;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cost::learned::{Learned, Learner, Sighting, SightingKind};
use crate::cost::{Hardware, MeanRequest};
use crate::domain::{Moment, ReplicaId, RequestId};
use crate::fleet::{Fleet, Replica};

use super::request::PromptsRead;

/// How much the newest request counts in what requests take.
const NEW_SHARE: f64 = 1.0 / 256.0;
/// Classes of which something is remembered, those without replicas included.
const CLASSES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Learning {
    is_on: bool,
    classes: Vec<Learner>,
    members: FxHashMap<ReplicaId, Member>,
    /// What an earlier run has learned.
    recalled: Vec<Learned>,
    /// What requests take, in the mean.
    usual: MeanRequest,
}

/// One replica, by what was seen of it.
#[derive(Debug)]
struct Member {
    class: usize,
    /// The last first token that came from there, and whose it was.
    first: Option<(Moment, RequestId)>,
    read: PromptsRead,
    /// When the gaps of one of its streams were last learned from.
    gaps_at: Moment,
    /// How many times as long as at the others of its class work takes there.
    pace: f64,
}

impl Learning {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }

    /// Notes a replica that comes, or whose figures were changed. Returns what its work is priced with.
    pub(super) fn on_joined(&mut self, replica: ReplicaId, given: Arc<Hardware>) -> Arc<Hardware> {
        if !self.is_on {
            return given;
        }
        let Some(class) = self.class_of(given.as_ref()).or_else(|| self.add(&given)) else {
            self.members.remove(&replica);
            return given;
        };
        let member = self.members.entry(replica).or_insert_with(|| Member {
            class,
            first: None,
            read: PromptsRead::default(),
            gaps_at: Moment::ZERO,
            pace: 1.0,
        });
        member.class = class;
        Arc::clone(self.classes[class].used())
    }

    pub(super) fn on_left(&mut self, replica: ReplicaId) {
        self.members.remove(&replica);
    }

    /// Goes on from what an earlier run has learned.
    pub(super) fn recall(&mut self, costs: Vec<Learned>) {
        for class in &mut self.classes {
            for it in &costs {
                class.resume(it);
            }
        }
        self.recalled = costs;
        self.recalled.truncate(CLASSES_MAX);
    }

    /// Goes on from what another router has learned, where that is more.
    pub(super) fn hear(&mut self, learned: &Learned) {
        self.classes.iter_mut().for_each(|class| class.hear(learned));
        let is_same = |it: &Learned| it.class == learned.class && it.given == learned.given;
        match self.recalled.iter().position(is_same) {
            Some(at) if self.recalled[at].seen < learned.seen => {
                self.recalled[at].clone_from(learned);
            }
            None if self.recalled.len() < CLASSES_MAX => self.recalled.push(learned.clone()),
            Some(_) | None => {}
        }
    }

    /// Learns what a request took.
    pub(super) fn learn_usual(&mut self, newest: MeanRequest) {
        let is_first = self.usual.cost_ms <= 0.0;
        self.usual.learn(newest, if is_first { 1.0 } else { NEW_SHARE });
    }

    /// What requests take, in the mean.
    pub(super) const fn usual(&self) -> &MeanRequest {
        &self.usual
    }

    /// What was learned of each class that has replicas.
    pub(super) fn learned(&self) -> Vec<Learned> {
        let has_members = |class: usize| self.members.values().any(|it| it.class == class);
        let there = self.classes.iter().enumerate().filter(|it| has_members(it.0));
        there.map(|it| it.1.learned()).collect()
    }

    /// What was learned of a replica's class.
    pub(super) fn learned_of(&self, replica: ReplicaId) -> Option<Learned> {
        Some(self.classes[self.members.get(&replica)?.class].learned())
    }

    /// Prices the replicas anew whose class has learned something that matters. Returns them, and by how many
    /// times their work takes longer than was thought.
    pub(super) fn on_time(&mut self, fleet: &mut Fleet) -> Vec<(ReplicaId, f64)> {
        let mut repriced = Vec::new();
        for (number, class) in self.classes.iter_mut().enumerate() {
            let is_member = |it: &(&ReplicaId, &mut Member)| it.1.class == number;
            let stretch = class.refresh();
            let paces = self.members.iter().filter(|it| it.1.class == number);
            let usual = middle(paces.filter_map(|it| fleet.get(*it.0)).map(pace_of).collect());
            for (id, member) in self.members.iter_mut().filter(is_member) {
                let Some(it) = fleet.get_mut(*id) else { continue };
                member.pace = it.pace.factor() / usual;
                if let Some(stretch) = stretch {
                    it.reprice(Arc::clone(class.used()), stretch);
                    repriced.push((*id, stretch));
                }
            }
        }
        repriced
    }

    fn class_of(&self, given: &Hardware) -> Option<usize> {
        self.classes.iter().position(|it| **it.given() == *given)
    }

    /// Adds a class, in the place of one that has no replicas where there is no room.
    fn add(&mut self, given: &Arc<Hardware>) -> Option<usize> {
        let mut learner = Learner::new(Arc::clone(given));
        self.recalled.iter().for_each(|it| learner.resume(it));
        learner.refresh();
        if self.classes.len() < CLASSES_MAX {
            self.classes.push(learner);
            return Some(self.classes.len() - 1);
        }
        let is_free = |class: &usize| self.members.values().all(|it| it.class != *class);
        let free = (0..self.classes.len()).find(is_free)?;
        self.classes[free] = learner;
        Some(free)
    }

    fn see(&mut self, replica: &Replica, kind: SightingKind, sighting: Sighting) {
        let Some(member) = self.members.get(&replica.id) else { return };
        let ms = sighting.ms / member.pace;
        self.classes[member.class].see(kind, &Sighting { ms, ..sighting });
    }
}

fn pace_of(replica: &Replica) -> f64 {
    replica.pace.factor()
}

/// The median; 1 of nothing.
fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(1.0)
}
