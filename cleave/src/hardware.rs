//! The step times of an engine without a GPU, by the names users write.

use clap::ValueEnum;
use cleave_core::cost::StepTimes;
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
