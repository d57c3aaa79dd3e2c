//! Who goes next? Requests wait here while the fleet is at its knee, where a longer engine queue adds
//! latency and no throughput. The line orders them by class, tenant and deadline; contracts say whose
//! work was promised; the gate admits sessions by the KV they will hold. Nothing here knows a replica
//! or a policy: it sees plain figures, and whoever asks says what is free.
//!
//! Order is by work, not by count: ten short questions are not the same as ten long documents.

mod bucket;
mod claim;
mod class;
mod contract;
mod fair;
mod gate;
mod line;
mod pace;
mod shelf;
mod think;
mod work;

pub use bucket::{Allowance, Use};
pub use claim::Claim;
pub use class::{CLASSES_MAX, Class, ClassId, Classes, ClassesError, Weight};
pub use contract::{Account, Contracts, Limits, OverContract, Reservation, Usage, Used};
pub use gate::{Gate, GateAnswer, GateSettings, GateSnapshot};
pub use line::{ClassSnapshot, Full, Lane, Line, LineSettings, Tenant, Ticket};
pub use pace::Pace;
pub use work::{Work, WorkSum};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
