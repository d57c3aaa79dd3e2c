//! What other routers let through: it counts against the contracts of its tenants, and shows how long contexts are.
//! And what waits in their lines: it is one line with this one, kept in several places.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::WaitingClass;
use crate::domain::{Moment, RouterId};
use crate::queue::{CLASSES_MAX, ClassId, Tenant, Work};

use super::Admission;
use super::turns::RoomTurns;

/// What waits is told again when it has changed by one part in this many.
const CHANGED_PARTS: u64 = 8;

/// What waits of one class at one router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WaitingLine {
    work: Work,
    /// Until when one of them can still be in time.
    in_time: Moment,
}

impl WaitingLine {
    /// Tells whether routers that were told `self` should hear of `other`: requests begin or cease to wait or
    /// to be in time, or they became a good deal more or less.
    fn differs(self, now: Moment, other: Self) -> bool {
        let (before, after) = (self.work.parts(), other.work.parts());
        (before == 0) != (after == 0)
            || before.max(after) / CHANGED_PARTS < before.abs_diff(after)
            || (now < self.in_time) != (now < other.in_time)
    }
}

/// What waits at other routers, by class, and whose turn it is where several have a line.
#[derive(Debug)]
pub(super) struct LinesElsewhere {
    lines: BTreeMap<RouterId, [WaitingLine; CLASSES_MAX]>,
    sums: [Work; CLASSES_MAX],
    /// What waits here, as the others were told last.
    told: [WaitingLine; CLASSES_MAX],
    pub(super) turns: RoomTurns,
}

impl LinesElsewhere {
    pub(super) fn new(seed: u64) -> Self {
        let nothing = [WaitingLine::default(); CLASSES_MAX];
        let (lines, sums) = (BTreeMap::new(), [Work::ZERO; CLASSES_MAX]);
        Self { lines, sums, told: nothing, turns: RoomTurns::new(seed) }
    }

    /// Takes in what waits at a router now; where nothing does, it is forgotten.
    fn set(&mut self, now: Moment, router: RouterId, classes: &[WaitingClass]) {
        let mut line = [WaitingLine::default(); CLASSES_MAX];
        for (it, told) in line.iter_mut().zip(classes) {
            let in_time = now + Duration::from_millis(told.in_time_ms.into());
            *it = WaitingLine { work: Work::from_parts(told.work), in_time };
        }
        if line.iter().all(|it| it.work == Work::ZERO) {
            self.lines.remove(&router);
        } else {
            self.lines.insert(router, line);
        }
        for (class, sum) in self.sums.iter_mut().enumerate() {
            *sum = self.lines.values().map(|it| it[class].work).sum();
        }
        if self.is_empty() {
            self.turns.clear();
        }
    }

    /// Tells whether the others should hear that this waits here now, and notes that they do.
    fn is_news(&mut self, now: Moment, own: [WaitingLine; CLASSES_MAX]) -> bool {
        let is_news = self.told.iter().zip(own).any(|(told, own)| told.differs(now, own));
        if is_news {
            self.told = own;
        }
        is_news
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn work(&self, class: ClassId) -> Work {
        self.sums.get(class.index()).copied().unwrap_or_default()
    }

    /// Adds up what waits of all classes.
    fn all(&self) -> Work {
        self.sums.iter().copied().sum()
    }

    /// Tells whether a request waits that is not of a lesser class than this one.
    pub(super) fn has_equal(&self, class: ClassId) -> bool {
        self.sums.iter().take(class.index() + 1).any(|it| *it != Work::ZERO)
    }

    /// Says what counts of a class here and elsewhere, in model units: as long as some requests can be in time, those
    /// at routers where none can do not count.
    pub(super) fn beside(&self, now: Moment, class: ClassId, own: WaitingLine) -> (f64, f64) {
        let others = || self.lines.values().filter_map(|it| it.get(class.index()).copied());
        let is_hopeful = now < own.in_time || others().any(|it| now < it.in_time);
        let counts = |it: &WaitingLine| !is_hopeful || now < it.in_time;
        let mu = |it: WaitingLine| it.work.as_mu();
        let here = Some(own).filter(counts).map_or(0.0, mu);
        (here, others().filter(counts).map(mu).sum())
    }
}

impl Admission {
    /// Counts a request that another router let through: its work and its tokens.
    pub(in crate::brain) fn spend_elsewhere(
        &mut self,
        now: Moment,
        tenant: Tenant,
        (work, tokens): (Work, u64),
    ) {
        if work != Work::ZERO || tokens != 0 {
            self.contracts.account(tenant).spend_elsewhere(now, work, tokens);
        }
    }

    /// Corrects that by what it came to.
    pub(in crate::brain) fn correct_elsewhere(
        &mut self,
        tenant: Tenant,
        before: (Work, u64),
        came: (Work, u64),
    ) {
        self.contracts.account(tenant).correct_elsewhere(before, came);
    }

    /// Says what waits at all routers, in model units.
    pub(in crate::brain) fn held_mu(&self) -> f64 {
        self.waiting.line().work().as_mu() + self.elsewhere.all().as_mu()
    }

    /// Says what waits here of a class.
    pub(super) fn own_line(&self, class: ClassId) -> WaitingLine {
        let line = self.waiting.line();
        let in_time = line.last_due(class).unwrap_or(Moment::ZERO);
        WaitingLine { work: line.class(class).work, in_time }
    }

    /// Tells whether other routers should hear what waits here now, and notes that they do.
    pub(in crate::brain) fn is_waiting_news(&mut self, now: Moment) -> bool {
        let classes = self.settings.classes.iter().map(|it| it.0);
        let mut own = [WaitingLine::default(); CLASSES_MAX];
        classes.for_each(|it| own[it.index()] = self.own_line(it));
        self.elsewhere.is_news(now, own)
    }

    /// Lists what waits here by class, as others are told.
    pub(in crate::brain) fn waiting_told(
        &self,
        now: Moment,
    ) -> impl Iterator<Item = WaitingClass> + '_ {
        self.settings.classes.iter().map(move |(class, _)| {
            let WaitingLine { work, in_time } = self.own_line(class);
            let in_time_ms = u32::try_from(in_time.since(now).as_millis()).unwrap_or(u32::MAX);
            WaitingClass { work: work.parts(), in_time_ms }
        })
    }

    /// Takes in what waits at another router, by class; nothing when it is gone.
    pub(in crate::brain) fn on_waiting_elsewhere(
        &mut self,
        now: Moment,
        router: RouterId,
        classes: &[WaitingClass],
    ) {
        self.elsewhere.set(now, router, classes);
    }

    /// Tells whether requests wait here and at other routers.
    pub(super) fn takes_turns(&self) -> bool {
        self.settings.holds && !self.waiting.line().is_empty() && !self.elsewhere.is_empty()
    }

    /// Says which part of all that waits is this router's. Classes count by their weight, whatever waits of each.
    pub(super) fn share(&self, now: Moment) -> f64 {
        let (mut own, mut all) = (0.0, 0.0);
        for (id, class) in self.settings.classes.iter() {
            let (here, there) = self.elsewhere.beside(now, id, self.own_line(id));
            if 0.0 < here + there {
                let weight = f64::from(class.weight.thousandths());
                own += weight * here / (here + there);
                all += weight;
            }
        }
        if 0.0 < all { own / all } else { 1.0 }
    }

    /// Lists what is missing of each contract.
    pub(in crate::brain) fn missing(&self) -> impl Iterator<Item = (Tenant, [u64; 3])> + '_ {
        let limited = self.contracts.iter().filter(|it| it.1.is_limited());
        limited.map(|(tenant, it)| (tenant, it.missing()))
    }

    /// Takes on what another router has seen taken of a contract, where that is more.
    pub(in crate::brain) fn catch_up(&mut self, now: Moment, tenant: Tenant, missing: [u64; 3]) {
        self.contracts.account(tenant).catch_up(now, missing);
    }

    /// Learns how long contexts are from a request of another router.
    pub(in crate::brain) fn learn_elsewhere(&mut self, prompt_tokens: u32, output_tokens: u32) {
        if output_tokens != 0 {
            self.knees.learn(prompt_tokens, output_tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ClassId = ClassId(0);
    const SECOND: ClassId = ClassId(1);

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    fn line(mu: u64, in_time_ms: u32) -> WaitingClass {
        WaitingClass { work: mu * 1_000_000, in_time_ms }
    }

    #[test]
    fn lines_of_other_routers_are_added_up_and_end_with_them() {
        let mut lines = LinesElsewhere::new(0);
        lines.set(at(0), RouterId(1), &[line(0, 0), line(3, 10)]);
        lines.set(at(0), RouterId(2), &[line(0, 0), line(4, 10)]);
        assert_eq!(lines.work(SECOND), Work::from_mu(7.0));
        assert!(lines.has_equal(SECOND) && !lines.has_equal(FIRST), "a lesser class gives way");
        lines.set(at(0), RouterId(1), &[line(1, 10)]);
        assert!(lines.has_equal(FIRST));
        lines.set(at(0), RouterId(1), &[]);
        lines.set(at(0), RouterId(2), &[line(0, 0)]);
        assert!(lines.is_empty() && lines.work(SECOND) == Work::ZERO);
    }

    #[test]
    fn what_is_lost_does_not_count_while_something_can_be_in_time() {
        let mut lines = LinesElsewhere::new(0);
        lines.set(at(0), RouterId(1), &[line(8, 0)]);
        lines.set(at(0), RouterId(2), &[line(2, 100)]);
        let own = WaitingLine { work: Work::from_mu(5.0), in_time: at(50) };
        let shares = |ms| lines.beside(at(ms), FIRST, own);
        assert_eq!(shares(20), (5.0, 2.0));
        assert_eq!(shares(60), (0.0, 2.0), "only the second router has hope");
        assert_eq!(shares(200), (5.0, 10.0), "none has");
    }

    #[test]
    fn a_line_is_told_again_when_it_is_another_one() {
        let told = WaitingLine { work: Work::from_mu(80.0), in_time: at(100) };
        let with = |mu, in_time| WaitingLine { work: Work::from_mu(mu), in_time: at(in_time) };
        assert!(!told.differs(at(50), with(80.0, 100)) && !told.differs(at(50), with(85.0, 900)));
        assert!(told.differs(at(50), with(95.0, 100)) && told.differs(at(50), with(0.0, 100)));
        assert!(told.differs(at(150), with(80.0, 900)), "they think that all is lost");
        assert!(told.differs(at(50), with(80.0, 40)), "they think that some can be in time");
    }
}
