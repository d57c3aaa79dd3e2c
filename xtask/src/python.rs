//! Python, which we need for one thing: the SDKs that people call us with are written in it. One
//! virtual environment below the root, with versions pinned in one file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::must;
use crate::repo;

/// Where the tests against real SDKs lie.
pub(crate) fn tests() -> PathBuf {
    repo::root().join("cleave/tests/python")
}

/// Makes the environment at `venv` hold exactly what the tests ask for.
pub(crate) fn install(venv: &Path) -> Result<()> {
    let wanted =
        fs::read_to_string(tests().join("requirements.txt")).context("read requirements.txt")?;
    let installed = venv.join("requirements.txt");
    if fs::read_to_string(&installed).is_ok_and(|it| it == wanted) {
        return Ok(());
    }
    println!("installing the SDKs into {}", venv.display());
    must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    must(
        Command::new(venv.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--requirement",
            ])
            .arg(tests().join("requirements.txt")),
    )?;
    // Written last, so that an interrupted installation is made again.
    fs::write(installed, wanted).context("note what is installed")
}

/// Builds the command that runs the tests at `path` against `binary`.
pub(crate) fn pytest(path: &Path, binary: &Path) -> Result<Command> {
    let venv = repo::root().join(".venv");
    install(&venv)?;
    let mut pytest = Command::new(venv.join("bin/python"));
    pytest
        .args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"])
        .arg(path)
        .env("CLEAVE_BIN", binary)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(repo::root());
    Ok(pytest)
}
