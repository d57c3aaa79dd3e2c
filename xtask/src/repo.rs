//! Where the repository is and which files belong to it. Reads the tree itself rather than asking
//! git, so that an unpacked release can be checked too.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// What a build, an editor or an installer leaves behind; it is not written by hand.
const GENERATED: [&str; 7] = [
    "target",
    "node_modules",
    "__pycache__",
    "corpus",
    "artifacts",
    "vendor",
    "proptest-regressions",
];

/// Names the repository's root, from where this crate was compiled.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies one folder below the root")
        .to_path_buf()
}

/// Names a build product of the profile that all tests share.
pub(crate) fn debug_binary(name: &str) -> PathBuf {
    target_dir().join("debug").join(name)
}

/// Names the folder cargo builds into.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Lists every file whose name ends in one of `extensions`, as paths relative to `root`, sorted.
pub(crate) fn files(root: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && !GENERATED.contains(&name.as_ref()) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|it| extensions.iter().any(|want| it == *want)) {
                found.push(path.strip_prefix(root)?.to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_found_and_what_builds_leave_behind_is_not() {
        let files = files(&root(), &["rs"]).unwrap();
        assert!(files.iter().any(|it| it == Path::new("xtask/src/repo.rs")));
        assert!(!files.iter().any(|it| it.starts_with("target")));
    }
}
