//! Orders of operators: written down, carried out, kept for the next start.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use cleave_core::brain::Order;
use cleave_core::cluster::{FoundOut, News};
use cleave_core::domain::RouterId;
use tracing::{info, warn};

use super::Router;
use crate::proxy::assignment_file;
use crate::proxy::orders;
use crate::proxy::pool::Pool;
use crate::proxy::scale::LedSize;
use crate::telemetry::{AuditEntry, Incident};

/// A store speaks as a router that leaves at once; no router draws this id.
const STORE: RouterId = RouterId(0);

/// An order that could not be written down, and was not carried out.
#[derive(Debug, thiserror::Error)]
#[error("the order could not be written to the audit file, so it is not carried out: {0}")]
pub struct NotAudited(io::Error);

impl Router {
    /// Carries out an order about a pool, given by the token of that name.
    pub fn order(&self, pool: &Pool, order: Order, by: &str) -> Result<(), NotAudited> {
        let address = |id| {
            let members = pool.members();
            members.iter().find(|it| it.id == id).map(|it| it.origin.as_str().to_owned())
        };
        let (word, of) = match &order {
            Order::Freeze => ("freeze", None),
            Order::Unfreeze => ("unfreeze", None),
            Order::Drain { replica } => ("drain", address(*replica)),
            Order::Undrain { replica } => ("undrain", address(*replica)),
            Order::Pin { workload, replicas } => {
                let to: Vec<String> = replicas.iter().filter_map(|it| address(*it)).collect();
                let word = if to.is_empty() { "unpin" } else { "pin" };
                let of = format!("workload {workload:08x} {}", to.join(" "));
                (word, Some(of.trim_end().to_owned()))
            }
            Order::Forget { .. } | Order::Zone { .. } | Order::Restore { .. } => return Ok(()),
        };
        self.write_down(&AuditEntry { by, order: word, pool: Some(&pool.name), of })?;
        pool.order(order, by);
        self.keep_orders(pool);
        Ok(())
    }

    /// Writes down that the configuration was taken on again; `by` is what caused it.
    pub fn on_reload(&self, by: &str) {
        // A configuration is not kept back: keys and certificates may depend on it.
        _ = self.write_down(&AuditEntry { by, order: "reload", pool: None, of: None });
    }

    pub(super) fn write_down(&self, entry: &AuditEntry<'_>) -> Result<(), NotAudited> {
        self.audit.write(entry).map_err(|error| {
            self.events.publish(Incident {
                kind: "order",
                state: "not_audited",
                pool: entry.pool.map(str::to_owned),
                by: Some(entry.by.to_owned()),
                detail: Some(format!("{}: {error}", entry.order)),
                alert: true,
                ..Incident::default()
            });
            NotAudited(error)
        })
    }

    pub(super) fn file_of(&self, folder: &Path, kind: &str, pool: &Pool) -> PathBuf {
        assignment_file::file_of(folder, kind, self.settings.listen.port(), &pool.name)
    }

    /// Writes the orders of a pool, so that a restart goes on with them.
    fn keep_orders(&self, pool: &Pool) {
        let Some(folder) = &self.settings.state_dir else { return };
        let file = self.file_of(folder, "orders", pool);
        if let Err(error) = orders::write(&file, &pool.orders()) {
            warn!(pool = pool.name, file = %file.display(), %error, "orders not kept over a restart");
        }
    }

    /// Takes in what another router told of a pool, and keeps the orders among it as its own.
    pub(super) fn on_pool_heard(
        &self,
        pool: &Pool,
        (router, news, is_whole): (RouterId, Vec<News>, bool),
    ) {
        let has_orders = news.iter().any(|it| matches!(it, News::Ordered { .. }));
        let sized = news.iter().rev().find_map(|it| {
            let News::Found(FoundOut::Sized { replicas, reason }) = it else { return None };
            Some((*replicas, *reason))
        });
        if let Some((replicas, reason)) = sized {
            pool.scale.on_told(LedSize { router, at: pool.now(), replicas, reason });
        }
        pool.on_heard(router, news, is_whole);
        if has_orders && pool.learn_orders() {
            self.keep_orders(pool);
        }
    }

    /// Takes in what a store kept of a pool; later orders and newer plans hold.
    pub fn on_kept(&self, pool: &Pool, news: Vec<News>) {
        self.on_pool_heard(pool, (STORE, news, false));
        pool.on_parted(STORE, false);
    }

    /// Goes on with the orders that an earlier run left; replicas get theirs when they join.
    pub(super) fn restore_orders(&self, pool: &Pool) {
        let Some(folder) = &self.settings.state_dir else { return };
        let file = self.file_of(folder, "orders", pool);
        match orders::read(&file) {
            Ok(standing) if standing.is_empty() => {}
            Ok(standing) => {
                let drained = standing.drained.len();
                info!(pool = pool.name, drained, file = %file.display(), "orders restored");
                *pool.standing() = standing;
                pool.repeat_orders();
            }
            Err(error) => {
                warn!(pool = pool.name, file = %file.display(), %error, "orders not restored");
            }
        }
    }

    /// Tells once of each drained replica that it has finished all it had.
    pub(super) fn notice_drained(&self, told: &mut BTreeSet<(String, String)>) {
        let mut now = BTreeSet::new();
        for pool in self.pools.load().iter() {
            if pool.standing().drained.is_empty() {
                continue;
            }
            for replica in pool.snapshot().replicas {
                if replica.state != "drained" {
                    continue;
                }
                let key = (pool.name.clone(), replica.name);
                if !told.contains(&key) {
                    pool.tell_drained(&key.1);
                }
                now.insert(key);
            }
        }
        *told = now;
    }
}
