//! `cargo xtask dist`: the release binary as it is shipped, without symbols, and its symbols in a file
//! of their own. A plain `cargo build --release` strips the symbols and keeps them nowhere; a backtrace
//! or a profile of a shipped binary needs those of the same build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::must;
use crate::repo;

pub(crate) fn run() -> Result<()> {
    build(None).map(drop)
}

/// Builds once, and takes the build apart; returns the binary without symbols. `target` is a target of Rust other than
/// this machine's.
pub(crate) fn build(target: Option<&str>) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--bin", "cleave"]);
    cargo.args(target.iter().flat_map(|it| ["--target", it]));
    must(cargo.env("CARGO_PROFILE_RELEASE_STRIP", "none").current_dir(repo::root()))?;
    let built = repo::target_dir().join(target.unwrap_or_default()).join("release/cleave");
    let folder = repo::target_dir().join("dist");
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    // The link between the two holds the name of the file, so objcopy runs where the file is.
    let objcopy = |arguments: &[&str]| {
        let mut command = Command::new("objcopy");
        command.args(arguments).arg(&built).current_dir(&folder);
        command
    };
    must(objcopy(&["--only-keep-debug"]).arg("cleave.debug"))?;
    must(objcopy(&["--strip-all", "--add-gnu-debuglink=cleave.debug"]).arg("cleave"))?;
    for name in ["cleave", "cleave.debug"] {
        show(&folder.join(name))?;
    }
    Ok(folder.join("cleave"))
}

fn show(path: &Path) -> Result<()> {
    let bytes = fs::metadata(path).with_context(|| format!("look at {}", path.display()))?.len();
    println!("{:>6} KB  {}", bytes / 1000, path.display());
    Ok(())
}
