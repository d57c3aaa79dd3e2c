//! What outlives the process: assignments and learned costs, read when a pool is made and written now and then.

use std::collections::BTreeMap;

use cleave_core::brain::{Event, Order};
use cleave_core::domain::Place;
use cleave_core::sharding::Generation;
use tracing::{info, warn};

use super::Router;
use crate::proxy::pool::Pool;
use crate::proxy::{assignment_file, costs_file};

impl Router {
    /// Goes on from the assignment that an earlier run left.
    pub(super) fn restore(&self, pool: &Pool) {
        let Some(folder) = &self.settings.state_dir else { return };
        let file = self.file_of(folder, "assignment", pool);
        match assignment_file::read(&file) {
            Ok(None) => {}
            Ok(Some(assignment)) => {
                let generation = assignment.generation();
                info!(pool = pool.name, %generation, file = %file.display(), "assignment restored");
                pool.tell(Event::Ordered(Order::Restore { assignment }));
            }
            Err(error) => {
                warn!(pool = pool.name, file = %file.display(), %error, "assignment not restored");
            }
        }
    }

    /// Goes on from what an earlier run has learned of a pool's costs.
    pub(super) fn recall(&self, pool: &Pool) {
        let Some(folder) = &self.settings.state_dir else { return };
        let file = self.file_of(folder, "costs", pool);
        match costs_file::read(&file) {
            Ok(costs) if costs.is_empty() => {}
            Ok(costs) => pool.recall(costs),
            Err(error) => {
                warn!(pool = pool.name, file = %file.display(), %error, "costs not restored");
            }
        }
    }

    /// Writes what was learned of costs since `kept`.
    pub(super) fn keep_costs(&self, kept: &mut BTreeMap<String, u64>) {
        let Some(folder) = &self.settings.state_dir else { return };
        for pool in self.pools.load().iter() {
            let costs = pool.learned_costs();
            let progress = costs_file::progress(&costs);
            if kept.insert(pool.name.clone(), progress).unwrap_or(0) == progress {
                continue;
            }
            let file = self.file_of(folder, "costs", pool);
            if let Err(error) = costs_file::write(&file, costs) {
                warn!(pool = pool.name, file = %file.display(), %error, "costs not kept");
            }
        }
    }

    /// Writes the assignments that have changed since `kept`.
    pub(super) fn keep(&self, kept: &mut BTreeMap<String, Generation>) {
        let Some(folder) = &self.settings.state_dir else { return };
        for pool in self.pools.load().iter() {
            let view = pool.assignment();
            if view.assignment.is_empty() || kept.get(&pool.name) == Some(&view.generation) {
                continue;
            }
            let names = pool.snapshot().replicas.into_iter();
            let names = names.map(|it| (Place::of(&it.name), it.name)).collect();
            let file = self.file_of(folder, "assignment", pool);
            if let Err(error) = assignment_file::write(&file, &view, &names) {
                warn!(pool = pool.name, file = %file.display(), %error, "assignment not kept");
            }
            // Said once for each change, not every few seconds.
            kept.insert(pool.name.clone(), view.generation);
        }
    }
}
