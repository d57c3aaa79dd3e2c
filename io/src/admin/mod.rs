//! The operators' port: health, state, metrics. On an address of its own, loopback unless told
//! otherwise, so that no client of the data plane can reach it by mistake.

mod asking;
mod assignment;
mod costs;
mod events;
mod explain;
mod keda;
mod load;
mod origin;
mod page;
mod pins;
mod record;
mod routers;
mod scale;
mod server;
mod settings;
mod slots;
mod status;
mod tenants;
mod tokens;
mod what_if;

pub use asking::answer_other_routers;
pub use assignment::{
    Assignments, BalanceFigures, ChurnFigures, HotKey, PoolAssignment, SliceFigures,
    WorkloadFigures,
};
pub use costs::{CostErrors, CostFigures};
pub use explain::{
    Candidate, ContractSeen, Explained, LifeStage, LineSeen, OutcomeSeen, RouterShare, Terms, Try,
    WhatIf,
};
pub use keda::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, KedaServer,
    MetricSpec, MetricValue, ScaledObjectRef,
};
pub use load::{Booked, ElsewhereFigures, Load, PoolLoad, ReplicaFigures, ReportFigures};
pub use pins::PinFigures;
pub use routers::{RouterFigures, RouterList, StandingFigures, StoreFigures};
pub use scale::{NeededReplicas, PointFigures, PoolScale, ScaleList, ScaleTerms, StepFigures};
pub use server::{AdminBindError, AdminServer};
pub use settings::{AdminSettings, AdminToken, Secret};
pub use slots::SLOTS_MAX;
pub use status::{ClassStatus, PoolStatus, QueueStatus, ReplicaStatus, Status};
pub use tenants::{Figures, PoolTenants, RouterUse, TenantFigures, TenantList, Used};
