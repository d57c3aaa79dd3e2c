//! Debian packages, installed when they are missing and we may; otherwise the line to run is said.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process::must;

/// Installs Debian packages, or says how when we may not.
pub(crate) fn install(names: &[&str]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let line = format!("apt-get install -y --no-install-recommends {}", names.join(" "));
    if !is_root()? {
        bail!("missing: {}; run: sudo {line}", names.join(", "));
    }
    println!("{line}");
    must(Command::new("apt-get").args(["update", "-qq"]))?;
    must(
        Command::new("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(names)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

fn is_root() -> Result<bool> {
    let status = fs::read_to_string("/proc/self/status").context("read our own status")?;
    let user = status.lines().find_map(|it| it.strip_prefix("Uid:")).unwrap_or_default();
    Ok(user.split_whitespace().nth(1) == Some("0"))
}
