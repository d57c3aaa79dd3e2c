//! The load: chats whose every turn goes to a router by chance, as behind a load balancer that knows nothing of sessions.
//! One that does not take a connection is passed over, as a load balancer does; whatever else happens is written down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::chaos::client::{AnswerSeen, Fate, Question, RequestKind, judge};

/// One turn of a chat.
#[derive(Clone, Debug)]
pub(super) struct TurnRecord {
    pub(super) chat: u64,
    pub(super) turn: u32,
    /// The router that answered it, or the last that was tried.
    pub(super) router: usize,
    pub(super) sent: Instant,
    pub(super) ended: Instant,
    pub(super) fate: Fate,
    pub(super) why: String,
    pub(super) replica: Option<String>,
    pub(super) decision: Option<String>,
}

pub(super) struct TurnLoad {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<TurnRecord>>>,
}

struct Chatter {
    routers: Vec<SocketAddr>,
    reference: SocketAddr,
    number: u32,
    /// Its chats, and the turns that each has had.
    chats: Vec<(u64, u32)>,
    rng: Pcg64Mcg,
}

impl TurnLoad {
    pub(super) fn start(
        routers: &[SocketAddr],
        reference: SocketAddr,
        (clients, chats): (u32, u32),
        seed: u64,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..clients)
            .map(|number| {
                let own = (0..chats).filter(|it| it % clients == number);
                let mut chatter = Chatter {
                    routers: routers.to_vec(),
                    reference,
                    number,
                    chats: own.map(|it| (it.into(), 0)).collect(),
                    rng: Pcg64Mcg::seed_from_u64(seed ^ (u64::from(number) << 32)),
                };
                let stop = Arc::clone(&stop);
                thread::spawn(move || chatter.run(&stop))
            })
            .collect();
        Self { stop, threads }
    }

    /// Lets every chat finish the turn that it has begun.
    pub(super) fn stop(self) -> Vec<TurnRecord> {
        self.stop.store(true, Relaxed);
        let join = |it: JoinHandle<Vec<TurnRecord>>| it.join().expect("a client does not panic");
        self.threads.into_iter().flat_map(join).collect()
    }
}

impl Chatter {
    fn run(&mut self, stop: &AtomicBool) -> Vec<TurnRecord> {
        let mut records = Vec::new();
        while !stop.load(Relaxed) {
            let at = self.rng.random_range(0..self.chats.len());
            let (chat, turn) = self.chats[at];
            self.chats[at].1 += 1;
            records.push(self.take_turn(chat, turn));
            thread::sleep(Duration::from_millis(self.rng.random_range(50..250)));
        }
        records
    }

    fn take_turn(&mut self, chat: u64, turn: u32) -> TurnRecord {
        let streams = self.rng.random_bool(0.7);
        let kind = if streams { RequestKind::Stream } else { RequestKind::Plain };
        let question = Question::new(self.reference, kind, self.number, chat, turn)
            .expect("the reference is left alone");
        let request = question.request(self.number, chat, streams, false);
        let mut order: Vec<usize> = (0..self.routers.len()).collect();
        order.shuffle(&mut self.rng);
        let sent = Instant::now();
        let mut record = TurnRecord {
            chat,
            turn,
            router: order[0],
            sent,
            ended: sent,
            fate: Fate::Lost,
            why: String::new(),
            replica: None,
            decision: None,
        };
        for router in order {
            let mut seen = AnswerSeen::since(Instant::now());
            record.router = router;
            (record.fate, record.why) = match seen.exchange(self.routers[router], &request) {
                Ok(status) => judge(&question, kind, false, status, &seen.body),
                // Not there, or on its way out: nothing of the request was taken.
                Err((false, error)) if is_not_taken(&error) => {
                    record.why = error.to_string();
                    continue;
                }
                Err((true, error)) => (Fate::Broken, error.to_string()),
                Err((false, error)) => (Fate::Lost, error.to_string()),
            };
            (record.replica, record.decision) = (seen.replica, seen.decision);
            break;
        }
        record.ended = Instant::now();
        record
    }
}

/// Tells whether a router did not take the connection.
fn is_not_taken(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::ConnectionRefused
}
