//! Honest clients of other tenants: they stream short chats one after the other, before and during an
//! attack, each over a connection of its own and most in a session of its own, so that whatever keeps
//! newcomers out keeps one of them out. What each waited for its first token is written down.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::client::{chat, request};
use super::plan::{ALICE, BOB};
use crate::answer;
use crate::http1::Connection;

/// Clients of each of the two tenants.
const EACH: u32 = 2;
/// Turns of one session.
const TURNS: u32 = 2;
/// A client that waits longer for anything is not served.
const LIMIT: Duration = Duration::from_secs(30);
/// Between two requests of one client.
const THINKS: Duration = Duration::from_millis(15);

/// One request of a bystander.
#[derive(Clone, Debug)]
pub(super) struct BystanderRequest {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// Until the first piece of the answer's body.
    pub(super) first: Option<Duration>,
    /// Why it was not answered whole.
    pub(super) failure: Option<String>,
}

/// Bystanders that are asking.
pub(super) struct Bystanders {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<BystanderRequest>>>,
}

impl Bystanders {
    pub(super) fn start(router: SocketAddr, has_tenants: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tenants = [ALICE, BOB].into_iter();
        let threads = tenants.flat_map(|tenant| (0..EACH).map(move |number| (tenant, number)));
        let threads = threads.map(|(tenant, number)| {
            let stop = Arc::clone(&stop);
            let key = has_tenants.then_some(tenant.key);
            let name = format!("{}-{number}", tenant.name);
            thread::spawn(move || run(router, key, &name, &stop))
        });
        Self { threads: threads.collect(), stop }
    }

    /// Lets each finish what it has asked.
    pub(super) fn stop(self) -> Vec<BystanderRequest> {
        self.stop.store(true, Relaxed);
        let join =
            |it: JoinHandle<Vec<BystanderRequest>>| it.join().expect("a bystander does not panic");
        self.threads.into_iter().flat_map(join).collect()
    }
}

fn run(
    router: SocketAddr,
    key: Option<&str>,
    name: &str,
    stop: &AtomicBool,
) -> Vec<BystanderRequest> {
    let mut seen = Vec::new();
    let mut turn = 0;
    while !stop.load(Relaxed) {
        let session = format!("x-session-id: {name}-{}\r\n", turn / TURNS);
        let prompt = format!("bystander {name} asks {}, turn {turn}", turn / TURNS);
        let body = chat(&prompt, r#","stream":true,"ignore_eos":true"#);
        let request = request("POST", "/v1/chat/completions", key, &session, &body);
        seen.push(ask(router, &request));
        turn += 1;
        thread::sleep(THINKS);
    }
    seen
}

fn ask(router: SocketAddr, request: &str) -> BystanderRequest {
    let began = Instant::now();
    let mut first = None;
    let mut body = Vec::new();
    let mut exchange = || -> io::Result<u16> {
        let mut connection = Connection::to(router)?;
        connection.set_limit(LIMIT)?;
        connection.write(request.as_bytes())?;
        let head = connection.read_head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        connection.read_body(head.length, |piece| {
            first.get_or_insert_with(|| began.elapsed());
            body.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(head.status())
    };
    let exchanged = exchange();
    let stream = String::from_utf8_lossy(&body);
    let failure = match exchanged {
        Err(error) => Some(error.kind().to_string()),
        Ok(200) => answer::error_event(&stream)
            .or_else(|| (!stream.contains("[DONE]")).then(|| "no end".to_owned())),
        Ok(status) => Some(answer::code(&body).unwrap_or_else(|| status.to_string())),
    };
    BystanderRequest { began, ended: Instant::now(), first, failure }
}

/// The time that all but one in a hundred stayed within; one that was never answered waited longest.
pub(super) fn p99<'a>(seen: impl Iterator<Item = &'a BystanderRequest>) -> Option<Duration> {
    let mut firsts: Vec<Duration> =
        seen.map(|it| it.first.unwrap_or(it.ended - it.began)).collect();
    firsts.sort_unstable();
    let rank = (firsts.len() * 99).div_ceil(100);
    firsts.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_one_in_a_hundred_stay_within_p99() {
        let began = Instant::now();
        let seen = |ms| {
            let first = Some(Duration::from_millis(ms));
            BystanderRequest { began, ended: began, first, failure: None }
        };
        let all: Vec<BystanderRequest> = (1..=200).map(seen).collect();
        assert_eq!(p99(all.iter()), Some(Duration::from_millis(198)));
        assert_eq!(p99(all.iter().take(1)), Some(Duration::from_millis(1)));
        assert_eq!(p99([].iter()), None);
    }
}
