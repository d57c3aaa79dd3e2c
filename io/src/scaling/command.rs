//! A program of the operator that adds and removes replicas. It is run as it is, with what it is told as data: no shell
//! reads any of it. It has its time; what it writes to standard error is the reason if it fails.

use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncReadExt as _, copy, sink};
use tokio::process::Command;
use tokio::time::timeout;

use super::plan::ScaleOrder;
use crate::proxy::ScaleCommand;

/// How much of what it writes is kept.
const WORDS_BYTES_MAX: u64 = 2048;
/// Runs the program once; an error says why it failed.
pub(super) async fn run(
    command: &ScaleCommand,
    pool: &str,
    ready: usize,
    order: &ScaleOrder,
) -> Result<(), String> {
    let mut it = Command::new(&command.program);
    it.args(&command.arguments).arg(pool).arg(order.replicas.to_string()).args(&order.victims);
    for name in &command.hidden {
        it.env_remove(name);
    }
    it.env("CLEAVE_POOL", pool)
        .env("CLEAVE_WANTED", order.replicas.to_string())
        .env("CLEAVE_READY", ready.to_string())
        .env("CLEAVE_VICTIMS", order.victims.join(" "));
    it.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child =
        it.spawn().map_err(|error| format!("{} cannot be run: {error}", command.program))?;
    let stderr = child.stderr.take();
    let talk = async {
        let mut words = Vec::new();
        if let Some(stderr) = stderr {
            let mut kept = stderr.take(WORDS_BYTES_MAX);
            // What cannot be read is not told.
            _ = kept.read_to_end(&mut words).await;
            _ = copy(&mut kept.into_inner(), &mut sink()).await;
        }
        words
    };
    let done = async { tokio::join!(child.wait(), talk) };
    match timeout(command.timeout, done).await {
        Err(_) => Err(format!("{} took longer than {:?}", command.program, command.timeout)),
        Ok((Err(error), _)) => Err(format!("{} was lost: {error}", command.program)),
        Ok((Ok(status), _)) if status.success() => Ok(()),
        Ok((Ok(status), words)) => Err(failure(&command.program, status, &words)),
    }
}

fn failure(program: &str, status: ExitStatus, words: &[u8]) -> String {
    let words = String::from_utf8_lossy(words);
    let words: String =
        words.trim().chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    format!("{program} ended with {status}{words}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shell(script: &str, timeout: Duration) -> ScaleCommand {
        let arguments = ["-c", script, "scale"].map(str::to_owned).to_vec();
        ScaleCommand { program: "/bin/sh".to_owned(), arguments, timeout, hidden: Vec::new() }
    }

    fn order() -> ScaleOrder {
        ScaleOrder {
            replicas: 3,
            victims: vec!["http://a:1".to_owned(), "http://b:2; x".to_owned()],
        }
    }

    #[tokio::test]
    async fn it_gets_pool_number_and_victims_as_data() {
        let check = "test \"$1 $2 $#\" = 'chat 3 4' && test \"$4\" = 'http://b:2; x' && \
                     test \"$CLEAVE_POOL $CLEAVE_WANTED $CLEAVE_READY\" = 'chat 3 2' && \
                     test \"$CLEAVE_VICTIMS\" = 'http://a:1 http://b:2; x'";
        let command = shell(check, Duration::from_secs(30));
        assert_eq!(run(&command, "chat", 2, &order()).await, Ok(()));
    }

    #[tokio::test]
    async fn its_failure_is_told_in_its_own_words() {
        let command = shell("echo 'no GPU is\nfree' >&2; exit 3", Duration::from_secs(30));
        let said = run(&command, "chat", 2, &order()).await.unwrap_err();
        assert_eq!(said, "/bin/sh ended with exit status: 3: no GPU is free");
        let absent = ScaleCommand { program: "/nowhere/scale".to_owned(), ..command };
        let said = run(&absent, "chat", 2, &order()).await.unwrap_err();
        assert!(said.starts_with("/nowhere/scale cannot be run: "), "{said}");
    }

    #[tokio::test]
    async fn it_has_its_time_and_is_ended_after_it() {
        let command = shell("exec sleep 600", Duration::from_millis(50));
        let said = run(&command, "chat", 2, &order()).await.unwrap_err();
        assert!(said.ends_with("took longer than 50ms"), "{said}");
    }
}
