//! What a check found: one line a person can click on. Checks return findings instead of printing
//! them, so that each rule is tested as a function and all findings are shown at once.

use std::fmt;

use anyhow::{Result, bail};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Prints every finding in order of place, and fails when there is one.
pub(crate) fn report(check: &str, mut findings: Vec<Finding>) -> Result<()> {
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("{check}: nothing found"),
        count => bail!("{check}: {count} found"),
    }
    Ok(())
}
