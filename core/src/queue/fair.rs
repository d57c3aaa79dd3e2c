//! Fair shares by virtual time. Every key carries a tag that grows with the work done for it, more
//! slowly the greater its weight. The lowest tag among the waiting keys goes next. A key that comes
//! back starts at the present of the others: idleness earns no credit and no blame. This is
//! start-time fair queueing: the service of two waiting keys differs by at most one request of
//! each, and a key that is passed over ages, because its tag stands still while all others grow.

use std::collections::BTreeSet;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::class::Weight;
use super::work::Work;

/// Virtual time has this many steps to the millionth of a model unit at weight 1: enough that the
/// heaviest weight still moves.
const STEPS: u128 = 1_000_000;
/// How many keys that do not wait are remembered with what they are ahead.
const REMEMBERED_MAX: usize = 4_096;

/// A point in virtual time.
pub(super) type Tag = u128;

#[derive(Debug)]
pub(super) struct Fair<K> {
    waiting: BTreeSet<(Tag, K)>,
    accounts: FxHashMap<K, Participant>,
    /// The tag of the key that went last.
    present: Tag,
    /// Thousandths, summed over the keys that wait.
    weight_waiting: u64,
}

#[derive(Clone, Copy, Debug)]
struct Participant {
    tag: Tag,
    weight: Weight,
    waits: bool,
}

impl<K> Default for Fair<K> {
    fn default() -> Self {
        let (waiting, accounts, present, weight_waiting) = Default::default();
        Self { waiting, accounts, present, weight_waiting }
    }
}

impl<K: Copy + Ord + Hash> Fair<K> {
    /// Notes that `key` waits; a second call only changes its weight.
    pub(super) fn enter(&mut self, key: K, weight: Weight) {
        let fresh = Participant { tag: self.present, weight, waits: false };
        let account = self.accounts.entry(key).or_insert(fresh);
        if account.waits {
            self.weight_waiting -= u64::from(account.weight.thousandths());
        } else {
            account.tag = account.tag.max(self.present);
            account.waits = true;
            self.waiting.insert((account.tag, key));
        }
        account.weight = weight;
        self.weight_waiting += u64::from(weight.thousandths());
    }

    /// Notes that nothing of theirs waits any more.
    pub(super) fn leave(&mut self, key: K) {
        let Some(account) = self.accounts.get_mut(&key).filter(|it| it.waits) else { return };
        account.waits = false;
        self.weight_waiting -= u64::from(account.weight.thousandths());
        self.waiting.remove(&(account.tag, key));
        self.forget_if_many();
    }

    /// Moves the present to the tag of `key`, and the key on by the work that is done for it.
    pub(super) fn serve(&mut self, key: K, work: Work) {
        if let Some(account) = self.accounts.get(&key) {
            self.present = self.present.max(account.tag);
        }
        self.shift(key, Tag::saturating_add, work);
    }

    /// Serves `key` without having it wait first, in one step: what `enter`, `serve` and `leave` come to for one
    /// that does not wait.
    pub(super) fn pass(&mut self, key: K, weight: Weight, work: Work) {
        let fresh = Participant { tag: self.present, weight, waits: false };
        let account = self.accounts.entry(key).or_insert(fresh);
        if account.waits {
            self.enter(key, weight);
            return self.serve(key, work);
        }
        self.present = account.tag.max(self.present);
        account.tag = self.present.saturating_add(virtual_of(work, weight));
        account.weight = weight;
        self.forget_if_many();
    }

    /// Corrects what was charged, once it is known what the work came to.
    pub(super) fn correct(&mut self, key: K, charged: Work, real: Work) {
        if charged < real {
            self.shift(key, Tag::saturating_add, real.saturating_sub(charged));
        } else {
            self.shift(key, Tag::saturating_sub, charged.saturating_sub(real));
        }
    }

    /// Lists the keys that wait, the next one first, with their tags.
    pub(super) fn order(&self) -> impl Iterator<Item = (Tag, K)> + '_ {
        self.waiting.iter().copied()
    }

    pub(super) fn weight_waiting(&self) -> u64 {
        self.weight_waiting
    }

    fn shift(&mut self, key: K, to: impl Fn(Tag, Tag) -> Tag, work: Work) {
        let Some(account) = self.accounts.get_mut(&key) else { return };
        let before = account.tag;
        account.tag = to(before, virtual_of(work, account.weight));
        if account.waits {
            self.waiting.remove(&(before, key));
            self.waiting.insert((account.tag, key));
        }
    }

    /// Forgets the keys of which there is nothing to remember, where there are many, and if that is not enough,
    /// half the others: those that are least ahead.
    fn forget_if_many(&mut self) {
        if self.accounts.len() - self.waiting.len() <= REMEMBERED_MAX {
            return;
        }
        let present = self.present;
        self.accounts.retain(|_, it| it.waits || present < it.tag);
        let mut ahead: Vec<Tag> =
            self.accounts.values().filter(|it| !it.waits).map(|it| it.tag).collect();
        if REMEMBERED_MAX / 2 < ahead.len() {
            let middle = ahead.len() / 2;
            let (_, median, _) = ahead.select_nth_unstable(middle);
            let median = *median;
            self.accounts.retain(|_, it| it.waits || median < it.tag);
        }
    }
}

/// Measures work in virtual time: what weighs twice as much passes it twice as fast.
pub(super) fn virtual_of(work: Work, weight: Weight) -> Tag {
    u128::from(work.parts()) * STEPS / u128::from(weight.thousandths())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mu(mu: f64) -> Work {
        Work::from_mu(mu)
    }

    fn first(fair: &Fair<u32>) -> Option<u32> {
        fair.order().next().map(|it| it.1)
    }

    #[test]
    fn work_is_shared_by_weight() {
        let mut fair = Fair::default();
        fair.enter(1, Weight::new(3.0).unwrap());
        fair.enter(2, Weight::ONE);
        let mut done = [0.0, 0.0, 0.0];
        for _ in 0..400 {
            let next = first(&fair).unwrap();
            // The second one's requests are larger; work is shared, not requests.
            let work = if next == 1 { 0.5 } else { 2.0 };
            fair.serve(next, mu(work));
            done[usize::try_from(next).unwrap()] += work;
        }
        assert!((done[1] / done[2] - 3.0).abs() < 0.1, "{done:?}");
    }

    #[test]
    fn who_was_idle_starts_at_the_present() {
        let mut fair = Fair::default();
        fair.enter(1, Weight::ONE);
        (0..100).for_each(|_| fair.serve(1, mu(1.0)));
        fair.enter(2, Weight::ONE);
        let mut streak = 0;
        while first(&fair) == Some(2) {
            fair.serve(2, mu(1.0));
            streak += 1;
        }
        assert!(streak <= 2, "{streak}");
    }

    #[test]
    fn what_was_charged_too_much_is_given_back() {
        let mut fair = Fair::default();
        fair.enter(1, Weight::ONE);
        fair.enter(2, Weight::ONE);
        fair.serve(1, mu(10.0));
        fair.serve(2, mu(5.0));
        assert_eq!(first(&fair), Some(2));
        fair.correct(1, mu(10.0), mu(1.0));
        assert_eq!(first(&fair), Some(1));
        fair.correct(1, mu(1.0), mu(20.0));
        assert_eq!(first(&fair), Some(2));
    }

    proptest! {
        #[test]
        fn passing_is_entering_being_served_and_leaving(
            steps in prop::collection::vec((0_u32..4, 0_u8..4, 1_u32..5, 0.1_f64..9.0), 1..60),
        ) {
            let (mut steps_of_all, mut one) = (Fair::default(), Fair::default());
            for (key, what, weight, work) in steps {
                let (weight, work) = (Weight::new(f64::from(weight)).unwrap(), mu(work));
                for fair in [&mut steps_of_all, &mut one] {
                    match what {
                        0 => fair.enter(key, weight),
                        1 => fair.leave(key),
                        _ => {}
                    }
                }
                if 1 < what {
                    let waits = steps_of_all.order().any(|it| it.1 == key);
                    steps_of_all.enter(key, weight);
                    steps_of_all.serve(key, work);
                    if !waits {
                        steps_of_all.leave(key);
                    }
                    one.pass(key, weight, work);
                }
                let order = |it: &Fair<u32>| it.order().collect::<Vec<_>>();
                prop_assert_eq!(order(&steps_of_all), order(&one));
                prop_assert_eq!(steps_of_all.present, one.present);
                prop_assert_eq!(steps_of_all.weight_waiting(), one.weight_waiting());
            }
        }
    }

    #[test]
    fn those_who_left_are_remembered_in_bounded_number() {
        let mut fair = Fair::default();
        for key in 0..100_000_u32 {
            fair.enter(key, Weight::ONE);
            fair.serve(key, mu(f64::from(key % 100)));
            fair.leave(key);
            assert!(fair.accounts.len() <= REMEMBERED_MAX + 1);
        }
        assert_eq!(fair.weight_waiting(), 0);
    }
}
