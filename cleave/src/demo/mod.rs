//! `cleave demo`: the reason for this program, to be seen in a minute and without a GPU. Mock
//! replicas, the real router and a load of chats, first under round robin, then with sessions that
//! stick, and both side by side at the end. It shows what is measured and tunes nothing while it
//! runs; the only thing between the phases that differs is the policy.

mod chat;
mod fleet;
mod load;
mod screen;
mod summary;
mod tally;
#[cfg(test)]
mod tests;
mod view;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use cleave_core::policy::PolicyKind;
use cleave_io::telemetry;
use cleave_sim::engine;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::mock;
use chat::ChatClient;
use fleet::{DemoFleet, MODEL};
use load::{Board, CONVERSATION_TOKENS, DemoLoad};
use screen::DemoScreen;
use summary::{Outcome, compare};
use tally::Tallies;
use view::DemoFrame;

/// What is compared, in the order in which it is shown, and what it means.
const POLICIES: [(PolicyKind, &str); 2] = [
    (PolicyKind::ROUND_ROBIN, "1. round_robin: each request to the next replica"),
    (PolicyKind::PRICED, "2. priced: each conversation stays where its cache makes it cheap"),
];
const PHASE: Duration = Duration::from_secs(20);
/// What of the time given goes into starting and stopping.
const AROUND: Duration = Duration::from_secs(1);
const FOR_MIN: Duration = Duration::from_secs(5);

/// See sticky routing beside round robin: mock replicas, the router and a load of chats
///
/// Stays up at the end, so that you can try it with curl; Ctrl-C ends it at any time and shows what
/// was measured so far.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where clients connect [default: 127.0.0.1:8080, or a free port when that is taken]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where the page is [default: 127.0.0.1:9090, or a free port when that is taken]
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// End after this time, as in 30s, instead of staying up
    #[arg(long = "for", value_name = "TIME", value_parser = parse_limit)]
    limit: Option<Duration>,
    /// Mock replicas behind the router
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=16))]
    replicas: u16,
    /// Conversations at a time [default: 80, fewer when --for is short]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    sessions: Option<u16>,
    /// Write a recording of both halves to this folder, for cleave replay
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// What people say follows from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn parse_limit(text: &str) -> Result<Duration, String> {
    let limit = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if FOR_MIN <= limit {
        Ok(limit)
    } else {
        Err("too short to see anything; give 5s or more".to_owned())
    }
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let quiet = telemetry::LogSettings {
            level: "error".to_owned(),
            ..telemetry::LogSettings::default()
        };
        telemetry::start(&quiet)?;
        // Each conversation holds four descriptors; a lower limit only means fewer of them.
        _ = rlimit::increase_nofile_limit(u64::MAX);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(self.show())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn show(self) -> anyhow::Result<()> {
        let stop = CancellationToken::new();
        let mut signals = JoinSet::new();
        signals.spawn(stop_on_signal(stop.clone()));
        let length = self.limit.map_or(PHASE, |limit| limit.saturating_sub(AROUND) / 2);
        let sessions = self.sessions.unwrap_or_else(|| sessions_within(length));
        let demo = Demo {
            replicas: usize::from(self.replicas),
            mock: mock_settings(sessions, self.replicas),
            load: DemoLoad::new(sessions, self.seed, length / 3),
            length,
            stop,
        };
        let mut screen = DemoScreen::stdout();
        let record = telemetry::RecordSettings {
            starts_on: self.record.is_some(),
            dir: self.record.clone(),
            ..telemetry::RecordSettings::default()
        };
        let mut fleet = DemoFleet::start(self.listen, &record)?;
        let compared = POLICIES.map(|it| it.0.to_string()).to_vec();
        let page = fleet.open_admin(self.admin, compared).await?;
        screen.say(&demo.opening(fleet.address, page))?;
        let outcomes = demo.run(&mut fleet, &mut screen).await?;
        screen.say(&compare(&outcomes))?;
        if self.limit.is_none() && !demo.stop.is_cancelled() {
            screen.say(&closing(fleet.address, page))?;
            demo.stop.cancelled().await;
        }
        fleet.stop().await
    }
}

/// Everything that decides how the demo goes.
#[derive(Debug)]
struct Demo {
    replicas: usize,
    mock: mock::Settings,
    load: DemoLoad,
    /// How long a phase lasts, unless all people leave before.
    length: Duration,
    stop: CancellationToken,
}

impl Demo {
    /// Runs the phases, as many as there is time for before it is told to stop.
    async fn run(
        &self,
        fleet: &mut DemoFleet,
        screen: &mut DemoScreen,
    ) -> anyhow::Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for (policy, title) in POLICIES {
            if !self.stop.is_cancelled() {
                fleet.renew(policy, self.replicas, &self.mock).await?;
                screen.begin(title)?;
                let (elapsed, tallies) = self.phase(title, fleet, screen).await?;
                let ttft_error = fleet.ttft_error();
                outcomes.push(Outcome { policy, elapsed, tallies, ttft_error });
            }
        }
        Ok(outcomes)
    }

    /// Lets people chat until the time is up. Counting starts again when all have come, because their
    /// first messages at one time say little about a fleet at work; an answer that is not whole at the
    /// end is not counted.
    async fn phase(
        &self,
        title: &str,
        fleet: &DemoFleet,
        screen: &mut DemoScreen,
    ) -> anyhow::Result<(Duration, Tallies)> {
        let board = Board::new(self.replicas);
        let client = ChatClient::new(&format!("http://{}", fleet.address));
        let start = Instant::now();
        let (mut is_arriving, mut counted_from) = (!self.load.arrivals.is_zero(), start);
        let mut people = self.load.start(&client, &board);
        let mut ticks = interval_at(start + screen.interval(), screen.interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut is_over = false;
        while !is_over {
            tokio::select! {
                _ = ticks.tick() => {}
                () = sleep_until(start + self.load.arrivals), if is_arriving => {
                    board.clear();
                    (is_arriving, counted_from) = (false, Instant::now());
                    continue;
                }
                () = sleep_until(start + self.length) => is_over = true,
                () = self.stop.cancelled() => is_over = true,
                left = people.join_next() => {
                    is_over = left.is_none();
                    if !is_over {
                        continue;
                    }
                }
            }
            let (elapsed, busy, tallies) = (start.elapsed(), fleet.busy(), board.read());
            let (busy, tallies, length) = (&busy, &tallies, self.length);
            let frame = DemoFrame { title, is_arriving, elapsed, length, busy, tallies };
            if is_over {
                screen.leave(&frame)?;
            } else {
                screen.show(&frame)?;
            }
        }
        Ok((counted_from.elapsed(), board.read()))
    }

    fn opening(&self, address: SocketAddr, page: SocketAddr) -> String {
        let Self { replicas, load, mock, length, .. } = self;
        format!(
            "{replicas} mock replicas (Llama 3 8B on an H200, in real time; {kv} tokens of KV each)
behind the router on http://{address}, and {sessions} people that chat, with some
{CONVERSATION_TOKENS} tokens a conversation. First {seconds} s under round_robin, then the same
conversations with cold caches under priced. The first {arriving} s of each, while
people arrive, do not count.

Watch it in a browser: http://{page}/
",
            kv = mock.engine.kv_tokens,
            sessions = load.sessions,
            seconds = length.as_secs(),
            arriving = load.arrivals.as_secs(),
        )
    }
}

/// Counts how many people have time to come and go on. Their first messages are long and in no cache:
/// were all of them to come at once, a short phase would show nothing but that.
fn sessions_within(length: Duration) -> u16 {
    const MOST: u16 = 80;
    const PER_SECOND: u64 = 4;
    u16::try_from(length.as_secs() * PER_SECOND).map_or(MOST, |it| it.clamp(1, MOST))
}

/// Gives each replica room for twice its share of the conversations. So it can keep those that stay
/// with it, also when it drew more than its share, and cannot keep them all: a real fleet with as
/// many long conversations as it can bear is no different.
fn mock_settings(sessions: u16, replicas: u16) -> mock::Settings {
    const KV_TOKENS_MIN: u32 = 32_768;
    let share_tokens = u32::from(sessions) * CONVERSATION_TOKENS / u32::from(replicas);
    let kv_tokens = (2 * share_tokens).max(KV_TOKENS_MIN);
    mock::Settings {
        models: vec![MODEL.to_owned()],
        engine: engine::EngineSettings { kv_tokens, ..engine::EngineSettings::default() },
        ..mock::Settings::default()
    }
}

fn closing(address: SocketAddr, page: SocketAddr) -> String {
    format!(
        "
The people are gone, the router stays until Ctrl-C, and so does the page with both
halves side by side: http://{page}/

Try it:

  curl -N http://{address}/v1/chat/completions \\
    -H 'content-type: application/json' \\
    -d '{{\"model\": \"{MODEL}\", \"stream\": true,
         \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'

With a session id, always the same replica (see x-mock-replica):

  curl -i http://{address}/v1/chat/completions \\
    -H 'content-type: application/json' -H 'x-session-id: my-chat' \\
    -d '{{\"model\": \"{MODEL}\",
         \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'
"
    )
}

/// Ctrl-C and SIGTERM mean the same here: show what there is and go.
async fn stop_on_signal(stop: CancellationToken) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    stop.cancel();
    Ok(())
}
