//! The step times of an engine without a GPU, by the names users write.

use std::path::Path;

use anyhow::Context as _;
use clap::ValueEnum;
use cleave_core::cost::{CostBook, StepTimes};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
pub(crate) enum Hardware {
    #[default]
    #[value(name = "llama-8b")]
    #[serde(rename = "llama-8b")]
    Llama8b,
    #[value(name = "llama-70b")]
    #[serde(rename = "llama-70b")]
    Llama70b,
}

impl Hardware {
    pub(crate) const fn times(self) -> StepTimes {
        match self {
            Self::Llama8b => StepTimes::LLAMA_8B,
            Self::Llama70b => StepTimes::LLAMA_70B,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Llama8b => "llama-8b",
            Self::Llama70b => "llama-70b",
        }
    }
}

/// Reads a file that `cleave calibrate` wrote.
pub(crate) fn read_costs(file: &Path) -> anyhow::Result<CostBook> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is no file of costs", file.display()))
}

/// Names the hardware of replicas that name none: the first class of the file of costs, if there is one.
pub(crate) fn usual(book: &CostBook) -> String {
    let first = book.iter().next().map(|it| it.class.as_str());
    first.unwrap_or_else(|| Hardware::default().as_str()).to_owned()
}

/// Finds step times by the name of a class in the file of costs, or of what is built in.
pub(crate) fn times_of(name: &str, book: &CostBook) -> anyhow::Result<StepTimes> {
    if let Some(found) = book.iter().find(|it| it.class == name) {
        return Ok(found.step);
    }
    Hardware::from_str(name, false).map(Hardware::times).map_err(|_| {
        let known = Hardware::value_variants().iter().map(|it| it.as_str());
        let known: Vec<_> = book.iter().map(|it| it.class.as_str()).chain(known).collect();
        anyhow::anyhow!("no hardware is called {name:?}; there are: {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use cleave_core::cost::{Coefficients, built_in};

    use super::*;

    #[test]
    fn hardware_is_a_class_of_the_costs_or_what_is_built_in() {
        let mut own = Coefficients { class: "mine".to_owned(), ..built_in("llama-3-8b").unwrap() };
        own.step.floor_ms = 99.0;
        let mut book = CostBook::default();
        book.put(own.clone());
        assert_eq!(
            (usual(&book).as_str(), usual(&CostBook::default()).as_str()),
            ("mine", "llama-8b")
        );
        assert_eq!(times_of("mine", &book).unwrap(), own.step);
        assert_eq!(times_of("llama-70b", &book).unwrap(), Hardware::Llama70b.times());
        let refusal = times_of("yours", &book).unwrap_err().to_string();
        assert!(refusal.contains("there are: mine, llama-8b, llama-70b"), "{refusal}");
    }
}
