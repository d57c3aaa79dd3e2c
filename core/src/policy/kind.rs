//! The policies by the names users write, each with the way to make it. A plain value instead of an enum, so
//! that the simulator can add the peers' rules without the router knowing them.

use std::fmt;

use super::Policy;
use super::least_requests::LeastRequests;
use super::power_of_two::PowerOfTwo;
use super::priced::Priced;
use super::random::Random;
use super::round_robin::RoundRobin;
use super::session::Session;

/// A policy that can be chosen.
#[derive(Clone, Copy)]
pub struct PolicyKind {
    name: &'static str,
    make: fn() -> Box<dyn Policy>,
}

impl PolicyKind {
    pub const PRICED: Self = Self::new("priced", || Box::new(Priced::default()));
    pub const SESSION: Self = Self::new("session", || Box::new(Session));
    pub const ROUND_ROBIN: Self = Self::new("round_robin", || Box::new(RoundRobin::default()));
    pub const RANDOM: Self = Self::new("random", || Box::new(Random));
    pub const LEAST_REQUESTS: Self = Self::new("least_requests", || Box::new(LeastRequests));
    pub const POWER_OF_TWO: Self = Self::new("power_of_two", || Box::new(PowerOfTwo));

    /// Those that a router offers.
    pub const SERVED: &'static [Self] = &[
        Self::PRICED,
        Self::SESSION,
        Self::ROUND_ROBIN,
        Self::RANDOM,
        Self::LEAST_REQUESTS,
        Self::POWER_OF_TWO,
    ];

    /// Names a policy; names must differ, because policies are told apart by them.
    pub const fn new(name: &'static str, make: fn() -> Box<dyn Policy>) -> Self {
        Self { name, make }
    }

    pub const fn as_str(self) -> &'static str {
        self.name
    }

    pub fn make(self) -> Box<dyn Policy> {
        (self.make)()
    }

    /// Reads a name that must be one of `choices`.
    pub fn among(choices: &'static [Self], text: &str) -> Result<Self, UnknownPolicy> {
        let found = choices.iter().find(|it| it.name == text);
        found.copied().ok_or(UnknownPolicy { choices })
    }
}

impl PartialEq for PolicyKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for PolicyKind {}

impl fmt::Debug for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The text names no policy that can be chosen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    choices: &'static [PolicyKind],
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown policy; choose one of ")?;
        for (number, kind) in self.choices.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { ", " })?;
            f.write_str(kind.name)?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_offers_only_what_it_serves_and_says_what_that_is() {
        let unknown = PolicyKind::among(PolicyKind::SERVED, "preble").unwrap_err().to_string();
        let six = "priced, session, round_robin, random, least_requests, power_of_two";
        assert_eq!(unknown, format!("unknown policy; choose one of {six}"));
        for kind in PolicyKind::SERVED {
            assert_eq!(PolicyKind::among(PolicyKind::SERVED, kind.as_str()), Ok(*kind));
        }
    }
}
