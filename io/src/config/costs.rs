//! What work takes on each replica: from the file that `cleave calibrate` writes, or from what is
//! built in for a GPU and a model of that size. A class that neither knows is an error, and never
//! priced as something else: the router would lean on the wrong replicas without a word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_core::cost::{CostBook, GPUS, Hardware, built_in, built_in_on};

use super::problem::{Findings, Wrong, join, plain};
use super::read_text;
use crate::proxy::HardwareClasses;

/// The files of coefficients that pools name, each read once.
#[derive(Default)]
pub(super) struct Books(BTreeMap<PathBuf, Option<CostBook>>);

/// Where the replicas of one pool get their hardware from.
pub(super) struct CostSource<'a> {
    /// The file's name, as it was given, and what is in it.
    book: Option<(&'a Path, &'a CostBook)>,
    /// What the pool serves, as far as it says.
    models: Vec<&'a str>,
    /// The class of replicas that name none.
    class: Option<&'a str>,
    known: BTreeMap<Option<String>, Arc<Hardware>>,
}

impl Books {
    /// Reads the file that `path` names, and reports what is wrong with it.
    pub(super) fn read(&mut self, path: &str, file: &Path, findings: &mut Findings) {
        if self.0.contains_key(file) {
            return;
        }
        findings.watch(file);
        let book = read_text(file).and_then(|text| {
            toml::from_str::<CostBook>(&text).map_err(|error| {
                let what = format!("{}: {}", file.display(), error.to_string().trim_end());
                Wrong::new(what, "mend it, or measure again with `cleave calibrate --out`")
            })
        });
        let book = book.map_err(|wrong| findings.report(path, wrong)).ok();
        self.0.insert(file.to_owned(), book);
    }

    /// Tells where a pool's replicas get their hardware from; `None` when its file is refused.
    pub(super) fn source<'a>(
        &'a self,
        file: Option<&'a Path>,
        models: Vec<&'a str>,
        class: Option<&'a str>,
    ) -> Option<CostSource<'a>> {
        let book = match file {
            None => None,
            Some(file) => Some((file, self.0.get(file)?.as_ref()?)),
        };
        Some(CostSource { book, models, class, known: BTreeMap::new() })
    }
}

impl CostSource<'_> {
    /// Finds what work takes on a replica of that class, or of the pool's.
    pub(super) fn hardware(&mut self, class: Option<&str>) -> Result<Arc<Hardware>, Wrong> {
        let class = class.or(self.class).map(str::to_owned);
        if let Some(known) = self.known.get(&class) {
            return Ok(Arc::clone(known));
        }
        let found = Arc::new(self.find(class.as_deref())?);
        self.known.insert(class, Arc::clone(&found));
        Ok(found)
    }

    /// Finds what work takes on replicas of each class, for those that are discovered; `pool` is its path.
    pub(super) fn classes(&mut self, pool: &str, findings: &mut Findings) -> HardwareClasses {
        let usual = self.hardware(None).unwrap_or_else(|wrong| {
            findings.report(&join(pool, "class"), wrong);
            Arc::default()
        });
        let classes: Vec<&str> = match self.book {
            None => GPUS.iter().map(|it| it.0).collect(),
            Some((_, book)) => book.iter().map(|it| it.class.as_str()).collect(),
        };
        let named = classes.into_iter();
        let named = named.filter_map(|it| Some((it.to_owned(), self.hardware(Some(it)).ok()?)));
        HardwareClasses { usual, named: named.collect() }
    }

    fn find(&self, class: Option<&str>) -> Result<Hardware, Wrong> {
        if let Some((file, book)) = self.book {
            return self.find_in(file, book, class);
        }
        // The largest model of the pool rules: what is priced too low is what floods.
        let sized = |it: &&str| built_in(it).map(|found| found.step.floor_ms);
        let floor = |it: &&str| sized(it).unwrap_or(0.0);
        let model = self.models.iter().max_by(|a, b| floor(a).total_cmp(&floor(b)));
        let model = model.copied().unwrap_or("");
        match class {
            None => Ok(built_in(model).map_or_else(Hardware::default, |it| Hardware::from(&it))),
            Some(class) => {
                let found = built_in_on(model, class);
                found.map(|it| Hardware::from(&it)).ok_or_else(|| {
                    let gpus: Vec<&str> = GPUS.iter().map(|it| it.0).collect();
                    let what = format!("{} is no GPU that is built in", plain(class));
                    let gpus = gpus.join(", ");
                    Wrong::new(
                        what,
                        format!(
                            "choose one of {gpus}, or give `costs`, a file of \
                                              `cleave calibrate` that has the class"
                        ),
                    )
                })
            }
        }
    }

    fn find_in(
        &self,
        file: &Path,
        book: &CostBook,
        class: Option<&str>,
    ) -> Result<Hardware, Wrong> {
        let listed = |it: &&&str| book.reference(it).is_some();
        // A pool that does not say what it serves gets what the file is about.
        let first = book.iter().next().filter(|_| self.models.is_empty());
        let model = self.models.iter().find(listed).copied();
        let Some(model) = model.or(first.map(|it| it.model.as_str())) else {
            let what = format!("{} has no coefficients for the pool's models", file.display());
            let remedy = "measure one of them with `cleave calibrate --replica URL --out FILE`";
            return Err(Wrong::new(what, remedy));
        };
        let found = match class {
            None => book.reference(model),
            Some(class) => book.find(model, class),
        };
        found.map(Hardware::from).ok_or_else(|| {
            let classes = book.iter().filter(|it| it.model == model).map(|it| it.class.as_str());
            let classes: Vec<&str> = classes.collect();
            let class = plain(class.unwrap_or(""));
            let what = format!("{} has no class {class} of {}", file.display(), plain(model));
            Wrong::new(what, format!("choose one of {}, or calibrate it", classes.join(", ")))
        })
    }
}
