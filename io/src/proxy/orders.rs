//! Orders of operators that stand: which replicas are drained, which workloads pinned, whether the
//! assignment is frozen, and by whose token and when each was given. They are kept in a file beside the
//! assignment, by the replicas' addresses, so that a reload, a successor and a restart go on with them.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use cleave_core::brain::Order;
use cleave_core::domain::{Place, ReplicaId};
use serde::{Deserialize, Serialize};

/// By which token an order was given, and when, in UTC as RFC 3339 writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    pub by: String,
    pub at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pin {
    replicas: Vec<String>,
    #[serde(flatten)]
    given: Given,
}

/// The orders of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StandingOrders {
    pub frozen: Option<Given>,
    /// By address.
    pub drained: BTreeMap<String, Given>,
    /// By workload, in eight hexadecimal digits.
    pinned: BTreeMap<String, Pin>,
}

impl StandingOrders {
    pub(super) fn is_empty(&self) -> bool {
        self.frozen.is_none() && self.drained.is_empty() && self.pinned.is_empty()
    }

    /// Notes an order, or takes one back; `address` names replicas.
    pub(super) fn note(
        &mut self,
        order: &Order,
        address: impl Fn(ReplicaId) -> Option<String>,
        given: Given,
    ) {
        match order {
            Order::Freeze => self.frozen = Some(given),
            Order::Unfreeze => self.frozen = None,
            Order::Drain { replica } => {
                self.drained.extend(address(*replica).map(|it| (it, given)));
            }
            Order::Undrain { replica } => {
                self.drained.retain(|it, _| address(*replica).as_ref() != Some(it));
            }
            Order::Pin { workload, replicas } => {
                let workload = format!("{workload:08x}");
                let replicas: Vec<String> = replicas.iter().filter_map(|it| address(*it)).collect();
                if replicas.is_empty() {
                    self.pinned.remove(&workload);
                } else {
                    self.pinned.insert(workload, Pin { replicas, given });
                }
            }
            Order::Forget { place } => {
                self.drained.retain(|it, _| Place::of(it) != *place);
            }
            Order::Zone { .. } | Order::Restore { .. } => {}
        }
    }

    /// Lists what a brain must be told, as far as the replicas are there.
    pub(super) fn to_give(&self, find: impl Fn(&str) -> Option<ReplicaId>) -> Vec<Order> {
        let frozen = self.frozen.iter().map(|_| Order::Freeze);
        let drained = self.drained.keys().filter_map(|it| find(it));
        let pinned = self.pinned.iter().filter_map(|(workload, pin)| {
            let workload = u32::from_str_radix(workload, 16).ok()?;
            let replicas: Vec<ReplicaId> = pin.replicas.iter().filter_map(|it| find(it)).collect();
            (!replicas.is_empty()).then_some(Order::Pin { workload, replicas })
        });
        frozen.chain(drained.map(|replica| Order::Drain { replica })).chain(pinned).collect()
    }
}

/// Reads the orders of an earlier run; none when there is no file.
pub(super) fn read(file: &Path) -> io::Result<StandingOrders> {
    match fs::read(file) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(StandingOrders::default()),
        Err(error) => Err(error),
    }
}

/// Writes them, beside the file first, so that a crash leaves the old ones whole.
pub(super) fn write(file: &Path, orders: &StandingOrders) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = file.with_extension("new");
    fs::write(&beside, serde_json::to_vec_pretty(orders)?)?;
    fs::rename(&beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(by: &str) -> Given {
        Given { by: by.to_owned(), at: "2026-01-01T00:00:00Z".to_owned() }
    }

    #[test]
    fn what_was_ordered_is_given_again_to_the_replicas_that_are_there() {
        let address = |it: ReplicaId| Some(format!("http://gpu-{}:8000", it.0));
        let mut orders = StandingOrders::default();
        let replica = ReplicaId(1);
        let pin = Order::Pin { workload: 0x1a, replicas: vec![ReplicaId(2), ReplicaId(3)] };
        for order in [Order::Freeze, Order::Drain { replica }, pin] {
            orders.note(&order, address, given("alice"));
        }
        let text = serde_json::to_string(&orders).unwrap();
        assert_eq!(serde_json::from_str::<StandingOrders>(&text).unwrap(), orders);
        // After a restart the same addresses have other numbers, and one is not there.
        let find = |it: &str| match it {
            "http://gpu-1:8000" => Some(ReplicaId(7)),
            "http://gpu-3:8000" => Some(ReplicaId(8)),
            _ => None,
        };
        let want = [
            Order::Freeze,
            Order::Drain { replica: ReplicaId(7) },
            Order::Pin { workload: 0x1a, replicas: vec![ReplicaId(8)] },
        ];
        assert_eq!(orders.to_give(find), want);
        assert_eq!(orders.drained["http://gpu-1:8000"].by, "alice");
        let unpin = Order::Pin { workload: 0x1a, replicas: Vec::new() };
        for order in [Order::Unfreeze, Order::Undrain { replica }, unpin] {
            orders.note(&order, address, given("bob"));
        }
        assert!(orders.is_empty());
    }
}
