//! The operators' port: health, state, metrics. On an address of its own, loopback unless told
//! otherwise, so that no client of the data plane can reach it by mistake.

mod assignment;
mod door;
mod events;
mod explain;
mod load;
mod seats;
mod server;
mod settings;
mod status;
mod tenants;

pub use assignment::{
    Assignments, BalanceFigures, ChurnFigures, HotKey, PoolAssignment, SliceFigures,
    WorkloadFigures,
};
pub use explain::{Candidate, Explained, LineSeen, OutcomeSeen, Terms, Try, WhatIf};
pub use load::{Booked, Load, PoolLoad, ReplicaFigures, ReportFigures};
pub use seats::SEATS;
pub use server::{AdminBindError, AdminServer};
pub use settings::{AdminSettings, Secret};
pub use status::{ClassStatus, PoolStatus, QueueStatus, ReplicaStatus, Status};
pub use tenants::{Figures, PoolTenants, TenantFigures, TenantList, Used};
