//! What a request must keep to count as good: `ttft=5s,tpot=80ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Promises about one request; both must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// From arrival to the first token.
    pub ttft: Duration,
    /// Mean time between the tokens of the answer.
    pub tpot: Duration,
}

impl Default for Slo {
    fn default() -> Self {
        Self { ttft: Duration::from_secs(5), tpot: Duration::from_millis(80) }
    }
}

/// The text is no promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no promise; write it as ttft=5s,tpot=80ms (either may be left out)")]
pub struct BadSlo(String);

impl FromStr for Slo {
    type Err = BadSlo;

    fn from_str(text: &str) -> Result<Self, BadSlo> {
        let bad = || BadSlo(text.to_owned());
        let mut slo = Self { ttft: Duration::MAX, tpot: Duration::MAX };
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(bad)?;
            let value = parse_time(value.trim()).ok_or_else(bad)?;
            match name.trim() {
                "ttft" => slo.ttft = value,
                "tpot" => slo.tpot = value,
                _ => return Err(bad()),
            }
        }
        Ok(slo)
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (name, limit) in [("ttft", self.ttft), ("tpot", self.tpot)] {
            if limit != Duration::MAX {
                parts.push(format!("{name}={limit:?}"));
            }
        }
        f.write_str(&parts.join(","))
    }
}

fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|it: char| it.is_ascii_alphabetic())?);
    let seconds_per_unit = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    let seconds: f64 = number.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds * seconds_per_unit).ok().filter(|it| !it.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_read_back() {
        let slo: Slo = "ttft=2.5s,tpot=80ms".parse().unwrap();
        assert_eq!(slo.to_string(), "ttft=2.5s,tpot=80ms");
        assert_eq!("tpot=1m".parse::<Slo>().unwrap().ttft, Duration::MAX);
        for bad in ["", "ttft", "ttft=5", "ttft=-1s", "first=5s", "ttft=0s"] {
            assert!(bad.parse::<Slo>().is_err(), "{bad}");
        }
    }
}
