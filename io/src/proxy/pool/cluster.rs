//! What a pool hears of other routers, and all that it has to tell them.

use std::sync::Arc;

use cleave_core::brain::Event;
use cleave_core::cluster::News;
use cleave_core::domain::RouterId;
use cleave_core::sharding::Assignment;
use twox_hash::XxHash3_64;

use super::Pool;

impl Pool {
    /// Names the pool to other routers.
    pub const fn key(&self) -> u64 {
        self.key
    }

    pub(super) fn key_of(name: &str) -> u64 {
        XxHash3_64::oneshot(name.as_bytes())
    }

    /// Takes in what another router told.
    pub fn on_heard(&self, router: RouterId, news: Vec<News>, is_whole: bool) {
        self.tell(Event::Heard { router, news, is_whole });
    }

    /// Takes in that another router is gone.
    pub fn on_parted(&self, router: RouterId, is_lost: bool) {
        self.tell(Event::Parted { router, is_lost });
    }

    /// Lists everything that a router must be told that knows nothing.
    pub fn whole(&self) -> Vec<News> {
        let mut all =
            self.think(|brain_state, now| brain_state.brain.whole(now)).unwrap_or_default();
        // One that leads from its start on goes on from there.
        all.extend(self.scale.sized().map(News::Found));
        all
    }

    /// Lists what outlives all routers where they have a store: the orders of all, and the plan.
    pub fn lasting(&self) -> (Vec<News>, Arc<Assignment>) {
        self.look(|brain, _| brain.lasting())
    }

    /// Counts the requests that each other router has in flight here.
    pub fn heard_in_flight(&self) -> Vec<(RouterId, usize)> {
        self.look(|brain, _| brain.heard_in_flight())
    }
}
