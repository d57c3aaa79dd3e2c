//! A program that runs beside us until its owner is done with it. It is ended by `Drop`, so that a
//! failed check leaves nothing behind. It writes to a file and not to a pipe, because a reader of a
//! pipe would spend processor time that a benchmark means to measure.

use std::fs::{self, File};
use std::io::{self, PipeReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::{shown, works};

/// How often a server that is starting or ending is looked at.
const POLL: Duration = Duration::from_millis(20);

/// How long a server may take to end when asked to.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A running program and what it wrote so far.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `command`; what it prints goes to a file in `folder`.
    pub(crate) fn start(name: &str, command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {}", shown(command)))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Starts `command` with a standard error that nothing reads; the rest goes to a file in `folder`.
    pub(crate) fn start_unread(
        name: &str,
        command: &mut Command,
        folder: &Path,
    ) -> Result<(Self, PipeReader)> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let (reader, writer) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(file).stderr(writer);
        let child = command.spawn().with_context(|| format!("start {}", shown(command)))?;
        Ok((Self { name: name.to_owned(), child, log }, reader))
    }

    /// Ends the program and returns all that it printed.
    pub(crate) fn end(self) -> Result<String> {
        let log = self.log.clone();
        drop(self);
        Ok(String::from_utf8_lossy(&fs::read(log)?).into_owned())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells whether the program has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns what was printed so far, by the program and by those that took its place.
    pub(crate) fn said(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// Waits until `ready` has an answer, given the lines printed so far.
    pub(crate) fn wait_for<T>(
        &mut self,
        limit: Duration,
        ready: impl Fn(&[&str]) -> Option<T>,
    ) -> Result<T> {
        let until = Instant::now() + limit;
        loop {
            let said = self.said()?;
            if let Some(found) = ready(&said.lines().collect::<Vec<_>>()) {
                return Ok(found);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}:\n{said}", self.name);
            }
            if until < Instant::now() {
                bail!("{} did not come up in {limit:?}:\n{said}", self.name);
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Server {
    /// Asks the program to end, because only it knows what it started itself; then ends it.
    fn drop(&mut self) {
        // Each step may find that the program has ended by itself.
        _ = works(Command::new("kill").args(["-TERM", &self.pid().to_string()]));
        let until = Instant::now() + END_LIMIT;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(POLL);
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(name: &str, script: &str) -> Server {
        let mut command = Command::new("sh");
        Server::start(name, command.args(["-c", script]), &std::env::temp_dir()).unwrap()
    }

    #[test]
    fn a_server_is_up_when_it_says_so_and_gone_when_dropped() {
        let name = format!("xtask-up-{}", std::process::id());
        let mut server = start(&name, "echo hello; echo port 7; exec sleep 60");
        let port = server.wait_for(Duration::from_secs(20), |lines| {
            lines.iter().find_map(|it| it.strip_prefix("port ").map(str::to_owned))
        });
        assert_eq!(port.unwrap(), "7");
        let process = format!("/proc/{}", server.pid());
        let log = server.log.clone();
        drop(server);
        assert!(!Path::new(&process).exists());
        fs::remove_file(log).unwrap();
    }

    #[test]
    fn a_server_that_ends_at_its_start_is_an_error_with_what_it_said() {
        let name = format!("xtask-down-{}", std::process::id());
        let mut server = start(&name, "echo cannot bind; exit 1");
        let error = server.wait_for(Duration::from_secs(20), |_| None::<()>).unwrap_err();
        assert!(error.to_string().contains("cannot bind"), "{error}");
        fs::remove_file(&server.log).unwrap();
    }
}
