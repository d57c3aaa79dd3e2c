//! Orders that stand in a pool: given, given again to replicas that come, and told when they are carried out.

use std::sync::{MutexGuard, PoisonError};

use cleave_core::brain::{Event, Order};
use cleave_core::cluster::News;
use cleave_core::domain::Place;

use super::Pool;
use crate::proxy::announce::ordered;
use crate::proxy::orders::{Given, StandingOrders};
use crate::telemetry::Incident;

impl Pool {
    /// Passes an order on, notes it for later, and tells of it.
    pub(in crate::proxy) fn order(&self, order: Order, given: Given) {
        let members = self.members.load();
        let address = |id| members.iter().find(|it| it.id == id).map(|it| it.origin.as_str());
        self.standing().note(&order, |it| address(it).map(str::to_owned), given.clone());
        if let Some(told) = ordered(&self.name, &order, address) {
            self.events.publish(Incident { by: Some(given.by), ..told });
        }
        self.tell(Event::Ordered(order));
    }

    /// The orders that would stand after this one.
    pub(in crate::proxy) fn orders_with(&self, order: &Order, given: Given) -> StandingOrders {
        let members = self.members.load();
        let address = |id| members.iter().find(|it| it.id == id).map(|it| it.origin.to_string());
        let mut standing = self.orders();
        standing.note(order, address, given);
        standing
    }

    /// Notes the orders that hold at all routers, after some were heard; tells whether any is new here.
    pub(in crate::proxy) fn learn_orders(&self) -> bool {
        let (orders, _) = self.lasting();
        let members = self.members.load();
        let address = |place| {
            let found = members.iter().find(|it| Place::of(it.origin.as_str()) == place);
            found.map(|it| it.origin.as_str().to_owned())
        };
        let mut standing = self.standing();
        let mut is_new = false;
        for it in orders {
            if let News::Ordered { order, stamp } = it {
                let given = Given::now(format!("router {}", stamp.router));
                is_new |= standing.learn(&order, address, given);
            }
        }
        is_new
    }

    /// Gives the orders that stand again, to replicas that came.
    pub(in crate::proxy) fn repeat_orders(&self) {
        let orders = self.standing().to_give(|it| self.find(it));
        for order in orders {
            self.tell(Event::Ordered(order));
        }
    }

    /// The orders that stand.
    pub fn orders(&self) -> StandingOrders {
        self.standing().clone()
    }

    pub(in crate::proxy) fn standing(&self) -> MutexGuard<'_, StandingOrders> {
        // Every change is whole.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells that a drained replica has finished all it had.
    pub(in crate::proxy) fn tell_drained(&self, replica: &str) {
        let (pool, replica) = (Some(self.name.clone()), Some(replica.to_owned()));
        self.events.publish(Incident {
            kind: "replica",
            pool,
            replica,
            state: "drained",
            ..Incident::default()
        });
    }
}
