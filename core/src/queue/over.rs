//! Why a request does not fit its contract, in figures that a tenant and an operator know.

use std::fmt;
use std::time::Duration;

use crate::domain::float;

use super::bucket::Allowance;
use super::contract::REQUEST;
use super::work::Work;

/// The least that a refused client is told to wait.
pub(super) const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// The limit of a contract that a request meets first, and how it stood then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OverContract {
    /// `mu`, `tokens` or `requests`, and what they are called in a sentence.
    pub limit: &'static str,
    pub unit: &'static str,
    /// The rate.
    pub per_min: f64,
    /// What may be used at once when nothing was used for long.
    pub at_once: f64,
    /// What of that was used and has not come back: more than all of it, where a request took more than predicted.
    pub used: f64,
    /// What the request was expected to use.
    pub needed: f64,
    /// Whether it is refused also while capacity is idle.
    pub is_hard: bool,
    /// When there is room for it again.
    pub retry_after: Duration,
}

/// What a contract limits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Mu,
    Tokens,
    Requests,
}

impl Unit {
    /// Says how `amount` does not fit an allowance.
    pub(super) fn over(self, allowance: &Allowance, amount: u64) -> OverContract {
        let (limit, unit) = match self {
            Self::Mu => ("mu", "model units"),
            Self::Tokens => ("tokens", "tokens"),
            Self::Requests => ("requests", "requests"),
        };
        OverContract {
            limit,
            unit,
            per_min: self.shown(allowance.per_min()),
            at_once: self.shown(allowance.at_once()),
            used: self.shown(allowance.missing()),
            needed: self.shown(amount),
            is_hard: false,
            retry_after: allowance.ready_in(amount),
        }
    }

    fn shown(self, amount: u64) -> f64 {
        match self {
            Self::Mu => Work::from_parts(amount).as_mu(),
            Self::Tokens => float(amount),
            Self::Requests => float(amount) / float(REQUEST),
        }
    }
}

impl fmt::Display for OverContract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, per_min, at_once, used, needed, retry_after, .. } = self;
        let [per_min, at_once, used, needed] =
            [per_min, at_once, used, needed].map(|it| rounded(*it));
        let seconds = rounded(retry_after.as_secs_f64());
        let why = if self.is_hard { "the contract is hard" } else { "nothing was idle" };
        write!(
            f,
            "{per_min} {unit} a minute, {used} used of {at_once} at once, {needed} needed; \
             room in {seconds} s; {why}"
        )
    }
}

/// Keeps three places, and no zeros behind them.
fn rounded(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Moment;
    use crate::queue::{ContractAccount, Limits};

    #[test]
    fn a_refusal_names_its_limit_with_what_is_used_of_it_and_when_there_is_room() {
        let limits = Limits {
            work_per_min: Some(Work::from_mu(60.0)),
            requests_per_min: Some(20),
            burst: Duration::from_secs(6),
            ..Limits::default()
        };
        let work = Work::from_mu(0.0004);
        let mut account = ContractAccount::new(Moment::ZERO, limits);
        let held = [(); 4].map(|()| account.reserve(Moment::ZERO, work, 10));
        let over = account.over(work, 10);
        assert_eq!(
            over.to_string(),
            "20 requests a minute, 3 used of 3 at once, 1 needed; room in 3 s; nothing was idle"
        );
        let hard = OverContract { is_hard: true, ..over };
        assert!(hard.to_string().ends_with("the contract is hard"), "{hard}");
        // One that ran longer than predicted leaves a debt.
        account.settle(held[0], Work::from_mu(63.0), 10);
        let over = account.over(Work::from_mu(1.0), 10);
        assert_eq!((over.limit, over.per_min, over.at_once), ("mu", 60.0, 9.0));
        assert!(over.at_once < over.used && Duration::from_secs(50) < over.retry_after, "{over}");
        held[1..].iter().for_each(|it| account.cancel(*it));
    }
}
