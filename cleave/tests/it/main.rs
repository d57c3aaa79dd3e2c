//! The router as its users meet it: `cleave serve` as a real process, in front of mock replicas that
//! are real processes too, or of scripted ones that misbehave byte by byte. Nothing here sleeps for
//! luck: a test waits for what it needs to see, under a deadline, and orders what it does by that.
#![cfg(test)]

mod support;

mod any_router;
mod bytes;
mod certificates;
mod cluster;
mod cluster_tls;
mod dashboards;
mod discovery;
mod engines;
mod events;
mod explain;
mod failures;
mod guide;
mod hostile;
mod kept;
mod kubernetes;
mod line;
mod load;
mod metrics;
mod orders;
mod page;
mod priced;
mod record;
mod reload;
mod restart;
mod scaling;
mod sessions;
mod store;
mod store_kubernetes;
mod subsets;
mod tenants;
mod top;
mod traces;
