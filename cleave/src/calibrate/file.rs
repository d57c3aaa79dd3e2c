//! The file of coefficients: TOML, read strictly, written whole. A new measurement joins what is there;
//! a file that cannot be read is never overwritten.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use cleave_core::cost::{Coefficients, CostBook};

const HEADER: &str = "\
# What requests cost, by model and replica class; written by `cleave calibrate`.
# Times are milliseconds. The first class listed for a model is its reference: it makes 100 MU a minute.

";

/// Reads a book; one that does not exist yet is empty.
pub(super) fn read(path: &Path) -> anyhow::Result<CostBook> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(CostBook::default()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    toml::from_str(&text).with_context(|| {
        format!(
            "{} is not a file of coefficients; mend it, or give --out another name",
            path.display()
        )
    })
}

/// Adds the entries to the book in the file, and returns them with their capacity in it.
pub(super) fn add(path: &Path, entries: Vec<Coefficients>) -> anyhow::Result<Vec<Coefficients>> {
    let mut book = read(path)?;
    let settled = put(&mut book, entries);
    let text = format!("{HEADER}{}", toml::to_string(&book)?);
    // Renamed into place, so that a router that reads it meanwhile sees the old one or the new one.
    let draft = draft_of(path);
    std::fs::write(&draft, text)
        .and_then(|()| std::fs::rename(&draft, path))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(settled)
}

/// Puts the entries into a book and returns them with their capacity in it.
pub(super) fn put(book: &mut CostBook, entries: Vec<Coefficients>) -> Vec<Coefficients> {
    let names: Vec<_> = entries.iter().map(|it| (it.model.clone(), it.class.clone())).collect();
    for entry in entries {
        book.put(entry);
    }
    names.iter().filter_map(|(model, class)| book.find(model, class)).cloned().collect()
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Returns the day, as in 2026-11-15.
pub(super) fn today() -> String {
    let mut stamp = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    stamp.truncate("2026-11-15".len());
    stamp
}

#[cfg(test)]
mod tests {
    use cleave_core::cost::built_in;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("cleave-{}", uuid::Uuid::new_v4()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn entry(class: &str) -> Coefficients {
        Coefficients { class: class.to_owned(), ..built_in("llama-8b").unwrap() }
    }

    #[test]
    fn what_was_written_is_read_again_and_others_stay() {
        let folder = Folder::new();
        let path = folder.0.join("costs.toml");
        add(&path, vec![entry("a")]).unwrap();
        let added = add(&path, vec![entry("b")]).unwrap();
        assert_eq!(added.len(), 1);
        let book = read(&path).unwrap();
        let classes: Vec<&str> = book.iter().map(|it| it.class.as_str()).collect();
        assert_eq!(classes, ["a", "b"]);
        assert_eq!(book.find("llama-8b", "b").unwrap().step, entry("b").step);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_left_alone() {
        let folder = Folder::new();
        let path = folder.0.join("costs.toml");
        let good = toml::to_string(&{
            let mut book = CostBook::default();
            book.put(entry("a"));
            book
        });
        let good = good.unwrap();
        for (bad, named) in [
            ("this is no toml".to_owned(), "costs.toml"),
            (good.replace("floor_ms", "flour_ms"), "flour_ms"),
            (good.replace("floor_ms = ", "floor_ms = -"), "coefficients[0].step.floor_ms"),
            (format!("{good}\n{good}"), "coefficients"),
        ] {
            std::fs::write(&path, &bad).unwrap();
            let error = format!("{:#}", add(&path, vec![entry("b")]).unwrap_err());
            assert!(error.contains(named), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), bad);
        }
    }

    #[test]
    fn today_is_a_day_the_book_accepts() {
        let mut book = CostBook::default();
        book.put(Coefficients { date: today(), ..entry("a") });
        let text = toml::to_string(&book).unwrap();
        assert!(toml::from_str::<CostBook>(&text).is_ok(), "{text}");
    }
}
