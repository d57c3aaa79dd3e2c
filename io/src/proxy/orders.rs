//! Orders of operators that stand: which replicas are drained, which workloads pinned, whether the
//! assignment is frozen, and by whose token and when each was given. They are kept in a file beside the
//! assignment, by the replicas' addresses, so that a reload, a successor and a restart go on with them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use cleave_core::brain::Order;
use cleave_core::cluster::SharedOrder;
use cleave_core::domain::{Place, ReplicaId};
use serde::{Deserialize, Serialize};

/// By which token an order was given, and when, in UTC as RFC 3339 writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    pub by: String,
    pub at: String,
}

impl Given {
    /// By this token, at this moment.
    pub(super) fn now(by: String) -> Self {
        let at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Self { by, at }
    }
}

/// Which replicas, by address, a workload was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub replicas: Vec<String>,
    #[serde(flatten)]
    pub given: Given,
}

/// The orders of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StandingOrders {
    pub frozen: Option<Given>,
    /// By address.
    pub drained: BTreeMap<String, Given>,
    /// By workload, in eight hexadecimal digits.
    pub pinned: BTreeMap<String, Pin>,
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

    /// Notes an order that holds at all routers; `address` names replicas by their places. Tells whether it is new here.
    pub(super) fn learn(
        &mut self,
        order: &SharedOrder,
        address: impl Fn(Place) -> Option<String>,
        given: Given,
    ) -> bool {
        match order {
            SharedOrder::Freeze { is_on } => {
                let is_new = self.frozen.is_some() != *is_on;
                if is_new {
                    self.frozen = is_on.then_some(given);
                }
                is_new
            }
            SharedOrder::Drain { replica, is_on } => {
                let Some(address) = address(*replica) else { return false };
                let is_new = self.drained.contains_key(&address) != *is_on;
                if is_new && *is_on {
                    self.drained.insert(address, given);
                } else if is_new {
                    self.drained.remove(&address);
                }
                is_new
            }
            SharedOrder::Pin { workload, replicas } => {
                let workload = format!("{workload:08x}");
                let replicas: Vec<String> = replicas.iter().filter_map(|it| address(*it)).collect();
                let known = self.pinned.get(&workload).map_or(&[][..], |it| &it.replicas);
                let is_new = known != replicas;
                if is_new && replicas.is_empty() {
                    self.pinned.remove(&workload);
                } else if is_new {
                    self.pinned.insert(workload, Pin { replicas, given });
                }
                is_new
            }
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

/// Orders that are on the disk beside their file: what could go wrong with a full disk has not. Dropped, they are
/// gone again.
#[must_use = "they do not hold until they are put in place"]
#[derive(Debug)]
pub(super) struct StagedOrders {
    beside: PathBuf,
    file: PathBuf,
    is_placed: bool,
}

impl StagedOrders {
    /// Writes orders beside their file, so that a crash leaves the old ones whole. They outlast the process, not the loss
    /// of power: that would need a sync, and a slow disk would stall the thread, which accepts and probes too. A full
    /// disk is told by the write.
    pub(super) fn write(file: &Path, orders: &StandingOrders) -> io::Result<Self> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        // A router and its successor may both write orders of the same pool at the same time.
        let beside = file.with_extension(format!("{}.new", std::process::id()));
        let staged = Self { beside, file: file.to_owned(), is_placed: false };
        let mut written = fs::File::create(&staged.beside)?;
        written.write_all(&serde_json::to_vec_pretty(orders)?)?;
        Ok(staged)
    }

    /// Puts them in place of the orders before.
    pub(super) fn put_in_place(mut self) -> io::Result<()> {
        fs::rename(&self.beside, &self.file)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for StagedOrders {
    fn drop(&mut self) {
        if !self.is_placed {
            _ = fs::remove_file(&self.beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(by: &str) -> Given {
        Given { by: by.to_owned(), at: "2026-01-01T00:00:00Z".to_owned() }
    }

    #[test]
    fn orders_that_are_not_put_in_place_leave_the_old_ones_and_nothing_beside_them() {
        let folder = std::env::temp_dir().join(format!("cleave-orders-{}", std::process::id()));
        let file = folder.join("orders-8080-a.json");
        assert!(read(&file).unwrap().is_empty());
        let frozen = StandingOrders { frozen: Some(given("alice")), ..StandingOrders::default() };
        StagedOrders::write(&file, &frozen).unwrap().put_in_place().unwrap();
        assert_eq!(read(&file).unwrap(), frozen);
        drop(StagedOrders::write(&file, &StandingOrders::default()).unwrap());
        assert_eq!(read(&file).unwrap(), frozen, "the order was refused");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        // Another process is about to put its orders in place: neither is in the other's way.
        let other = file.with_extension("new");
        fs::write(&other, "{}").unwrap();
        StagedOrders::write(&file, &frozen).unwrap().put_in_place().unwrap();
        drop(StagedOrders::write(&file, &frozen).unwrap());
        assert_eq!(fs::read_to_string(&other).unwrap(), "{}");
        // A file where a folder should be: nothing can be written there.
        assert!(StagedOrders::write(&file.join("x.json"), &frozen).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_holds_at_all_routers_is_noted_once() {
        let place = |number| Place::of(&format!("http://gpu-{number}:8000"));
        let address = |it: Place| (it == place(1)).then(|| "http://gpu-1:8000".to_owned());
        let mut orders = StandingOrders::default();
        let drain = |number, is_on| SharedOrder::Drain { replica: place(number), is_on };
        assert!(orders.learn(&drain(1, true), address, given("router 1")));
        assert!(!orders.learn(&drain(1, true), address, given("router 2")));
        assert!(!orders.learn(&drain(2, true), address, given("router 2")), "it is not here");
        assert_eq!(orders.drained["http://gpu-1:8000"].by, "router 1");
        let pin = |replicas| SharedOrder::Pin { workload: 0x1a, replicas };
        assert!(orders.learn(&pin(vec![place(1)]), address, given("a")));
        assert!(orders.learn(&SharedOrder::Freeze { is_on: true }, address, given("a")));
        assert!(!orders.learn(&pin(vec![place(1)]), address, given("a")));
        for order in [drain(1, false), pin(Vec::new()), SharedOrder::Freeze { is_on: false }] {
            assert!(orders.learn(&order, address, given("b")));
        }
        assert!(orders.is_empty());
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
        // As files have it since there are any.
        let pinned = r#""pinned":{"0000001a":{"replicas":["http://gpu-2:8000","http://gpu-3:8000"],"by":"alice","at":"2026-01-01T00:00:00Z"}}"#;
        assert!(text.contains(pinned), "{text}");
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
