//! The page in a real browser: what its tests need, its types, its tests and its pictures. Chromium is Debian's and
//! is driven over `WebDriver`; the compiler that checks types and the rules of accessibility come from npm, pinned,
//! for tests only. Nothing of that is part of the page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::{must, works};
use crate::{debian, python, repo};

/// Packages of npm.
const TOOLS: [&str; 2] = ["typescript@7.0.2", "axe-core@4.14.0"];

#[derive(clap::Args)]
pub(crate) struct ShotsArgs {
    /// Where the pictures go
    #[arg(long, value_name = "FOLDER", default_value = "target/shots")]
    out: PathBuf,
}

/// Makes a picture of every view, in both themes and at both widths.
pub(crate) fn shots(args: &ShotsArgs) -> Result<()> {
    install()?;
    must(
        Command::new("cargo")
            .args(["build", "--workspace", "--bin", "cleave"])
            .current_dir(repo::root()),
    )?;
    let venv = repo::root().join(".venv");
    python::install(&venv)?;
    must(
        Command::new(venv.join("bin/python"))
            .arg(tests().join("shots.py"))
            .arg(&args.out)
            .env("CLEAVE_BIN", repo::debug_binary("cleave"))
            .env("PYTHONPATH", python::tests())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(repo::root()),
    )
}

/// Checks the types of the scripts.
pub(crate) fn check_types() -> Result<()> {
    install()?;
    let tsc = tools().join("node_modules/.bin/tsc");
    must(Command::new(tsc).arg("--project").arg(repo::root().join("web")))
}

/// Builds the command that opens the page of `binary` in a browser and tests it.
pub(crate) fn pytest(binary: &Path) -> Result<Command> {
    let mut pytest = python::pytest(&tests(), binary)?;
    pytest.env("AXE_JS", tools().join("node_modules/axe-core/axe.min.js"));
    Ok(pytest)
}

fn tests() -> PathBuf {
    repo::root().join("cleave/tests/page")
}

fn tools() -> PathBuf {
    repo::target_dir().join("page-tools")
}

/// Installs what is missing.
fn install() -> Result<()> {
    let needs = [("chromium", "chromium"), ("chromedriver", "chromium-driver"), ("npm", "npm")];
    let missing = needs.iter().filter(|it| !works(Command::new(it.0).arg("--version")));
    debian::install(&missing.map(|it| it.1).collect::<Vec<_>>())?;
    let (folder, wanted) = (tools(), TOOLS.join("\n"));
    let installed = folder.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|it| it == wanted) {
        return Ok(());
    }
    fs::create_dir_all(&folder).context("make a folder for what npm installs")?;
    let install = ["install", "--no-save", "--no-audit", "--no-fund", "--silent", "--prefix"];
    must(Command::new("npm").args(install).arg(&folder).args(TOOLS))?;
    // Written last, so that an interrupted installation is made again.
    fs::write(installed, wanted).context("note what is installed")
}
