//! A container image from nothing: the binary, the C library it is linked with if any, and certificates. It runs as
//! an ordinary user and writes to no part of its root.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Goods, copy, try_demo};
use crate::process::{must, works};
use crate::repo;

const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Makes the image and tries it; returns why it was not tried, if it was not.
pub(super) fn make(goods: &Goods) -> Result<Option<String>> {
    let stage = super::stage("container")?;
    let root = stage.join("root");
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    copy(&goods.binary, &root.join("usr/bin/cleave"))?;
    for library in goods.libraries()? {
        copy(&library.canonicalize()?, &inside(&library))?;
    }
    if Path::new(CERTIFICATES).exists() {
        copy(Path::new(CERTIFICATES), &inside(Path::new(CERTIFICATES)))?;
    }
    fs::create_dir_all(root.join("etc/cleave"))?;
    fs::write(root.join("etc/passwd"), "cleave:x:65532:65532::/:/nowhere\n")?;
    copy(&repo::root().join("deploy/container/Containerfile"), &stage.join("Containerfile"))?;
    // The folder from which any builder of images makes the same one.
    let context = goods.out.join(format!("cleave-{}-container.tar.gz", goods.version));
    must(
        Command::new("tar")
            .args(["--create", "--gzip", "--owner=0", "--group=0", "--file"])
            .arg(&context)
            .arg("--directory")
            .arg(&stage)
            .arg("."),
    )?;
    if !goods.is_tried {
        return Ok(Some("--untried".to_owned()));
    }
    // The same root and user without a builder: nothing outside of the folder is seen.
    let chroot = |program: &str| {
        let mut command = Command::new("chroot");
        command.arg("--userspec=65532:65532").arg(&root).arg(program);
        command
    };
    if works(chroot("/usr/bin/cleave").arg("-V")) {
        try_demo(&mut chroot("/usr/bin/cleave"))?;
    }
    if !works(Command::new("buildah").arg("--version")) {
        return Ok(Some(
            "buildah is not installed (Debian: buildah); the root ran under chroot".to_owned(),
        ));
    }
    build(goods, &stage)
}

/// Builds the image, saves it, and runs the demo from it. Nothing of it needs a daemon or namespaces.
fn build(goods: &Goods, stage: &Path) -> Result<Option<String>> {
    let store = super::stage("images")?;
    let buildah = |arguments: &[&str]| {
        let mut command = Command::new("buildah");
        command.args(["--storage-driver", "vfs", "--root"]).arg(store.join("root"));
        command.arg("--runroot").arg(store.join("run")).args(arguments);
        command
    };
    let tag = format!("cleave:{}", goods.version);
    // As a layer keeps times, the same files would else make another image.
    let build = ["build", "--isolation", "chroot", "--timestamp", "0", "--tag", &tag];
    if !works(buildah(&build).arg(stage)) {
        return Ok(Some("buildah cannot build here; the root ran under chroot".to_owned()));
    }
    let archive = goods.out.join(format!("cleave-{}-image.tar", goods.version));
    let to = format!("oci-archive:{}:{tag}", archive.display());
    must(&mut buildah(&["push", "--quiet", &tag, &to]))?;
    must(&mut buildah(&["from", "--name", "tried", &tag]))?;
    let program = ["run", "--isolation", "chroot", "tried", "--", "/usr/bin/cleave"];
    try_demo(&mut buildah(&program))?;
    must(&mut buildah(&["images", &tag]))?;
    Ok(None)
}
