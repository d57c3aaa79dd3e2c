//! The policies by the names users write.

use std::fmt;
use std::str::FromStr;

/// Every policy that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyName {
    RoundRobin,
    Random,
    LeastRequests,
    PowerOfTwo,
    Session,
}

impl PolicyName {
    pub const ALL: [Self; 5] =
        [Self::Session, Self::RoundRobin, Self::Random, Self::LeastRequests, Self::PowerOfTwo];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::LeastRequests => "least_requests",
            Self::PowerOfTwo => "power_of_two",
            Self::Session => "session",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|it| it.as_str() == text).ok_or(UnknownPolicy)
    }
}

/// The text names no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy; choose one of session, round_robin, random, least_requests, power_of_two")]
pub struct UnknownPolicy;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_the_error_lists_it() {
        for name in PolicyName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
            assert!(UnknownPolicy.to_string().contains(name.as_str()));
        }
        assert_eq!("sticky".parse::<PolicyName>(), Err(UnknownPolicy));
    }
}
