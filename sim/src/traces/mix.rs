//! The tenant and the class of each request, for workloads that do not tell: every session is dealt a
//! tenant and a class by shares. A session is never split, and what it is dealt depends on the seed and
//! the session alone, not on the order in which requests come.

use std::time::Duration;

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

use super::draw;
use super::request::{Class, Request, Tenant};

/// The share of sessions, or of composed tenants, that are of a class, and what it is promised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassShare {
    pub class: Class,
    pub share: f64,
    /// Time from arrival within which the first token is due.
    pub deadline: Option<Duration>,
}

/// Labels for sessions; nothing is changed where nothing is listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mix {
    pub classes: Vec<ClassShare>,
    /// Tenants, and the share of sessions that are theirs.
    pub tenants: Vec<(Tenant, f64)>,
}

impl Mix {
    /// Labels a request as its session is labelled.
    pub(super) fn label(&self, seed: u64, request: &mut Request) {
        let mut class = draw::rng(seed, "class of a session", request.session);
        if let Some(it) = choose(&self.classes, |it| it.share, &mut class) {
            (request.class, request.deadline) = (it.class, it.deadline);
        }
        let mut tenant = draw::rng(seed, "tenant of a session", request.session);
        if let Some((tenant, _)) = choose(&self.tenants, |it| it.1, &mut tenant) {
            request.tenant = *tenant;
            // Tenants never share a block: caches are salted by tenant.
            request.prompt = request.prompt.respaced(u64::from(tenant.0));
        }
    }
}

/// Chooses one by shares; none of none.
pub(super) fn choose<'a, T>(
    all: &'a [T],
    share: impl Fn(&T) -> f64,
    rng: &mut Pcg64Mcg,
) -> Option<&'a T> {
    let mut left = rng.random::<f64>() * all.iter().map(&share).sum::<f64>();
    let found = all.iter().find(|it| {
        let share = share(it);
        let is_it = left < share;
        left -= share;
        is_it
    });
    found.or(all.last())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Replay, Synthetic, Workload, presets};
    use super::*;

    #[test]
    fn sessions_are_dealt_whole_and_by_shares() {
        let class = |class, share| ClassShare { class: Class(class), share, deadline: None };
        let mix = Mix {
            classes: vec![class(0, 0.2), class(1, 0.6), class(2, 0.2)],
            tenants: vec![(Tenant(0), 10.0), (Tenant(1), 1.0)],
        };
        let Some(Synthetic::HeavyTail(load)) = presets::named("heavy-tail") else { panic!() };
        let replay = Replay { requests_max: 4_000, ..Replay::default() };
        let play = || Workload::synthetic(&Synthetic::HeavyTail(load.clone()), &replay);
        let mut workload = play().labelled(3, mix.clone());
        let (mut of_class, mut of_tenant) = (BTreeMap::new(), BTreeMap::new());
        while let Some(request) = workload.take().unwrap() {
            *of_class.entry(request.class).or_insert(0) += 1;
            *of_tenant.entry(request.tenant).or_insert(0) += 1;
        }
        assert!((700..900).contains(&of_class[&Class(0)]), "{of_class:?}");
        assert!((2_300..2_500).contains(&of_class[&Class(1)]), "{of_class:?}");
        assert!((300..430).contains(&of_tenant[&Tenant(1)]), "{of_tenant:?}");
        let mut request = play().take().unwrap().unwrap();
        let labels = |request: &mut Request| {
            mix.label(3, request);
            (request.class, request.tenant)
        };
        assert_eq!(labels(&mut request.clone()), labels(&mut request));
        let mut alone = play().labelled(3, mix.clone()).only(Class(0));
        let mut among = play().labelled(3, mix);
        while let Some(request) = among.take().unwrap() {
            if request.class == Class(0) {
                assert_eq!(alone.next_arrival().unwrap(), Some(request.arrival));
                assert_eq!(alone.take().unwrap().unwrap().prompt, request.prompt);
            }
        }
        assert_eq!(alone.next_arrival().unwrap(), None);
    }
}
