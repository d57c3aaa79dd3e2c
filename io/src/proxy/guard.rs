//! A client's connection, and what it may not do with it: take nothing of what is written for longer
//! than the write timeout, or send frames that carry nothing faster than they can be ignored. Both end
//! the connection. A write that is taken at once, and a read, cost a few nanoseconds more. Here is also
//! found out whether a client that closed its side is gone or waits for its answer (`client`).

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cleave_core::protocol::Frames;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;

use super::client::{Client, Stage};

/// What a frame that carries nothing costs, in bytes that are written to the client: an answer pays for
/// the frames by which a client takes it.
const FRAME_BYTES: i64 = 64;
/// Frames that may come at once, at first and where answers have paid for them; and in a second without.
const FRAMES_FIRST: i64 = 3_000;
const FRAMES_MAX: i64 = 10_000;
const FRAMES_PER_S: i64 = 1_000;

/// What a client is sent that closed its side before its answer began.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// How long that is put off: an answer that comes by then needs none.
const INTERIM_AFTER: Duration = Duration::from_millis(300);
/// How often a client that closed its side is looked at, at first and later.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_secs(5);

/// A connection that may tell whether the other side has refused what it was sent.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// `None` where nothing may be sent to find out.
    fn is_refused(&self) -> Option<bool>;
}

impl Socket for TcpStream {
    fn is_refused(&self) -> Option<bool> {
        Some(!matches!(self.take_error(), Ok(None)))
    }
}

impl<S: Unpin> Socket for TlsStream<S>
where
    Self: AsyncRead + AsyncWrite,
{
    /// Under TLS the end of the client's side is always taken for the end.
    fn is_refused(&self) -> Option<bool> {
        None
    }
}

/// A connection that is guarded.
#[derive(Debug)]
pub(crate) struct Guard<S> {
    inner: S,
    /// Where requests say how far they are, if anything listens.
    client: Option<Arc<Client>>,
    /// Since the client closed its side.
    closed: Option<Closed>,
    limit: Duration,
    /// Runs while a write waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
    frames: Frames,
    budget: Budget,
}

impl<S> Guard<S> {
    pub(crate) fn new(inner: S, limit: Duration) -> Self {
        let (frames, budget) = (Frames::default(), Budget::new(Instant::now()));
        Self { inner, client: None, closed: None, limit, stalled: None, frames, budget }
    }

    /// Lets a client that closes its side have its answer.
    pub(super) fn with_client(mut self, client: Arc<Client>) -> Self {
        self.client = Some(client);
        self
    }

    /// Notes what came of a write.
    fn on_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(written) => {
                self.stalled = None;
                self.budget.earn(*written.as_ref().unwrap_or(&0));
                Poll::Ready(written)
            }
            Poll::Pending => {
                let limit = self.limit;
                let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
                ready!(stalled.as_mut().poll(cx));
                let why = "the client takes nothing of what is sent";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
            }
        }
    }
}

/// A client that closed its side, and may be gone.
#[derive(Debug)]
struct Closed {
    since: Instant,
    look: Pin<Box<Sleep>>,
    pause: Duration,
    is_probed: bool,
}

impl Closed {
    fn new() -> Self {
        let (since, look) = (Instant::now(), Box::pin(sleep(LOOK_MIN)));
        Self { since, look, pause: LOOK_MIN, is_probed: false }
    }

    /// Tells whether the client is to be sent something now.
    fn is_due(&self, after: Duration) -> bool {
        if self.is_probed { self.pause == LOOK_MAX } else { after <= self.since.elapsed() }
    }
}

impl<S: Socket> Guard<S> {
    /// The client closed its side. Tells when that is the end; until then it is probed now and then.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(client) = &self.client else { return Poll::Ready(Ok(())) };
        let closed = self.closed.get_or_insert_with(Closed::new);
        loop {
            let is_new = closed.pause == LOOK_MIN;
            match self.inner.is_refused() {
                Some(true) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                // What came with its end may still have to be read as a request.
                Some(false) if is_new || client.stage() != Stage::None => {}
                Some(false) | None => return Poll::Ready(Ok(())),
            }
            ready!(closed.look.as_mut().poll(cx));
            closed.pause = LOOK_MAX.min(2 * closed.pause);
            match client.stage() {
                Stage::None => return Poll::Ready(Ok(())),
                // A write that waits will tell by itself, and nothing may go between its halves.
                Stage::Waiting if closed.is_due(INTERIM_AFTER) && self.stalled.is_none() => {
                    let sent = Pin::new(&mut self.inner).poll_write(cx, INTERIM);
                    if !matches!(sent, Poll::Ready(Ok(length)) if length == INTERIM.len()) {
                        return Poll::Ready(Ok(()));
                    }
                    (closed.is_probed, closed.pause) = (true, 2 * LOOK_MIN);
                }
                Stage::Waiting if !closed.is_probed => {
                    closed.pause = INTERIM_AFTER.saturating_sub(closed.since.elapsed());
                    closed.pause = closed.pause.max(2 * LOOK_MIN);
                }
                Stage::Events if closed.is_due(Duration::ZERO) => {
                    client.ask();
                    (closed.is_probed, closed.pause) = (true, 2 * LOOK_MIN);
                }
                Stage::Waiting | Stage::Events | Stage::Sending => {}
            }
            closed.look.as_mut().reset(Instant::now() + closed.pause);
        }
    }
}

/// What frames that carry nothing are paid from.
#[derive(Debug)]
struct Budget {
    bytes: i64,
    filled: Instant,
}

impl Budget {
    const BYTES_MAX: i64 = FRAMES_MAX * FRAME_BYTES;

    const fn new(now: Instant) -> Self {
        Self { bytes: FRAMES_FIRST * FRAME_BYTES, filled: now }
    }

    fn earn(&mut self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.bytes = self.bytes.saturating_add(bytes).min(Self::BYTES_MAX);
    }

    /// Pays for frames. Tells whether it could; what comes with time is added only when it is needed.
    fn pay(&mut self, frames: u32, now: impl FnOnce() -> Instant) -> bool {
        self.bytes -= i64::from(frames) * FRAME_BYTES;
        if self.bytes < 0 {
            let now = now();
            let millis = i64::try_from((now - self.filled).as_millis()).unwrap_or(i64::MAX);
            let bytes = millis.saturating_mul(FRAMES_PER_S * FRAME_BYTES) / 1000;
            self.bytes = self.bytes.saturating_add(bytes).min(Self::BYTES_MAX);
            self.filled = now;
        }
        0 <= self.bytes
    }
}

impl<S: Socket> AsyncRead for Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut it.inner).poll_read(cx, buf))?;
        if buf.filled().len() == before && 0 < buf.remaining() {
            return it.poll_end(cx);
        }
        let frames = it.frames.on_bytes(&buf.filled()[before..]);
        if 0 < frames && !it.budget.pay(frames, Instant::now) {
            let why = "the client sends too many frames that carry nothing";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let it = self.get_mut();
        let written = Pin::new(&mut it.inner).poll_write(cx, buf);
        it.on_write(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let it = self.get_mut();
        let written = Pin::new(&mut it.inner).poll_write_vectored(cx, bufs);
        it.on_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        match Pin::new(&mut it.inner).poll_flush(cx) {
            // What was flushed says nothing of a write that waits.
            Poll::Ready(flushed) => Poll::Ready(flushed),
            Poll::Pending => it.on_write(cx, Poll::Pending).map_ok(drop),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        match Pin::new(&mut it.inner).poll_shutdown(cx) {
            Poll::Ready(shut) => Poll::Ready(shut),
            Poll::Pending => it.on_write(cx, Poll::Pending).map_ok(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    impl Socket for tokio::io::DuplexStream {
        fn is_refused(&self) -> Option<bool> {
            None
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up_and_one_that_is_slow_is_not() {
        let (inner, mut client) = duplex(64);
        let mut guard = Guard::new(inner, LIMIT);
        let slow = async {
            for _ in 0..10 {
                sleep(Duration::from_secs(29)).await;
                client.read_exact(&mut [0; 64]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(guard.write_all(&[0; 64 * 11]), slow);
        written.unwrap();
        let began = Instant::now();
        let error = guard.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, LIMIT));
    }

    #[test]
    fn a_flood_of_frames_is_not_paid_for_and_a_steady_few_are() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        assert!(budget.pay(3_000, || now));
        assert!(!budget.pay(1, || now));
        let mut budget = Budget::new(now);
        for second in 1..1_000 {
            assert!(budget.pay(900, || now + Duration::from_secs(second)));
        }
    }

    #[test]
    fn answers_pay_for_the_frames_by_which_they_are_taken() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        for _ in 0..1_000_000 {
            // An event of a stream, and a window update each for the stream and the connection.
            budget.earn(200);
            assert!(budget.pay(2, || now));
        }
        // A ping is answered with as many bytes as it has.
        let pings = (0..1_000_000).take_while(|_| {
            budget.earn(17);
            budget.pay(1, || now)
        });
        assert!(pings.count() < 20_000);
    }
}
