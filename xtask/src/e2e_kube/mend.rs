//! The API server of the recipe is older than the Go that builds it. Its JSON library (reflect2 1.0.1) calls a function of
//! Go's runtime that takes another argument since Go 1.18, and so writes through a stray pointer whenever a map
//! is written: the server crashes at the first pods. The two lines are changed as later versions of the library have
//! them, and the server is built again.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::process::must;

/// File below the library, what stands there, and what must.
const CHANGES: [(&str, &str, &str); 3] = [
    (
        "unsafe_link.go",
        "func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer) *hiter",
        "func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer, it *hiter)",
    ),
    ("unsafe_link.go", "\t// rest fields are ignored\n", "\trest [10]unsafe.Pointer\n"),
    (
        "unsafe_map.go",
        "\treturn &UnsafeMapIterator{\n\t\thiter:      mapiterinit(type2.rtype, *(*unsafe.Pointer)(obj)),\n",
        "\tit := new(hiter)\n\tmapiterinit(type2.rtype, *(*unsafe.Pointer)(obj), it)\n\
         \treturn &UnsafeMapIterator{\n\t\thiter:      it,\n",
    ),
];

/// Mends the source below `folder` and builds the server again, once.
pub(super) fn mend(folder: &Path) -> Result<()> {
    let done = folder.join("mended");
    if done.exists() {
        return Ok(());
    }
    let library = folder.join("src/vendor/github.com/modern-go/reflect2");
    for (file, old, new) in CHANGES {
        let path = library.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        ensure!(text.contains(old) || text.contains(new), "{} is another one", path.display());
        fs::write(path, text.replace(old, new))?;
    }
    println!("building the API server again, with its JSON library mended");
    let version = |package: &str| {
        let names = [("gitVersion", "v1.20.2"), ("gitMajor", "1"), ("gitMinor", "20")];
        let set =
            |(name, value)| format!("-X k8s.io/kubernetes/vendor/k8s.io/{package}.{name}={value}");
        names.map(set).join(" ")
    };
    let flags =
        ["-s -w".to_owned(), version("component-base/version"), version("client-go/pkg/version")];
    must(
        Command::new("/usr/lib/go-1.19/bin/go")
            .args(["build", "-ldflags", &flags.join(" "), "-o"])
            .arg(folder.join("kube-apiserver"))
            .arg("k8s.io/kubernetes/cmd/kube-apiserver")
            .current_dir(folder.join("gopath/src/k8s.io/kubernetes"))
            .envs([("GO111MODULE", "off"), ("GOPROXY", "off"), ("CGO_ENABLED", "0")])
            .env("GOCACHE", folder.join("gocache"))
            .env("GOPATH", folder.join("gopath")),
    )?;
    Ok(fs::write(done, "")?)
}
