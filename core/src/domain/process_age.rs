//! Which process answers at an address, as far as its engine tells. An address outlives processes: one
//! that crashed and came back, or another that was given the same port, has an empty cache.

/// One reading of what an engine says of its own life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessAge {
    /// When the process started, in milliseconds of the replica's own clock.
    pub started_ms: Option<u64>,
    /// Tokens it has worked through since.
    pub worked_tokens: Option<u64>,
}

/// A process tells its start with some noise, because it computes it from how long it has run.
const START_NOISE_MS: u64 = 2_000;

impl ProcessAge {
    /// Tells whether this was read from a process that started after the one `before` was read from.
    pub fn is_after(&self, before: &Self) -> bool {
        let later = match (before.started_ms, self.started_ms) {
            (Some(then), Some(now)) => then + START_NOISE_MS < now,
            _ => false,
        };
        let fewer = match (before.worked_tokens, self.worked_tokens) {
            (Some(then), Some(now)) => now < then,
            _ => false,
        };
        later || fewer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn birth(started_ms: Option<u64>, worked_tokens: Option<u64>) -> ProcessAge {
        ProcessAge { started_ms, worked_tokens }
    }

    #[test]
    fn a_later_start_or_fewer_tokens_is_another_process() {
        let before = birth(Some(1_000_000), Some(500));
        assert!(birth(Some(1_010_000), Some(900)).is_after(&before));
        assert!(birth(None, Some(3)).is_after(&before));
        assert!(!birth(Some(1_000_900), Some(500)).is_after(&before));
        assert!(!birth(None, None).is_after(&before));
        assert!(!before.is_after(&ProcessAge::default()));
    }
}
