//! Do all tenants wait? Shares say something about fairness only while every tenant wants more than
//! it gets; otherwise they say what the tenants asked for.

use std::collections::BTreeMap;

use crate::traces::Tenant;

/// How many requests of each tenant have arrived and were not sent anywhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Backlog {
    waiting: BTreeMap<Tenant, u64>,
    /// Tenants of which nothing waits.
    idle: usize,
}

impl Backlog {
    pub(super) fn on_arrival(&mut self, tenant: Tenant) {
        let idle = &mut self.idle;
        let waiting = self.waiting.entry(tenant).or_insert_with(|| {
            *idle += 1;
            0
        });
        self.idle -= usize::from(*waiting == 0);
        *waiting += 1;
    }

    /// Notes that one was sent, or refused instead.
    pub(super) fn on_left(&mut self, tenant: Tenant) {
        let Some(waiting) = self.waiting.get_mut(&tenant).filter(|it| 0 < **it) else { return };
        *waiting -= 1;
        self.idle += usize::from(*waiting == 0);
    }

    /// Tells whether there are several tenants and something of each waits.
    pub(super) fn is_everybodys(&self) -> bool {
        1 < self.waiting.len() && self.idle == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_everybodys_while_something_of_each_waits() {
        let mut backlog = Backlog::default();
        backlog.on_arrival(Tenant(1));
        assert!(!backlog.is_everybodys(), "there is only one");
        backlog.on_arrival(Tenant(2));
        backlog.on_arrival(Tenant(2));
        assert!(backlog.is_everybodys());
        backlog.on_left(Tenant(2));
        assert!(backlog.is_everybodys());
        backlog.on_left(Tenant(2));
        backlog.on_left(Tenant(2));
        assert!(!backlog.is_everybodys());
        backlog.on_arrival(Tenant(2));
        assert!(backlog.is_everybodys());
    }
}
