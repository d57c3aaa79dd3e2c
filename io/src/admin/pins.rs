//! The pins that stand, each with the token that ordered it and the time: also of workloads that are quiet, which no other list has.

use serde::Serialize;

use crate::proxy::{Given, Pin, Pool, Router};

/// One pin.
#[derive(Clone, Debug, Serialize)]
pub struct PinFigures {
    /// The workload half of its keys.
    pub workload: String,
    /// Its tenant and its model, where both are known.
    pub name: Option<String>,
    /// By address, those that are not there at present among them.
    pub replicas: Vec<String>,
    #[serde(flatten)]
    pub given: Given,
}

/// Lists the pins of a pool.
pub(super) fn pins_of(router: &Router, pool: &Pool) -> Vec<PinFigures> {
    let pinned = pool.orders().pinned;
    if pinned.is_empty() {
        return Vec::new();
    }
    let names = router.workload_names(pool);
    let name = |workload: &str| names.find(u32::from_str_radix(workload, 16).ok()?);
    let pin = |(workload, pin): (String, Pin)| PinFigures {
        name: name(&workload).map(str::to_owned),
        replicas: pin.replicas,
        given: pin.given,
        workload,
    };
    pinned.into_iter().map(pin).collect()
}
