//! What was promised to a tenant, and what it used of it. The predicted cost is reserved when a
//! request is admitted. The actual cost is settled at its end, and a stream that runs past its
//! prediction is counted as it flows. Limits in requests or tokens may stand beside one in work; a
//! request must fit them all. Work beyond a contract takes nothing from it.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::Moment;

use super::bucket::{Allowance, Use};
use super::line::Tenant;
use super::over::{OverContract, RETRY_AFTER_MIN, Unit};
use super::work::Work;

/// A request in the unit its allowance counts in, so that a rate of one in some minutes works too.
pub(super) const REQUEST: u64 = 1_000;

/// What a tenant may use in a minute. What is not limited is not counted against anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub work_per_min: Option<Work>,
    pub tokens_per_min: Option<u64>,
    pub requests_per_min: Option<u64>,
    /// How much of the rate may be saved up: what it gives in this time.
    pub burst: Duration,
    /// Whether what is beyond it is refused also while capacity is idle.
    pub is_hard: bool,
}

/// What was used, of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub requests: u64,
    pub tokens: u64,
    pub work: Work,
}

/// What one request holds of a contract until it is settled or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is reserved must be settled or cancelled"]
pub struct Reservation {
    pub usage: Use,
    pub work: Work,
    pub tokens: u64,
    /// Where it was taken: work, tokens, requests.
    uses: [Use; 3],
    /// The account that holds it, by its number.
    account: u64,
}

/// Where a tenant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractUsage {
    pub limits: Limits,
    /// By kind, in the order of [`Use::ALL`].
    pub used: [Used; 3],
    pub work_remaining: Option<Work>,
    pub tokens_remaining: Option<u64>,
    pub requests_remaining: Option<u64>,
    /// When all of the rate is there again.
    pub reset_in: Duration,
    pub reserved: u64,
}

impl ContractUsage {
    /// Counts in what would be served beyond the contract while capacity is idle: a minute's rate at least.
    #[must_use]
    pub fn with_idle_capacity(self) -> Self {
        let more = |left: Option<u64>, rate: Option<u64>| Some(left?.max(rate?));
        Self {
            work_remaining: self.work_remaining.max(self.limits.work_per_min),
            tokens_remaining: more(self.tokens_remaining, self.limits.tokens_per_min),
            requests_remaining: more(self.requests_remaining, self.limits.requests_per_min),
            reset_in: Duration::ZERO,
            ..self
        }
    }
}

/// One tenant's contract and its books.
#[derive(Clone, Debug)]
pub struct ContractAccount {
    /// Tells it from an earlier account of the same tenant; 0 for the shared account.
    number: u64,
    limits: Limits,
    work: Option<Allowance>,
    tokens: Option<Allowance>,
    requests: Option<Allowance>,
    used: [Used; 3],
    /// Requests that hold a reservation.
    reserved: u64,
}

impl ContractAccount {
    pub fn new(now: Moment, limits: Limits) -> Self {
        let mut account = Self {
            number: 0,
            limits,
            work: None,
            tokens: None,
            requests: None,
            used: Default::default(),
            reserved: 0,
        };
        account.limit(now, limits);
        account
    }

    /// Takes on other limits; what was saved, owed and used stays.
    pub fn limit(&mut self, now: Moment, limits: Limits) {
        self.limits = limits;
        let change = |allowance: &mut Option<Allowance>, per_min: Option<u64>| {
            *allowance = per_min.map(|per_min| {
                let burst = in_time(per_min, limits.burst);
                let mut changed = allowance.unwrap_or_else(|| Allowance::new(now, per_min, burst));
                if (changed.per_min(), changed.burst_max()) != (per_min, burst) {
                    changed.reset(now, per_min, burst);
                }
                changed
            });
        };
        change(&mut self.work, limits.work_per_min.map(Work::parts));
        change(&mut self.tokens, limits.tokens_per_min);
        change(&mut self.requests, limits.requests_per_min.map(|it| it.saturating_mul(REQUEST)));
    }

    /// Reserves what a request is expected to use. If it does not fit, nothing is taken and the
    /// request is best effort: the caller must know of idle capacity, or refuse it and say
    /// [`ContractAccount::over`].
    pub fn reserve(&mut self, now: Moment, work: Work, tokens: u64) -> Reservation {
        let amounts = [work.parts(), tokens, REQUEST];
        let mut uses = [Use::Guaranteed; 3];
        for ((allowance, usage), amount) in
            self.allowances().into_iter().zip(&mut uses).zip(amounts)
        {
            *usage = allowance.map_or(Use::Guaranteed, |it| it.look(now, amount));
        }
        let usage = uses.into_iter().max().unwrap_or(Use::Guaranteed);
        if usage == Use::BestEffort {
            uses = [Use::BestEffort; 3];
        }
        for ((allowance, usage), amount) in self.allowances().into_iter().zip(uses).zip(amounts) {
            if let Some(allowance) = allowance {
                allowance.take(usage, amount);
            }
        }
        self.reserved += 1;
        Reservation { usage, work, tokens, uses, account: self.number }
    }

    /// Says which limit such a request meets first and when it will fit.
    pub fn over(&self, work: Work, tokens: u64) -> OverContract {
        let asked = [
            (Unit::Mu, self.work, work.parts()),
            (Unit::Tokens, self.tokens, tokens),
            (Unit::Requests, self.requests, REQUEST),
        ];
        let over = asked.map(|(unit, it, amount)| Some(unit.over(&it?, amount)));
        let first = over.into_iter().flatten().max_by_key(|it| it.retry_after).unwrap_or_default();
        let retry_after = first.retry_after.max(RETRY_AFTER_MIN);
        OverContract { is_hard: self.limits.is_hard, retry_after, ..first }
    }

    /// Counts a stream that has used `work` and `tokens` by now; it holds more once it is past its
    /// prediction.
    pub fn flow(&mut self, held: &mut Reservation, work: Work, tokens: u64) {
        let more_work = work.saturating_sub(held.work);
        let more_tokens = tokens.saturating_sub(held.tokens);
        let [by_work, by_tokens, _] = self.allowances();
        if let Some(it) = by_work {
            it.take(held.uses[0], more_work.parts());
        }
        if let Some(it) = by_tokens {
            it.take(held.uses[1], more_tokens);
        }
        held.work += more_work;
        held.tokens = held.tokens.saturating_add(more_tokens);
    }

    /// Closes the books on a request that used `work` and `tokens`.
    pub fn settle(&mut self, mut held: Reservation, work: Work, tokens: u64) {
        self.flow(&mut held, work, tokens);
        let spare_work = held.work.saturating_sub(work);
        let spare_tokens = held.tokens.saturating_sub(tokens);
        let [by_work, by_tokens, _] = self.allowances();
        if let Some(it) = by_work {
            it.give(held.uses[0], spare_work.parts());
        }
        if let Some(it) = by_tokens {
            it.give(held.uses[1], spare_tokens);
        }
        let used = &mut self.used[held.usage.index()];
        used.requests += 1;
        used.tokens = used.tokens.saturating_add(tokens);
        used.work += work;
        self.release();
    }

    /// Counts what another router let in under this contract. It runs already, so it is counted even where that leaves
    /// a debt.
    pub fn spend_elsewhere(&mut self, now: Moment, work: Work, tokens: u64) {
        let amounts = [work.parts(), tokens, REQUEST];
        for (allowance, amount) in self.allowances().into_iter().zip(amounts) {
            if let Some(it) = allowance {
                it.look(now, 0);
                it.take(Use::Guaranteed, amount);
            }
        }
    }

    /// Corrects that by what it came to.
    pub fn correct_elsewhere(&mut self, before: (Work, u64), came: (Work, u64)) {
        let [by_work, by_tokens, _] = self.allowances();
        let pairs = [(by_work, before.0.parts(), came.0.parts()), (by_tokens, before.1, came.1)];
        for (allowance, before, came) in pairs {
            if let Some(it) = allowance {
                it.take(Use::Guaranteed, came.saturating_sub(before));
                it.give(Use::Guaranteed, before.saturating_sub(came));
            }
        }
    }

    /// Says how much is missing of what may be saved up: work, tokens, requests.
    pub fn missing(&self) -> [u64; 3] {
        [self.work, self.tokens, self.requests].map(|it| it.map_or(0, |it| it.missing()))
    }

    /// Takes as much as another router has seen taken, where that is more.
    pub fn catch_up(&mut self, now: Moment, missing: [u64; 3]) {
        for (allowance, told) in self.allowances().into_iter().zip(missing) {
            if let Some(it) = allowance {
                it.look(now, 0);
                it.take(Use::Guaranteed, told.saturating_sub(it.missing()));
            }
        }
    }

    /// Gives everything back: the request was never sent.
    pub fn cancel(&mut self, held: Reservation) {
        let amounts = [held.work.parts(), held.tokens, REQUEST];
        for ((allowance, usage), amount) in
            self.allowances().into_iter().zip(held.uses).zip(amounts)
        {
            if let Some(allowance) = allowance {
                allowance.give(usage, amount);
            }
        }
        self.release();
    }

    fn release(&mut self) {
        debug_assert!(0 < self.reserved, "released more than was reserved");
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Tells whether what is beyond it is refused also while capacity is idle.
    pub const fn is_hard(&self) -> bool {
        self.limits.is_hard
    }

    /// Tells whether anything is limited at all.
    pub const fn is_limited(&self) -> bool {
        self.work.is_some() || self.tokens.is_some() || self.requests.is_some()
    }

    /// Shows where it stands now.
    pub fn usage_at(&mut self, now: Moment) -> ContractUsage {
        for allowance in self.allowances().into_iter().flatten() {
            allowance.look(now, 0);
        }
        self.usage()
    }

    /// Shows where it stood when it was last asked for anything.
    pub fn usage(&self) -> ContractUsage {
        let all = [self.work, self.tokens, self.requests];
        let reset_in = all.iter().flatten().map(|it| it.ready_in(u64::MAX)).max();
        ContractUsage {
            limits: self.limits,
            used: self.used,
            work_remaining: self.work.map(|it| Work::from_parts(it.remaining())),
            tokens_remaining: self.tokens.map(|it| it.remaining()),
            requests_remaining: self.requests.map(|it| it.remaining() / REQUEST),
            reset_in: reset_in.unwrap_or(Duration::ZERO),
            reserved: self.reserved,
        }
    }

    fn allowances(&mut self) -> [Option<&mut Allowance>; 3] {
        [self.work.as_mut(), self.tokens.as_mut(), self.requests.as_mut()]
    }
}

/// Says what a rate per minute gives in some time.
fn in_time(per_min: u64, span: Duration) -> u64 {
    let amount = u128::from(per_min).saturating_mul(span.as_millis()) / 60_000;
    u64::try_from(amount).unwrap_or(u64::MAX)
}

/// One account for each tenant that is known by name, and one shared by all others.
#[derive(Clone, Debug)]
pub struct Contracts {
    accounts: IndexMap<Tenant, ContractAccount, FxBuildHasher>,
    /// Accounts that were ever opened, not counting the shared one.
    opened: u64,
}

impl Default for Contracts {
    fn default() -> Self {
        let shared = ContractAccount::new(Moment::ZERO, Limits::default());
        let accounts = std::iter::once((Tenant::default(), shared)).collect();
        Self { accounts, opened: 0 }
    }
}

impl Contracts {
    /// Takes on a list of tenants and what each may use. Tenants that stay keep their books. Those
    /// that left lose them: what they have in flight is settled with the shared account, also when
    /// they come back.
    pub fn reset(&mut self, now: Moment, limits: impl IntoIterator<Item = (Tenant, Limits)>) {
        let mut accounts: IndexMap<Tenant, ContractAccount, FxBuildHasher> = IndexMap::default();
        let shared = (Tenant::default(), Limits::default());
        for (tenant, limits) in std::iter::once(shared).chain(limits) {
            if let Some(named_twice) = accounts.get_mut(&tenant) {
                named_twice.limit(now, limits);
                continue;
            }
            let known = self.accounts.swap_remove(&tenant);
            let mut account = known.unwrap_or_else(|| {
                self.opened += 1;
                ContractAccount { number: self.opened, ..ContractAccount::new(now, limits) }
            });
            account.limit(now, limits);
            accounts.insert(tenant, account);
        }
        let orphans: u64 = self.accounts.values().map(|it| it.reserved).sum();
        if let Some(shared) = accounts.get_mut(&Tenant::default()) {
            shared.reserved += orphans;
        }
        self.accounts = accounts;
    }

    /// Forgets the requests that hold a reservation, because their ends will not be told. What they
    /// reserved stays charged: they were sent.
    pub fn forget_reserved(&mut self) {
        self.accounts.values_mut().for_each(|it| it.reserved = 0);
    }

    /// Finds the tenant's account, or the shared one.
    pub fn account(&mut self, tenant: Tenant) -> &mut ContractAccount {
        let at = self.accounts.get_index_of(&tenant).unwrap_or(0);
        &mut self.accounts[at]
    }

    /// Finds the account in which a reservation of the tenant is kept. That need not be its account now:
    /// it may have been taken away and given another one since.
    pub fn holder(&mut self, tenant: Tenant, held: &Reservation) -> &mut ContractAccount {
        let own = self.accounts.get_full(&tenant).filter(|it| it.2.number == held.account);
        let at = own.map_or(0, |it| it.0);
        &mut self.accounts[at]
    }

    /// Counts the reservations that all accounts keep together.
    pub fn reserved(&self) -> u64 {
        self.accounts.values().map(|it| it.reserved).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Tenant, &ContractAccount)> {
        self.accounts.iter().map(|it| (*it.0, it.1))
    }
}
