//! `cargo xtask package`: the release binary as people install it. A Debian package with a hardened systemd unit, a
//! Python wheel with the binary inside, a container image from nothing, shell completions, man pages, a list of
//! all that is linked in, and checksums. Each is installed where this machine can, and the demo is run from it.
//! Not part of `cargo xtask test`: the release build takes minutes.

mod container;
mod debian_package;
mod manifest;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::process::{must, works};
use crate::{debian, dist, repo};

const MUSL: &str = "x86_64-unknown-linux-musl";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Package this binary instead of building one
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// Make the packages, but try none
    #[arg(long)]
    untried: bool,
}

/// What is packaged, and where packages go.
struct Goods {
    binary: PathBuf,
    version: String,
    out: PathBuf,
    is_tried: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let out = repo::target_dir().join("package");
    _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    let binary = match &args.cleave {
        Some(binary) => binary.canonicalize()?,
        None => build()?,
    };
    let goods = Goods { version: version(&binary)?, binary, out, is_tried: !args.untried };
    println!(
        "cleave {}, {}",
        goods.version,
        if goods.is_static()? { "static" } else { "with the C library" }
    );
    goods.write_extras()?;
    manifest::write(&goods)?;
    let mut left_out = Vec::new();
    for (what, made) in [
        ("Debian package", debian_package::make(&goods)),
        ("wheel", wheel::make(&goods)),
        ("container image", container::make(&goods)),
    ] {
        if let Some(reason) = made.with_context(|| what)? {
            left_out.push(format!("{what}: {reason}"));
        }
    }
    goods.write_checksums()?;
    for it in left_out {
        println!("NOT TRIED: {it}");
    }
    must(Command::new("ls").args(["-l"]).arg(&goods.out))
}

/// Builds the binary: static, by musl, where its target can be had, else against the C library of this machine. A static
/// glibc is not a third way: it loads what the machine's nsswitch.conf names, which must be of the very same glibc.
fn build() -> Result<PathBuf> {
    let has_compiler = || works(Command::new("musl-gcc").arg("--version"));
    if !has_compiler() && debian::install(&["musl-tools"]).is_err() {
        println!("musl-gcc is not installed (Debian: musl-tools)");
    }
    let has_target = || {
        let mut rustc = Command::new("rustc");
        let told = rustc.args(["--print", "target-libdir", "--target", MUSL]).output();
        told.is_ok_and(|it| Path::new(String::from_utf8_lossy(&it.stdout).trim()).exists())
    };
    if !has_target() && !works(Command::new("rustup").args(["target", "add", MUSL])) {
        println!("Rust's target {MUSL} is not installed, and rustup cannot bring it");
    }
    let is_static = has_compiler() && has_target();
    if !is_static {
        println!("the binary needs a C library at least as new as this machine's");
    }
    dist::build(is_static.then_some(MUSL))
}

fn version(binary: &Path) -> Result<String> {
    let said = Command::new(binary).arg("-V").output().context("ask for the version")?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    Ok(said.split_whitespace().nth(1).context("no version")?.to_owned())
}

impl Goods {
    /// Lists the shared libraries that the binary is loaded with.
    fn libraries(&self) -> Result<Vec<PathBuf>> {
        let listed = Command::new("ldd").arg(&self.binary).output().context("start ldd")?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let paths = listed.split_whitespace().filter(|it| it.starts_with('/'));
        Ok(paths.map(PathBuf::from).collect())
    }

    fn is_static(&self) -> Result<bool> {
        Ok(self.libraries()?.is_empty())
    }

    /// Writes completions and man pages, by the binary itself.
    fn write_extras(&self) -> Result<()> {
        for shell in ["bash", "zsh", "fish"] {
            let written = Command::new(&self.binary).args(["completions", shell]).output()?;
            ensure!(
                written.status.success() && !written.stdout.is_empty(),
                "no completions for {shell}"
            );
            fs::write(self.out.join(format!("cleave.{shell}")), written.stdout)?;
        }
        let pages = self.out.join("man");
        fs::create_dir_all(&pages)?;
        must(Command::new(&self.binary).arg("man-pages").arg(&pages))
    }

    fn write_checksums(&self) -> Result<()> {
        let names: Vec<_> =
            fs::read_dir(&self.out)?.filter_map(|it| Some(it.ok()?.file_name())).collect();
        let files = names.iter().filter(|it| self.out.join(it).is_file());
        let sums = Command::new("sha256sum").args(files).current_dir(&self.out).output()?;
        ensure!(sums.status.success(), "sha256sum ended with {}", sums.status);
        fs::write(self.out.join("SHA256SUMS"), sums.stdout)?;
        must(
            Command::new("sha256sum")
                .args(["--check", "--quiet", "SHA256SUMS"])
                .current_dir(&self.out),
        )
    }
}

/// Names a folder of its own for a package that is put together.
fn stage(name: &str) -> Result<PathBuf> {
    let folder = repo::target_dir().join("package-stage").join(name);
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}

/// Runs the demo of an installed binary for some seconds.
fn try_demo(command: &mut Command) -> Result<()> {
    command.args(["demo", "--for", "10s", "--replicas", "2", "--listen", "127.0.0.1:0"]);
    let tried = command.output().context("start the demo")?;
    let said = String::from_utf8_lossy(&tried.stderr).into_owned();
    ensure!(tried.status.success(), "the demo ended with {}: {said}", tried.status);
    println!("the demo ran: {}", crate::process::shown(command));
    Ok(())
}

/// Copies a file, with the folders above it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let above = to.parent().context("a file has a folder")?;
    fs::create_dir_all(above).with_context(|| format!("make {}", above.display()))?;
    fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
    Ok(())
}

/// Copies every file of a folder, compressed if wanted.
fn copy_all(from: &Path, to: &Path, compress: bool) -> Result<()> {
    for file in fs::read_dir(from)? {
        let file = file?;
        let copied = to.join(file.file_name());
        copy(&file.path(), &copied)?;
        if compress {
            must(Command::new("gzip").args(["-9n"]).arg(copied))?;
        }
    }
    Ok(())
}
