//! One HTTP/1.1 connection to one replica: a request goes out in one write where it can, the head
//! of the answer is read, the body is left to [`Answer`]. It has no task of its own: the task that
//! waits for the answer drives it, and dropping it hangs up, which is how engines learn of a
//! client's leaving.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::Method;
use http_body::Body;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::access::Target;
use super::answer::Answer;
use super::framing::{BadAnswer, Head, take_head};
use super::stream::Stream;
use super::upload::{BodyError, Upload};

/// What one read takes at least. Token events are a few hundred bytes; more would lie idle in every
/// stream.
pub(super) const READ_BYTES_MIN: usize = 4 << 10;

/// Why there is no answer. Nothing of one has been passed on yet, so the request may go elsewhere.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// Not the replica's fault.
    #[error("this router has no file or port left to connect with: {0}")]
    Exhausted(io::Error),
    #[error("no TLS with it: {0}")]
    Tls(io::Error),
    #[error("cannot connect in time")]
    ConnectTimeout,
    #[error("connection lost: {0}")]
    Lost(io::Error),
    #[error("connection lost, and nothing listens there any more: {0}")]
    Died(io::Error),
    #[error("no answer in time")]
    NoAnswer,
    #[error("given up, because the replica hangs")]
    GivenUp,
    #[error("the answer broke off after its head: {0}")]
    BrokenOff(io::Error),
    #[error("not an HTTP answer: {0}")]
    BadAnswer(#[from] BadAnswer),
    /// Not the replica's fault.
    #[error("the client's body: {0}")]
    Body(BodyError),
}

/// How many pieces go out in one write; a head has two.
const WRITE_PIECES_MAX: usize = 8;

/// A request body that is held whole, so that it can be sent again. In pieces, because parts of it may
/// have been left out or replaced.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    first: Bytes,
    rest: Vec<Bytes>,
}

impl Payload {
    /// Takes a body as it is.
    pub const fn whole(body: Bytes) -> Self {
        Self { first: body, rest: Vec::new() }
    }

    /// Takes a body with other text in place of some parts, which are given in order and do not overlap.
    pub fn edited(body: &Bytes, edits: &[(Range<usize>, String)]) -> Self {
        let Some((Range { start, .. }, _)) = edits.first() else {
            return Self::whole(body.clone());
        };
        let ends = edits.iter().skip(1).map(|(span, _)| span.start).chain([body.len()]);
        let mut rest = Vec::with_capacity(2 * edits.len());
        for ((Range { end, .. }, text), next) in edits.iter().zip(ends) {
            rest.push(Bytes::copy_from_slice(text.as_bytes()));
            rest.push(body.slice(*end..next));
        }
        rest.retain(|it| !it.is_empty());
        Self { first: body.slice(..*start), rest }
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.first).chain(&self.rest).map(|it| &it[..])
    }

    pub fn len(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts it together in one piece.
    pub fn to_bytes(&self) -> Bytes {
        if self.rest.is_empty() {
            return self.first.clone();
        }
        let mut all = Vec::with_capacity(self.len());
        for piece in self.pieces() {
            all.extend_from_slice(piece);
        }
        all.into()
    }
}

/// What goes out after the head.
#[derive(Debug)]
pub enum OutgoingBody<'a, B> {
    Held(&'a Payload),
    /// Passed on as it comes, in chunks if the client did not say how long it is. `limit` is for
    /// the replica to take each piece.
    Passing {
        body: Upload<B>,
        chunked: bool,
        limit: Duration,
    },
}

/// Tells whether the router's own resources ran out: too many open files in this process or on
/// this machine, for which the standard library has no names, or no local port.
fn why_not_connected(error: io::Error) -> SendError {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let is_full = matches!(error.raw_os_error(), Some(ENFILE | EMFILE));
    if is_full || error.kind() == io::ErrorKind::AddrNotAvailable {
        SendError::Exhausted(error)
    } else {
        SendError::Connect(error)
    }
}

async fn open_stream(target: Target<'_>) -> Result<Stream, SendError> {
    let Target { origin, access } = target;
    let stream = TcpStream::connect(origin.authority()).await.map_err(why_not_connected)?;
    stream.set_nodelay(true).map_err(SendError::Connect)?;
    if !origin.is_secure() {
        return Ok(Stream::Plain(stream));
    }
    let refused = |why: &str| SendError::Tls(io::Error::new(io::ErrorKind::InvalidInput, why));
    let tls = access.tls.as_ref().ok_or_else(|| refused("no CA certificates to check it by"))?;
    let name = tls.server_name(origin.host()).ok_or_else(|| refused("its host is no name"))?;
    let shaken = tls.connector().connect(name, stream).await.map_err(SendError::Tls)?;
    Ok(Stream::Tls(Box::new(shaken)))
}

#[derive(Debug)]
pub struct Connection {
    pub(super) stream: Stream,
    pub(super) buffer: BytesMut,
}

impl Connection {
    pub async fn open(target: Target<'_>, limit: Duration) -> Result<Self, SendError> {
        let opened = timeout(limit, open_stream(target)).await;
        let stream = opened.map_err(|_| SendError::ConnectTimeout)??;
        Ok(Self { stream, buffer: BytesMut::new() })
    }

    /// Tells whether an idle connection still stands: nothing may have come on it, least of all
    /// its end.
    pub fn is_fresh(&mut self) -> bool {
        self.stream.is_quiet() && self.buffer.is_empty()
    }

    /// Sends a request and waits for the head of its answer and the first of its body: engines send
    /// the head of a stream at once, and lose it as long as they compute the prompt. `head` ends with
    /// the empty line.
    pub async fn exchange<B>(
        mut self,
        method: &Method,
        head: [&[u8]; 2],
        outgoing: OutgoingBody<'_, B>,
        limit: Duration,
    ) -> Result<Answer, SendError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let sent = match outgoing {
            OutgoingBody::Held(payload) => self.send_held(head, payload, limit).await,
            OutgoingBody::Passing { body, chunked, limit } => {
                self.send_passing(head, body, chunked, limit).await
            }
        };
        match sent {
            Ok(()) => in_time(limit, self.answer(method)).await,
            // A replica may refuse a large body by answering and hanging up: prefer what it said.
            Err(SendError::Lost(lost)) => {
                let answered = in_time(limit, self.answer(method)).await;
                answered.map_err(|_| SendError::Lost(lost))
            }
            Err(error) => Err(error),
        }
    }

    async fn answer(mut self, method: &Method) -> Result<Answer, SendError> {
        let head = self.read_head(method).await?;
        let mut answer = Answer::new(head, self);
        answer.body.begin().await?;
        Ok(answer)
    }

    async fn send_held(
        &mut self,
        head: [&[u8]; 2],
        payload: &Payload,
        limit: Duration,
    ) -> Result<(), SendError> {
        let mut sent = 0;
        loop {
            let mut slices = [IoSlice::new(&[]); WRITE_PIECES_MAX];
            let pieces = head.into_iter().chain(payload.pieces()).skip(sent);
            let filled = slices.iter_mut().zip(pieces).map(|(slice, it)| *slice = IoSlice::new(it));
            let count = filled.count();
            if count == 0 {
                return self.flush(limit).await;
            }
            sent += count;
            self.write_slices(&mut slices, limit).await?;
        }
    }

    /// Sees what was written onto the wire: TLS may still hold some of it.
    async fn flush(&mut self, limit: Duration) -> Result<(), SendError> {
        at_once_or_in_time(limit, async { self.stream.flush().await.map_err(SendError::Lost) })
            .await
    }

    async fn write_slices(
        &mut self,
        mut left: &mut [IoSlice<'_>],
        limit: Duration,
    ) -> Result<(), SendError> {
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let write = async { self.stream.write_vectored(left).await.map_err(SendError::Lost) };
            let written = at_once_or_in_time(limit, write).await?;
            if written == 0 {
                return Err(SendError::Lost(io::ErrorKind::WriteZero.into()));
            }
            IoSlice::advance_slices(&mut left, written);
        }
        Ok(())
    }

    async fn send_passing<B>(
        &mut self,
        head: [&[u8]; 2],
        mut body: Upload<B>,
        chunked: bool,
        limit: Duration,
    ) -> Result<(), SendError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        self.send_held(head, &Payload::default(), limit).await?;
        while let Some(data) = body.next().await.map_err(SendError::Body)? {
            let size = if chunked { format!("{:x}\r\n", data.len()) } else { String::new() };
            let end: &[u8] = if chunked { b"\r\n" } else { b"" };
            let mut piece = Buf::chain(size.as_bytes(), data).chain(end);
            let written = self.stream.write_all_buf(&mut piece);
            in_time(limit, async { written.await.map_err(SendError::Lost) }).await?;
        }
        if chunked {
            self.stream.write_all(b"0\r\n\r\n").await.map_err(SendError::Lost)?;
        }
        self.flush(limit).await
    }

    async fn read_head(&mut self, method: &Method) -> Result<Head, SendError> {
        let mut interim = 0;
        loop {
            if let Some(head) = take_head(&mut self.buffer, method, &mut interim)? {
                return Ok(head);
            }
            self.buffer.reserve(READ_BYTES_MIN);
            let read = self.stream.read_buf(&mut self.buffer).await.map_err(SendError::Lost)?;
            if read == 0 {
                return Err(SendError::Lost(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}

/// Waits no longer than `limit`; a replica that takes nothing in that time does not answer either.
async fn in_time<T>(
    limit: Duration,
    what: impl Future<Output = Result<T, SendError>>,
) -> Result<T, SendError> {
    timeout(limit, what).await.unwrap_or(Err(SendError::NoAnswer))
}

/// The same for what is nearly always done at once: setting a timer costs more than a look.
async fn at_once_or_in_time<T>(
    limit: Duration,
    what: impl Future<Output = Result<T, SendError>>,
) -> Result<T, SendError> {
    let mut what = pin!(what);
    match poll_fn(|cx| Poll::Ready(what.as_mut().poll(cx))).await {
        Poll::Ready(done) => done,
        Poll::Pending => in_time(limit, what).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_files_or_ports_is_our_own_fault_and_no_replica_is_blamed() {
        let why = |code| why_not_connected(io::Error::from_raw_os_error(code));
        assert!(matches!(why(24), SendError::Exhausted(_)), "too many open files");
        let no_port = io::Error::from(io::ErrorKind::AddrNotAvailable);
        assert!(matches!(why_not_connected(no_port), SendError::Exhausted(_)));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(matches!(why_not_connected(refused), SendError::Connect(_)));
    }
}
