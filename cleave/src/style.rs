//! Colours, on a terminal that wants them.

use std::fmt::Display;

/// How text may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Coloured,
}

impl Style {
    /// Decides by where the output goes: no colours in a file, none where `NO_COLOR` is set to
    /// anything.
    pub(crate) fn of(is_terminal: bool, no_color: Option<&str>) -> Self {
        let refused = no_color.is_some_and(|it| !it.is_empty());
        if is_terminal && !refused { Self::Coloured } else { Self::Plain }
    }

    pub(crate) fn bold(self, text: impl Display) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: impl Display) -> String {
        self.paint("2", text)
    }

    pub(crate) fn cyan(self, text: impl Display) -> String {
        self.paint("36", text)
    }

    pub(crate) fn green(self, text: impl Display) -> String {
        self.paint("32", text)
    }

    pub(crate) fn red(self, text: impl Display) -> String {
        self.paint("31", text)
    }

    pub(crate) fn yellow(self, text: impl Display) -> String {
        self.paint("33", text)
    }

    fn paint(self, code: &str, text: impl Display) -> String {
        match self {
            Self::Plain => text.to_string(),
            Self::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_did_not_refuse_them() {
        assert_eq!(Style::of(true, None), Style::Coloured);
        assert_eq!(Style::of(true, Some("")), Style::Coloured);
        assert_eq!(Style::of(true, Some("1")), Style::Plain);
        assert_eq!(Style::of(false, None), Style::Plain);
    }
}
