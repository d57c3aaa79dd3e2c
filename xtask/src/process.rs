//! Other programs, run to their end: watched, required, or only probed. Those that must keep running
//! are in `server`.

use std::io::{self, BufRead as _, BufReader};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Runs `command` to its end, showing what it prints, and returns its lines.
pub(crate) fn watch(command: &mut Command) -> Result<(ExitStatus, Vec<String>)> {
    // One pipe for both, so that the lines stay in the order they were written in.
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("start {}", shown(command)))?;
    // The command holds the writing end too; while it does, the pipe never ends.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut lines = Vec::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        lines.push(line);
    }
    Ok((child.wait()?, lines))
}

/// Runs `command` to its end with its output shown, and fails when it does.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("start {}", shown(command)))?;
    ensure!(status.success(), "{} ended with {status}", shown(command));
    Ok(())
}

/// Says whether `command` can be run and succeeds; shows nothing.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|it| it.success())
}

/// Writes a command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|it| it.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_watched_program_gives_its_lines_in_order_and_its_status() {
        let (status, lines) =
            watch(&mut shell("echo one; echo two >&2; echo three; exit 3")).unwrap();
        assert_eq!(lines, ["one", "two", "three"]);
        assert_eq!(status.code(), Some(3));
    }
}
