//! The policies by the names users write.

use std::fmt;
use std::str::FromStr;

use super::PolicyName;

impl PolicyName {
    /// Those for serving. The others are for the simulator: they are peers' rules to measure against.
    pub const SERVED: &'static [Self] = &[
        Self::Priced,
        Self::Session,
        Self::RoundRobin,
        Self::Random,
        Self::LeastRequests,
        Self::PowerOfTwo,
    ];

    /// Reads a name that must be one of `choices`.
    pub fn among(choices: &'static [Self], text: &str) -> Result<Self, UnknownPolicy> {
        let found = choices.iter().find(|it| it.as_str() == text);
        found.copied().ok_or(UnknownPolicy { choices })
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
        Self::among(Self::ALL, text)
    }
}

/// The text names no policy that can be chosen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    choices: &'static [PolicyName],
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown policy; choose one of ")?;
        for (number, name) in self.choices.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { ", " })?;
            f.write_str(name.as_str())?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_is_told_to_who_misspells_one() {
        let unknown = "sticky".parse::<PolicyName>().unwrap_err().to_string();
        for name in PolicyName::ALL {
            assert_eq!(name.as_str().parse(), Ok(*name));
            assert!(unknown.contains(name.as_str()), "{unknown}");
        }
    }

    #[test]
    fn who_serves_is_offered_only_what_serves() {
        let unknown = PolicyName::among(PolicyName::SERVED, "preble").unwrap_err().to_string();
        let six = "priced, session, round_robin, random, least_requests, power_of_two";
        assert_eq!(unknown, format!("unknown policy; choose one of {six}"));
        assert_eq!(PolicyName::among(PolicyName::SERVED, "session"), Ok(PolicyName::Session));
    }
}
