//! How many tests passed and failed, read off the closing lines of each runner. Reading what people
//! see, rather than a report format per runner, keeps the two from telling different stories.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TestCounts {
    pub(super) passed: u32,
    pub(super) failed: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Runner {
    Nextest,
    Doctest,
    Pytest,
}

impl TestCounts {
    pub(super) const PASSED: Self = Self { passed: 1, failed: 0 };
    pub(super) const FAILED: Self = Self { passed: 0, failed: 1 };

    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Adds up the closing lines in `lines`. A run that failed without naming a failed test, because
    /// nothing compiled or nothing was collected, counts as one failure.
    pub(super) fn read(runner: Runner, lines: &[String], succeeded: bool) -> Self {
        let mut counts = Self::default();
        for line in lines.iter().filter(|it| runner.closes_with(it)) {
            counts.passed += number_before(line, &["passed"]);
            counts.failed += number_before(line, runner.failures());
        }
        if succeeded == (0 < counts.failed) {
            counts.failed += 1;
        }
        counts
    }
}

impl Runner {
    fn closes_with(self, line: &str) -> bool {
        match self {
            Self::Nextest => line.trim_start().starts_with("Summary ["),
            Self::Doctest => line.starts_with("test result:"),
            Self::Pytest => {
                line.contains(" in ")
                    && (line.contains("passed")
                        || line.contains("failed")
                        || line.contains("error"))
                    && line.trim_matches(['=', ' ']).starts_with(|it: char| it.is_ascii_digit())
            }
        }
    }

    fn failures(self) -> &'static [&'static str] {
        match self {
            Self::Nextest => &["failed", "timed out", "exec failed"],
            Self::Doctest => &["failed"],
            Self::Pytest => &["failed", "error", "errors"],
        }
    }
}

/// Adds up the numbers that stand right before one of `words`.
fn number_before(line: &str, words: &[&str]) -> u32 {
    let parts = line.split([',', ';', ':', '.', '=']).map(str::trim);
    let numbers = parts.filter_map(|part| {
        let (number, word) = part.split_once(' ')?;
        // Nextest adds remarks in brackets, pytest its time: "3 passed (1 slow)", "2 passed in 1".
        let word = word.split([' ', '(']).collect::<Vec<_>>().join(" ");
        words
            .iter()
            .any(|it| word == *it || word.starts_with(&format!("{it} ")))
            .then(|| number.parse::<u32>().ok())?
    });
    numbers.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(runner: Runner, line: &str, succeeded: bool, passed: u32, failed: u32) {
        let lines = ["noise: 7 passed the post".to_owned(), line.to_owned()];
        assert_eq!(
            TestCounts::read(runner, &lines, succeeded),
            TestCounts { passed, failed },
            "{line}"
        );
    }

    #[test]
    fn nextest_closes_with_its_summary() {
        let line = "     Summary [   0.005s] 34 tests run: 34 passed, 0 skipped";
        check(Runner::Nextest, line, true, 34, 0);
        let line = "     Summary [   1.0s] 5/9 tests run: 2 passed (1 slow), 1 failed, 1 timed out, 1 exec failed, 0 skipped";
        check(Runner::Nextest, line, false, 2, 3);
    }

    #[test]
    fn doctests_close_once_per_crate() {
        let line = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.42s";
        check(Runner::Doctest, line, true, 3, 0);
        let lines = [line.to_owned(), line.replace("0 failed", "2 failed")];
        assert_eq!(
            TestCounts::read(Runner::Doctest, &lines, false),
            TestCounts { passed: 6, failed: 2 }
        );
    }

    #[test]
    fn pytest_closes_with_or_without_a_frame() {
        check(Runner::Pytest, "12 passed, 1 skipped in 3.20s", true, 12, 0);
        check(
            Runner::Pytest,
            "==== 1 failed, 12 passed, 2 errors in 63.20s (0:01:03) ====",
            false,
            12,
            3,
        );
    }

    #[test]
    fn a_run_that_breaks_before_its_tests_is_one_failure() {
        check(Runner::Nextest, "error: could not compile", false, 0, 1);
        check(Runner::Pytest, "no tests ran in 0.01s", false, 0, 1);
    }

    #[test]
    fn a_run_that_succeeds_and_names_failures_is_not_believed() {
        check(Runner::Pytest, "1 failed in 3.20s", true, 0, 2);
    }
}
