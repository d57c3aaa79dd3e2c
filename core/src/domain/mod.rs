//! Ids, quantities and moments: the nouns every room shares. No behaviour lives here beyond
//! arithmetic that keeps units apart.

mod chain;
mod extent;
mod hex;
mod ids;
mod moment;
mod numbers;
mod outline;
mod process_age;
mod promise;
mod report;
mod usage;

pub use chain::PromptTail;
pub use extent::Extent;
pub use hex::HexDigits;
pub use ids::{Place, ReplicaId, RequestId, RouterId, SliceKey};
pub use moment::Moment;
pub use numbers::{float, span_ms, span_of_ms, whole, whole_u32};
pub use outline::Outline;
pub use process_age::ProcessAge;
pub use promise::Promise;
pub use report::Report;
pub use usage::Usage;

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A number of tokens of some model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(pub u32);

impl Tokens {
    pub const ZERO: Self = Self(0);
}

impl Add for Tokens {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Tokens {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
