//! A Python wheel with the binary inside, so that `pip install` and `uv tool install` bring it. A wheel is a zip file
//! with a list of its files; nothing of it is Python.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Goods, copy, try_demo};
use crate::process::{must, works};

/// Makes the wheel and tries it; returns why it was not tried, if it was not.
pub(super) fn make(goods: &Goods) -> Result<Option<String>> {
    let version = &goods.version;
    let stage = super::stage("wheel")?;
    let script = format!("cleave-{version}.data/scripts/cleave");
    copy(&goods.binary, &stage.join(&script))?;
    let info = format!("cleave-{version}.dist-info");
    fs::create_dir_all(stage.join(&info))?;
    let platform = if goods.is_static()? {
        "manylinux_2_17_x86_64.musllinux_1_1_x86_64".to_owned()
    } else {
        format!("manylinux_{}_x86_64", libc_version(goods)?.replace('.', "_"))
    };
    let metadata = format!(
        "Metadata-Version: 2.1\nName: cleave\nVersion: {version}\nSummary: A router for LLM inference\n\
         License: Apache-2.0\nRequires-Python: >=3.8\n"
    );
    fs::write(stage.join(&info).join("METADATA"), metadata)?;
    let tags: Vec<String> = platform.split('.').map(|it| format!("Tag: py3-none-{it}\n")).collect();
    let tags = tags.concat();
    let wheel = format!("Wheel-Version: 1.0\nGenerator: cleave\nRoot-Is-Purelib: false\n{tags}");
    fs::write(stage.join(&info).join("WHEEL"), wheel)?;
    let files = [script, format!("{info}/METADATA"), format!("{info}/WHEEL")];
    let mut record = String::new();
    for it in &files {
        let path = stage.join(it);
        writeln!(record, "{it},sha256={},{}", hash(&path)?, fs::metadata(&path)?.len())?;
    }
    fs::write(stage.join(&info).join("RECORD"), format!("{record}{info}/RECORD,,\n"))?;
    let file = goods.out.join(format!("cleave-{version}-py3-none-{platform}.whl"));
    let folders = [format!("cleave-{version}.data"), info];
    must(
        Command::new("python3")
            .args(["-m", "zipfile", "-c"])
            .arg(&file)
            .args(folders)
            .current_dir(&stage),
    )?;
    if !goods.is_tried {
        return Ok(Some("--untried".to_owned()));
    }
    let venv = super::stage("venv")?;
    if !works(Command::new("python3").args(["-m", "venv"]).arg(&venv)) {
        return Ok(Some("python3 cannot make a virtual environment here".to_owned()));
    }
    let pip = ["install", "--quiet", "--no-index", "--disable-pip-version-check"];
    must(Command::new(venv.join("bin/pip")).args(pip).arg(&file))?;
    try_demo(&mut Command::new(venv.join("bin/cleave")))?;
    Ok(None)
}

/// The oldest C library that has all that the binary asks for.
pub(super) fn libc_version(goods: &Goods) -> Result<String> {
    let symbols = Command::new("objdump").arg("-T").arg(&goods.binary).output()?;
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|it| {
        let (major, rest) = it.split_once('.')?;
        let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    let (major, minor) = versions.max().context("it asks for no version")?;
    Ok(format!("{major}.{minor}"))
}

/// The SHA-256 of a file, as wheels write it.
fn hash(path: &Path) -> Result<String> {
    let sum = Command::new("sha256sum").arg(path).output()?;
    let text = String::from_utf8_lossy(&sum.stdout).into_owned();
    let hex = text.split_whitespace().next().unwrap_or_default();
    ensure!(hex.len() == 64, "no sum of {}", path.display());
    let bytes = (0..32).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16));
    let bytes = bytes.collect::<Result<Vec<u8>, _>>()?;
    Ok(base64_url(&bytes))
}

fn base64_url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = (0..3).fold(0, |sum, at| sum << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        for at in 0..=three.len() {
            let six = number >> (18 - 6 * at) & 63;
            text.push(char::from(LETTERS[usize::try_from(six).unwrap_or(0)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_written_without_padding() {
        assert_eq!(base64_url(b"ab"), "YWI");
        assert_eq!(base64_url(b"abc"), "YWJj");
        assert_eq!(base64_url(&[0xfb, 0xff]), "-_8");
    }
}
