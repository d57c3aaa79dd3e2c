//! `cleave completions` and `cleave man-pages`: what a shell and `man` know of the command line, made from the command
//! line itself.

use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::Cli;

/// Write what a shell needs to complete the command line
///
/// For bash: `cleave completions bash > /etc/bash_completion.d/cleave`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    shell: Shell,
}

/// Write a manual page for each command into a folder
#[derive(Debug, clap::Args)]
pub(crate) struct ManPages {
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Completions {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "cleave", &mut script);
        Ok(io::Write::write_all(&mut io::stdout(), &script)?)
    }
}

impl ManPages {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        clap_mangen::generate_to(Cli::command(), &self.folder)
            .with_context(|| format!("write to {}", self.folder.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_is_completed() {
        let folder = std::env::temp_dir().join(format!("cleave-man-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        ManPages { folder: folder.clone() }.run().unwrap();
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut Cli::command(), "cleave", &mut script);
        let script = String::from_utf8(script).unwrap();
        for command in Cli::command().get_subcommands().filter(|it| !it.is_hide_set()) {
            let name = command.get_name();
            assert!(folder.join(format!("cleave-{name}.1")).exists(), "{name}");
            assert!(script.contains(&format!("cleave,{name})")), "{name}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
