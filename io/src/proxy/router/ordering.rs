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
use crate::proxy::orders::{self, Given, StagedOrders, StandingOrders};
use crate::proxy::pool::Pool;
use crate::proxy::scale::LedSize;
use crate::telemetry::{AuditEntry, Incident};

/// A store speaks as a router that leaves at once; no router draws this id.
const STORE: RouterId = RouterId(0);

/// An order that could not be written down, and was not carried out.
#[derive(Debug, thiserror::Error)]
#[error(
    "not_audited: the order could not be written to the audit file {}, so it is refused and not in force: {error}; \
     make room there, or let the router write it",
    file.display()
)]
pub struct NotAudited {
    file: PathBuf,
    error: io::Error,
}

/// An order that a restart would forget, and that was not carried out.
#[derive(Debug, thiserror::Error)]
#[error(
    "not_kept: the order could not be written to {}, so it is refused and not in force: {error}; make room there, or set \
     subsets.state_dir to a folder that the router can write, and restart",
    file.display()
)]
pub struct NotKept {
    file: PathBuf,
    error: io::Error,
}

/// An order that takes another one back, and that a restart would forget. It is in force: what it gives back may be
/// needed while the disk is full.
#[derive(Debug, thiserror::Error)]
#[error(
    "not_kept: the order is in force, but could not be written to {}: {}; a restart brings back the order that it \
     takes back: make room there, and give it again", .0.file.display(), .0.error
)]
pub struct OnlyInForce(NotKept);

/// Why an order is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum NotOrdered {
    #[error(transparent)]
    NotAudited(#[from] NotAudited),
    #[error(transparent)]
    NotKept(#[from] NotKept),
}

impl Router {
    /// Carries out an order about a pool, given by the token of that name. One that cannot be written down, or that a
    /// restart would forget, is not carried out; one that takes another back is carried out also where a restart would
    /// forget it, and says so.
    pub fn order(
        &self,
        pool: &Pool,
        order: Order,
        by: &str,
    ) -> Result<Option<OnlyInForce>, NotOrdered> {
        let Some(entry) = audit_entry(pool, &order, by) else { return Ok(None) };
        let given = Given::now(by.to_owned());
        let orders = pool.orders_with(&order, given.clone());
        // On the disk before it is in the audit file, which is to have no order that is refused.
        let staged = match self.stage(pool, &orders) {
            Err(error) if !takes_back(&order) => {
                return Err(self.told(error, &entry, false).into());
            }
            staged => staged,
        };
        self.write_down(&entry)?;
        let kept = staged.and_then(|staged| {
            let placed = staged.map_or(Ok(()), StagedOrders::put_in_place);
            placed.map_err(|error| self.not_kept(pool, error))
        });
        let only_in_force = match kept.map_err(|it| self.told(it, &entry, takes_back(&order))) {
            Ok(()) => None,
            Err(error) if takes_back(&order) => Some(OnlyInForce(error)),
            Err(error) => {
                _ = self.audit.write(&AuditEntry {
                    order: "not kept",
                    of: Some(words(&entry)),
                    ..entry
                });
                return Err(error.into());
            }
        };
        pool.order(order, given);
        Ok(only_in_force)
    }

    /// Carries out an order of the one that sizes the pool. It is in force also where it cannot be kept: after a restart
    /// the pool is sized anew.
    pub fn order_for_size(&self, pool: &Pool, order: Order, by: &str) -> Result<(), NotAudited> {
        let Some(entry) = audit_entry(pool, &order, by) else { return Ok(()) };
        self.write_down(&entry)?;
        pool.order(order, Given::now(by.to_owned()));
        self.keep_orders(pool, &entry);
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
            // An audit log without a file never fails.
            NotAudited { file: self.settings.audit_file.clone().unwrap_or_default(), error }
        })
    }

    pub(super) fn file_of(&self, folder: &Path, kind: &str, pool: &Pool) -> PathBuf {
        assignment_file::file_of(folder, kind, self.settings.listen.port(), &pool.name)
    }

    /// Writes orders of a pool beside those that are kept; nothing where none are.
    fn stage(&self, pool: &Pool, orders: &StandingOrders) -> Result<Option<StagedOrders>, NotKept> {
        let Some(folder) = &self.settings.state_dir else { return Ok(None) };
        let staged = StagedOrders::write(&self.file_of(folder, "orders", pool), orders);
        staged.map(Some).map_err(|error| self.not_kept(pool, error))
    }

    /// Writes the orders of a pool that are in force already, so that a restart goes on with them.
    fn keep_orders(&self, pool: &Pool, last: &AuditEntry<'_>) {
        let kept = self.stage(pool, &pool.orders()).and_then(|staged| {
            let placed = staged.map_or(Ok(()), StagedOrders::put_in_place);
            placed.map_err(|error| self.not_kept(pool, error))
        });
        if let Err(error) = kept {
            self.told(error, last, true);
        }
    }

    fn not_kept(&self, pool: &Pool, error: io::Error) -> NotKept {
        // Without a folder nothing is written.
        let folder = self.settings.state_dir.as_deref().unwrap_or(Path::new(""));
        NotKept { file: self.file_of(folder, "orders", pool), error }
    }

    /// Tells operators of an order that is not kept.
    fn told(&self, not_kept: NotKept, order: &AuditEntry<'_>, is_in_force: bool) -> NotKept {
        let outcome = if is_in_force { "in force until a restart" } else { "refused" };
        self.events.publish(Incident {
            kind: "order",
            state: "not_kept",
            pool: order.pool.map(str::to_owned),
            by: Some(order.by.to_owned()),
            detail: Some(format!(
                "{}: {outcome}: {}: {}",
                words(order),
                not_kept.file.display(),
                not_kept.error
            )),
            alert: true,
            ..Incident::default()
        });
        not_kept
    }

    /// Takes in what another router told of a pool, and keeps the orders among it as its own.
    pub(super) fn on_pool_heard(
        &self,
        pool: &Pool,
        (router, news, is_whole): (RouterId, Vec<News>, bool),
    ) {
        let has_orders = news.iter().any(|it| matches!(it, News::Ordered { .. }));
        let by = format!("router {router}");
        let sized = news.iter().rev().find_map(|it| {
            let News::Found(FoundOut::Sized { replicas, reason }) = it else { return None };
            Some((*replicas, *reason))
        });
        if let Some((replicas, reason)) = sized {
            pool.scale.on_told(LedSize { router, at: pool.now(), replicas, reason });
        }
        pool.on_heard(router, news, is_whole);
        if has_orders && pool.learn_orders() {
            let heard = AuditEntry { by: &by, order: "heard", pool: Some(&pool.name), of: None };
            self.keep_orders(pool, &heard);
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

/// Tells whether an order takes another one back.
fn takes_back(order: &Order) -> bool {
    match order {
        Order::Unfreeze | Order::Undrain { .. } => true,
        Order::Pin { replicas, .. } => replicas.is_empty(),
        Order::Freeze
        | Order::Drain { .. }
        | Order::Forget { .. }
        | Order::Zone { .. }
        | Order::Restore { .. } => false,
    }
}

/// Says of an order what the audit file is to have; nothing of what the router orders by itself.
fn audit_entry<'a>(pool: &'a Pool, order: &Order, by: &'a str) -> Option<AuditEntry<'a>> {
    let address = |id| {
        let members = pool.members();
        members.iter().find(|it| it.id == id).map(|it| it.origin.as_str().to_owned())
    };
    let (word, of) = match order {
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
        Order::Forget { .. } | Order::Zone { .. } | Order::Restore { .. } => return None,
    };
    Some(AuditEntry { by, order: word, pool: Some(&pool.name), of })
}

/// Names an order with what it is about.
fn words(order: &AuditEntry<'_>) -> String {
    let of = order.of.iter().map(String::as_str);
    [order.order].into_iter().chain(of).collect::<Vec<_>>().join(" ")
}
