//! `cleave top`: a router's pools, replicas, queues and events in a terminal, drawn anew every second.
//! Reads the admin port and changes nothing. What it changed about the terminal it puts back.

mod read;
mod view;

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cleave_io::config;
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::admin::AdminPort;
use crate::style::Style;
use read::{Admin, Entry};
use view::TopFrame;

/// Events kept for the foot of the picture.
const EVENTS_MAX: usize = 100;
const EVENT_BYTES_MAX: usize = 64 << 10;
/// How long events that were there before may take to come, for a single picture.
const EVENTS_WAIT: Duration = Duration::from_millis(200);

/// Watch a router: pools, replicas, queues and events
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    port: AdminPort,
    /// Time between two pictures
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    interval: Duration,
    /// Print one picture and end
    #[arg(long)]
    once: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.watch())
    }

    async fn watch(self) -> anyhow::Result<()> {
        let admin = Admin(self.port.client()?);
        let events = Arc::new(Log::default());
        let mut beside = JoinSet::new();
        beside.spawn(follow(admin.clone(), Arc::clone(&events)));
        if self.once {
            sleep(EVENTS_WAIT).await;
            let frame = look(&admin, &events).await?;
            io::stdout().write_all(frame.draw(style(), usize::MAX).as_bytes())?;
            return Ok(());
        }
        let mut screen = TopScreen::open()?;
        tokio::select! {
            ended = self.redraw(&admin, &events, &mut screen) => ended,
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    }

    async fn redraw(
        &self,
        admin: &Admin,
        events: &Log,
        screen: &mut TopScreen,
    ) -> anyhow::Result<()> {
        let mut before: Option<(TopFrame, Instant)> = None;
        loop {
            match look(admin, events).await {
                Ok(mut frame) => {
                    if let Some((before, at)) = &before {
                        frame.compare(before, at.elapsed());
                    }
                    screen.show(&frame.draw(style(), TopScreen::lines()))?;
                    before = Some((frame, Instant::now()));
                }
                // A router that restarts is back in a moment.
                Err(error) => screen.show(&format!("{error:#}\n"))?,
            }
            sleep(self.interval).await;
        }
    }
}

async fn look(admin: &Admin, events: &Log) -> anyhow::Result<TopFrame> {
    let (status, load) = (admin.read("/status").await?, admin.read("/load").await?);
    // An older router has no such page.
    let routers = admin.read("/routers").await.unwrap_or_default();
    Ok(TopFrame {
        status,
        load,
        routers,
        events: events.lock().iter().cloned().collect(),
        ..TopFrame::default()
    })
}

/// The newest events.
#[derive(Debug, Default)]
struct Log(Mutex<VecDeque<Entry>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in one line of the stream of events.
    fn on_line(&self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else { return };
        // What is no change (how many were missed) has no time.
        if let Ok(entry) = serde_json::from_slice::<Entry>(data)
            && !entry.at.is_empty()
        {
            let mut kept = self.lock();
            if kept.len() == EVENTS_MAX {
                kept.pop_front();
            }
            kept.push_back(entry);
        }
    }
}

/// Reads events for ever, from the start again whenever the router is another one.
async fn follow(admin: Admin, log: Arc<Log>) {
    loop {
        if let Ok(mut body) = admin.open("/events").await {
            log.lock().clear();
            let mut line = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                for byte in frame.into_data().unwrap_or_default() {
                    if byte == b'\n' {
                        log.on_line(&line);
                        line.clear();
                    } else if line.len() < EVENT_BYTES_MAX {
                        line.push(byte);
                    }
                }
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}

fn style() -> Style {
    let no_color = config::environment().find(|it| it.0 == "NO_COLOR").map(|it| it.1);
    Style::of(io::stdout().is_terminal(), no_color.as_deref())
}

/// The whole terminal, put back when dropped.
struct TopScreen(io::Stdout);

impl TopScreen {
    fn open() -> io::Result<Self> {
        let mut out = io::stdout();
        // A page of our own, no cursor, no wrapping.
        out.write_all(b"\x1b[?1049h\x1b[?25l\x1b[?7l")?;
        Ok(Self(out))
    }

    fn show(&mut self, text: &str) -> io::Result<()> {
        let text = text.trim_end_matches('\n').replace('\n', "\x1b[K\r\n");
        write!(self.0, "\x1b[H{text}\x1b[K\x1b[J")?;
        self.0.flush()
    }

    fn lines() -> usize {
        crossterm::terminal::size().map_or(24, |(_, lines)| lines.into())
    }
}

impl Drop for TopScreen {
    fn drop(&mut self) {
        // A terminal that takes no more bytes has nothing to be put back.
        _ = self.0.write_all(b"\x1b[?7h\x1b[?25h\x1b[?1049l");
        _ = self.0.flush();
    }
}
