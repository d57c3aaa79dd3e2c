//! Which request goes next? Requests wait here while the fleet is at its knee, where a longer
//! engine queue adds latency and no throughput. The line orders them by class, tenant and deadline.
//! Contracts say which work was promised. The gate admits sessions by the KV they will hold.
//! Nothing here knows a replica or a policy: it sees plain figures, and the caller says what is
//! free.
//!
//! Order is by work, not by count: ten short questions are not the same as ten long documents.

mod bucket;
mod claim;
mod class;
mod cold_demand;
mod contract;
mod drain_rate;
mod fair;
mod gate;
mod line;
mod over;
mod tenant_queue;
mod think_times;
mod work;

pub use bucket::{Allowance, Use};
pub use claim::Claim;
pub use class::{CLASSES_MAX, Class, ClassId, Classes, ClassesError, Weight};
pub use contract::{ContractAccount, ContractUsage, Contracts, Limits, Reservation, Used};
pub use drain_rate::DrainRate;
pub use gate::{Gate, GateAnswer, GateSettings, GateSnapshot};
pub use line::{ClassSnapshot, Full, Lane, Line, QueueLimits, Tenant, Ticket};
pub use over::OverContract;
pub use work::{Work, WorkSum};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
