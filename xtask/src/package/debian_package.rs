//! The Debian package: the binary, its unit, a configuration that is kept over upgrades, completions and man pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Goods, copy, copy_all, try_demo};
use crate::process::{must, works};
use crate::repo;

/// Makes the package and tries it; returns why it was not tried, if it was not.
pub(super) fn make(goods: &Goods) -> Result<Option<String>> {
    let (root, stage) = (repo::root(), super::stage("debian")?);
    copy(&goods.binary, &stage.join("usr/bin/cleave"))?;
    copy(
        &root.join("deploy/systemd/cleave.service"),
        &stage.join("lib/systemd/system/cleave.service"),
    )?;
    copy(&root.join("deploy/debian/cleave.toml"), &stage.join("etc/cleave/cleave.toml"))?;
    let doc = stage.join("usr/share/doc/cleave");
    copy(&root.join("LICENSE"), &doc.join("copyright"))?;
    copy(&root.join("cleave.example.toml"), &doc.join("cleave.example.toml"))?;
    for (shell, to) in [
        ("bash", "usr/share/bash-completion/completions/cleave"),
        ("zsh", "usr/share/zsh/vendor-completions/_cleave"),
        ("fish", "usr/share/fish/vendor_completions.d/cleave.fish"),
    ] {
        copy(&goods.out.join(format!("cleave.{shell}")), &stage.join(to))?;
    }
    copy_all(&goods.out.join("man"), &stage.join("usr/share/man/man1"), true)?;
    fs::create_dir_all(stage.join("DEBIAN"))?;
    let depends = if goods.is_static()? {
        String::new()
    } else {
        format!("Depends: libc6 (>= {}), libgcc-s1\n", super::wheel::libc_version(goods)?)
    };
    let control = format!(
        "Package: cleave\nVersion: {}\nArchitecture: amd64\nMaintainer: Cleave <cleave@localhost>\n{depends}\
         Section: net\nPriority: optional\nDescription: router for LLM inference\n \
         Sessions stay on the replica that has their KV cache, and load is measured in work.\n",
        goods.version
    );
    fs::write(stage.join("DEBIAN/control"), control)?;
    fs::write(stage.join("DEBIAN/conffiles"), "/etc/cleave/cleave.toml\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        copy(&root.join("deploy/debian").join(script), &stage.join("DEBIAN").join(script))?;
    }
    let file = goods.out.join(format!("cleave_{}_amd64.deb", goods.version));
    must(Command::new("dpkg-deb").args(["--build", "--root-owner-group"]).arg(&stage).arg(&file))?;
    if !goods.is_tried {
        return Ok(Some("--untried".to_owned()));
    }
    must(Command::new("dpkg-deb").arg("--info").arg(&file))?;
    let tried = install(&file)?;
    let installed = tried.join("usr/bin/cleave");
    must(
        Command::new(&installed)
            .args(["check-config", "--config"])
            .arg(tried.join("etc/cleave/cleave.toml")),
    )?;
    try_demo(&mut Command::new(&installed))?;
    must(
        Command::new("man")
            .args(["--warnings", "--local-file"])
            .arg(tried.join("usr/share/man/man1/cleave.1.gz"))
            .stdout(std::process::Stdio::null()),
    )
    .or_else(
        |error| if works(Command::new("man").arg("--version")) { Err(error) } else { Ok(()) },
    )?;
    must(dpkg(&tried).args(["--purge", "cleave"]))?;
    ensure!(!installed.exists(), "it was removed, and is there: {}", installed.display());
    check_unit(goods)
}

/// Installs the package below a root of its own: this machine's packages are not ours to change.
fn install(file: &Path) -> Result<PathBuf> {
    let tried = super::stage("debian-tried")?;
    let books = tried.join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(books.join(folder))?;
    }
    fs::write(books.join("status"), "")?;
    must(dpkg(&tried).arg("--install").arg(file))?;
    must(dpkg(&tried).args(["--verify", "cleave"]))?;
    Ok(tried)
}

/// `dpkg` below another root, which has no shell for the package's scripts and not the libraries it depends on.
fn dpkg(root: &Path) -> Command {
    let mut command = Command::new("dpkg");
    command.args(["--force-not-root", "--force-script-chrootless", "--force-depends"]);
    command.arg("--root").arg(root);
    command
}

/// Has systemd read the unit and say how exposed the service is.
fn check_unit(goods: &Goods) -> Result<Option<String>> {
    if !works(Command::new("systemd-analyze").arg("--version")) {
        return Ok(Some("systemd-analyze is not installed; the unit was not checked".to_owned()));
    }
    // The unit names the installed binary, which is not there.
    let text = fs::read_to_string(repo::root().join("deploy/systemd/cleave.service"))?;
    let unit = super::stage("unit")?.join("cleave.service");
    let binary = goods.binary.to_str().context("a path of text")?;
    fs::write(&unit, text.replace("/usr/bin/cleave", binary))?;
    let verified =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output()?;
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    ensure!(!said.contains("cleave.service:"), "{said}");
    let exposure = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", "--threshold=25"])
        .arg(&unit)
        .output()?;
    let said = String::from_utf8_lossy(&exposure.stdout).into_owned();
    ensure!(exposure.status.success(), "the service is too exposed: {said}");
    println!("{}", said.lines().last().unwrap_or_default());
    Ok(None)
}
