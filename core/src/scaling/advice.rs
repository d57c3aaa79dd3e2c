//! What a scaler says: how many replicas there should be, why, and every figure that led there.

use std::fmt;
use std::time::Duration;

/// How many replicas a pool should have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advice {
    /// Replicas that should be there, those that start and those that are out among them.
    pub wanted: usize,
    pub reason: ScaleReason,
    pub terms: ScaleTerms,
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleReason {
    /// The work that is forecast for when a replica asked for now would be ready.
    Forecast,
    /// The work that waits and was refused.
    Backlog,
    /// The KV of live sessions.
    Memory,
    /// The floor by subsets and zones.
    Floor,
    /// There is nothing to do, or less than the fewest replicas do.
    Minimum,
    /// There are as many as there should be.
    Steady,
    /// There are more than needed, and the last change is too short ago.
    CoolingDown,
    /// There are more than needed, and some that were asked for are not ready yet.
    Starting,
    /// More are needed than may be.
    MaxReached,
    /// It is not known what a replica can do.
    CapacityUnknown,
    /// Figures could not be had.
    DataMissing,
    /// The engines' reports no longer change.
    ReportsFrozen,
    /// Replicas are out, and none is taken away until they are back.
    Fault,
    /// Half of the replicas or more are out: more of them would not help against what took these.
    HalfOut,
    /// What tenants ask for beyond their contracts would need more replicas, and buys none.
    ContractExceeded,
    /// Replicas were asked for and did not come in twice the time that one takes.
    NotComing,
}

impl ScaleReason {
    /// In the order of the numbers by which routers tell each other.
    pub const ALL: [Self; 16] = [
        Self::Forecast,
        Self::Backlog,
        Self::Memory,
        Self::Floor,
        Self::Minimum,
        Self::Steady,
        Self::CoolingDown,
        Self::Starting,
        Self::MaxReached,
        Self::CapacityUnknown,
        Self::DataMissing,
        Self::ReportsFrozen,
        Self::Fault,
        Self::HalfOut,
        Self::ContractExceeded,
        Self::NotComing,
    ];

    /// The word for it in JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forecast => "forecast",
            Self::Backlog => "backlog",
            Self::Memory => "memory",
            Self::Floor => "floor",
            Self::Minimum => "minimum",
            Self::Steady => "steady",
            Self::CoolingDown => "cooling_down",
            Self::Starting => "starting",
            Self::MaxReached => "max_reached",
            Self::CapacityUnknown => "capacity_unknown",
            Self::DataMissing => "data_missing",
            Self::ReportsFrozen => "reports_frozen",
            Self::Fault => "fault",
            Self::HalfOut => "half_out",
            Self::ContractExceeded => "contract_exceeded",
            Self::NotComing => "not_coming",
        }
    }
}

/// One sentence for operators.
impl fmt::Display for ScaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forecast => "the work forecast for when a new replica would be ready needs this many",
            Self::Backlog => "work waits or was refused, and this many clear it",
            Self::Memory => "the KV cache of live sessions needs this many",
            Self::Floor => "subsets and zones need this many",
            Self::Minimum => "there is no more to do than the minimum can do",
            Self::Steady => "there are as many as there should be",
            Self::CoolingDown => "fewer would do, but the last change is too short ago",
            Self::Starting => "fewer would do, but replicas that were asked for are not ready yet",
            Self::MaxReached => "more are needed than `max` allows: raise it, or requests will wait and be refused",
            Self::CapacityUnknown => {
                "what a replica can do is not known until one has served: the number stays as it is"
            }
            Self::DataMissing => "figures are missing: none is taken away until they are back",
            Self::ReportsFrozen => {
                "the engines' reports no longer change: none is taken away until they do"
            }
            Self::Fault => "replicas are out: none is taken away until they are back",
            Self::HalfOut => {
                "half of the replicas or more are out: the number stays as it is until the cause is found"
            }
            Self::ContractExceeded => {
                "tenants ask for more than their contracts give them, which buys no replicas"
            }
            Self::NotComing => {
                "replicas were asked for and did not come in twice the usual time: look at what starts them"
            }
        })
    }
}

/// The figures behind an advice, term by term.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScaleTerms {
    /// Model units a minute that come now.
    pub demand_mu_per_min: f64,
    /// How far above the forecast the work may be, as far as forecasts were wrong lately.
    pub spread_mu_per_min: f64,
    /// What is forecast for now + start-up time, the spread included.
    pub forecast_mu_per_min: f64,
    /// What waits now, and what was refused lately and may come again.
    pub held_mu: f64,
    pub refused_mu: f64,
    /// What tenants ask for beyond their contracts, a minute.
    pub beyond_contract_mu_per_min: f64,
    pub capacity_mu_per_min: Option<f64>,
    pub kv_tokens_needed: u64,
    pub kv_tokens_per_replica: Option<u64>,
    /// Replicas that each term alone would need.
    pub by_demand: usize,
    pub by_backlog: usize,
    pub by_memory: usize,
    pub floor: usize,
    /// Replicas that would do when more are there, by the longer look ahead that letting go takes.
    pub enough: usize,
    pub ready: usize,
    pub starting: usize,
    pub unhealthy: usize,
    /// Replicas that were asked for, are not ready and may still come.
    pub coming: usize,
    /// Replicas that were asked for and have not come in twice the start-up time.
    pub overdue: usize,
    pub start_up: Duration,
    /// When the next replica may be taken away, from now.
    pub cool_down_left: Duration,
}
