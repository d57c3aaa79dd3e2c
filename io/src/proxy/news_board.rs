//! What pools tell, on its way to those that carry it to other routers. Telling never waits. A reader is woken when it
//! is told something that may not wait as long as the reader sleeps anyway; whatever may, it finds when it wakes. One that
//! is too slow misses some, and is told so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cleave_core::brain::Telling;
use tokio::sync::Notify;

/// How many events of pools may wait for a reader.
const EVENTS_MAX: usize = 4096;

/// What happened in one pool.
#[derive(Debug)]
pub struct PoolNews {
    pub pool: u64,
    pub tellings: Vec<Telling>,
}

/// Where pools tell, and all that read it.
#[derive(Debug, Default)]
pub(super) struct NewsBoard(Mutex<Vec<Weak<Mailbox>>>);

/// One that reads all that is told from its beginning on.
#[derive(Debug)]
pub struct NewsReader(Arc<Mailbox>);

#[derive(Debug)]
struct Mailbox {
    waiting: Mutex<WaitingNews>,
    woken: Notify,
}

#[derive(Debug)]
struct WaitingNews {
    news: Vec<Arc<PoolNews>>,
    has_missed: bool,
    /// Whatever may wait as long as this need not wake the reader.
    sleep: Duration,
}

impl NewsBoard {
    pub(super) fn subscribe(&self) -> NewsReader {
        let waiting = WaitingNews { news: Vec::new(), has_missed: false, sleep: Duration::MAX };
        let mailbox = Arc::new(Mailbox { waiting: Mutex::new(waiting), woken: Notify::new() });
        let mut readers = lock(&self.0);
        readers.retain(|it| 0 < it.strong_count());
        readers.push(Arc::downgrade(&mailbox));
        NewsReader(mailbox)
    }

    pub(super) fn tell(&self, pool: u64, tellings: Vec<Telling>) {
        let Some(patience) = tellings.iter().map(|it| it.news.patience()).min() else { return };
        let readers = lock(&self.0);
        let mut readers = readers.iter().filter_map(Weak::upgrade).peekable();
        // Where no other router is there, there is none to tell.
        if readers.peek().is_some() {
            let news = Arc::new(PoolNews { pool, tellings });
            readers.for_each(|it| it.put(&news, patience));
        }
    }
}

impl Mailbox {
    fn put(&self, news: &Arc<PoolNews>, patience: Duration) {
        let mut waiting = lock(&self.waiting);
        if waiting.news.len() < EVENTS_MAX {
            waiting.news.push(Arc::clone(news));
        } else {
            waiting.has_missed = true;
        }
        if patience < waiting.sleep {
            // It is on its way, and what comes until it is there need not wake it again.
            waiting.sleep = Duration::ZERO;
            drop(waiting);
            self.woken.notify_one();
        }
    }
}

impl NewsReader {
    /// Waits for something that should not wait longer.
    pub async fn woken(&self) {
        self.0.woken.notified().await;
    }

    /// Takes what was told since the last time into an empty list, and returns whether some is missing.
    pub fn take(&self, into: &mut Vec<Arc<PoolNews>>) -> bool {
        let mut waiting = lock(&self.0.waiting);
        // Until it is known how long the reader sleeps, everything wakes it.
        waiting.sleep = Duration::MAX;
        std::mem::swap(&mut waiting.news, into);
        std::mem::take(&mut waiting.has_missed)
    }

    /// Says how long the reader will sleep if it is not woken.
    pub fn will_sleep(&self, span: Duration) {
        let mut waiting = lock(&self.0.waiting);
        if waiting.news.is_empty() {
            waiting.sleep = span;
        }
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use cleave_core::cluster::News;
    use cleave_core::domain::RequestId;
    use futures_util::FutureExt as _;

    use super::*;

    const PATIENT: News = News::Begun { request: RequestId(1) };
    const URGENT: News = News::AskedPlan;

    fn tell(board: &NewsBoard, news: News) {
        board.tell(1, vec![Telling { to: None, news }]);
    }

    fn is_woken(reader: &NewsReader) -> bool {
        reader.woken().now_or_never().is_some()
    }

    #[test]
    fn a_reader_is_woken_only_by_what_may_not_wait_as_long_as_it_sleeps() {
        let (board, mut news) = (NewsBoard::default(), Vec::new());
        tell(&board, URGENT);
        let reader = board.subscribe();
        assert!(!reader.take(&mut news) && news.is_empty(), "that was before");
        reader.will_sleep(Duration::from_millis(200));
        tell(&board, PATIENT);
        assert!(is_woken(&reader));
        reader.take(&mut news);
        assert_eq!(news.len(), 1);
        news.clear();
        // It sleeps no longer than what it has may wait.
        reader.will_sleep(PATIENT.patience());
        tell(&board, PATIENT);
        assert!(!is_woken(&reader));
        tell(&board, URGENT);
        assert!(is_woken(&reader));
        tell(&board, URGENT);
        assert!(!is_woken(&reader), "once is enough");
        reader.take(&mut news);
        assert_eq!(news.len(), 3);
        // What comes before it says how long it sleeps is not slept over.
        tell(&board, PATIENT);
        reader.will_sleep(Duration::ZERO);
        assert!(is_woken(&reader));
    }

    #[test]
    fn a_reader_that_does_not_come_misses_some_and_is_told_so_once() {
        let (board, mut news) = (NewsBoard::default(), Vec::new());
        let reader = board.subscribe();
        (0..=EVENTS_MAX).for_each(|_| tell(&board, PATIENT));
        assert!(reader.take(&mut news));
        assert_eq!(news.len(), EVENTS_MAX);
        news.clear();
        assert!(!reader.take(&mut news) && news.is_empty());
        drop(reader);
        tell(&board, PATIENT);
        let _other = board.subscribe();
        assert_eq!(lock(&board.0).len(), 1, "one that is gone is forgotten");
    }
}
