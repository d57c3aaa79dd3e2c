//! Samples of how requests fare, taken while the router runs.

use super::Router;

impl Router {
    /// Writes down what happened since the last sample.
    pub(super) fn sample_flow(&self) {
        self.flow.expire();
        for pool in self.pools.load().iter() {
            let live = pool.live();
            let now = (live.requests_in_flight, live.waiting);
            self.flow.add(&pool.name, pool.flow.take(), now, live.sessions_moved);
            pool.members().iter().for_each(|it| it.flow.sample());
        }
    }
}
