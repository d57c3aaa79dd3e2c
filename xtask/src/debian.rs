//! Debian packages, installed when they are missing and we may; otherwise the line to run is said.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process::{must, works};
use crate::repo;

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

/// Unpacks a Debian package below `target`, without installing it: a server that is only needed for
/// its tools must not begin to run on the machine. Returns where its files are.
pub(crate) fn unpack(name: &str) -> Result<PathBuf> {
    let folder = repo::target_dir().join("tools").join(name);
    let files = folder.join("files");
    if files.exists() {
        return Ok(files);
    }
    println!("apt-get download {name}");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let fetch = || {
        let mut apt = Command::new("apt-get");
        apt.args(["download", "-qq", name]).current_dir(&folder);
        apt
    };
    if !works(&mut fetch()) {
        // The lists of packages may be missing or old.
        must(Command::new("apt-get").args(["update", "-qq"]))?;
        must(&mut fetch())?;
    }
    let archive = fs::read_dir(&folder)?.filter_map(Result::ok).map(|it| it.path());
    let archive = archive.filter(|it| it.extension().is_some_and(|it| it == "deb")).last();
    let archive = archive.with_context(|| format!("apt-get downloaded no package {name}"))?;
    let unpacked = folder.join("unpacked");
    must(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
    fs::rename(&unpacked, &files).with_context(|| format!("move {}", unpacked.display()))?;
    Ok(files)
}

fn is_root() -> Result<bool> {
    let status = fs::read_to_string("/proc/self/status").context("read our own status")?;
    let user = status.lines().find_map(|it| it.strip_prefix("Uid:")).unwrap_or_default();
    Ok(user.split_whitespace().nth(1) == Some("0"))
}
