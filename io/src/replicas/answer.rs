//! The answer of a replica: its head, and a body that is read only as fast as it is taken.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio_util::io::poll_read_buf;

use super::connection::{Connection, READ_BYTES_MIN, SendError};
use super::framing::{BadAnswer, Framing, Head};

/// An answer of known length up to this is waited for whole, so that one that breaks off can be asked
/// for elsewhere. Its reader could do nothing with half of it.
const WHOLE_BYTES_MAX: u64 = 64 << 10;
/// What one read takes at most, once a body has shown that it fills smaller ones.
const READ_BYTES_MAX: usize = 128 << 10;

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: AnswerBody,
}

impl Answer {
    pub(super) fn new(head: Head, connection: Connection) -> Self {
        let Head { status, headers, framing, keeps_alive } = head;
        let body = AnswerBody { connection, framing, keeps_alive, read_bytes: READ_BYTES_MIN };
        Self { status, headers, body }
    }
}

#[derive(Debug)]
pub struct AnswerBody {
    connection: Connection,
    framing: Framing,
    keeps_alive: bool,
    read_bytes: usize,
}

impl AnswerBody {
    /// Waits until something of the body has come, if anything is to come; all of it, if it is short.
    /// What stands in its place and is no body is an error, while the request can still go elsewhere.
    pub(super) async fn begin(&mut self) -> Result<(), SendError> {
        while !self.has_begun()? {
            match poll_fn(|cx| self.poll_read(cx)).await.map_err(SendError::BrokenOff)? {
                0 if self.framing == Framing::UntilClose => self.framing = Framing::Done,
                0 => return Err(SendError::BrokenOff(io::ErrorKind::UnexpectedEof.into())),
                _ => {}
            }
        }
        Ok(())
    }

    fn has_begun(&mut self) -> Result<bool, BadAnswer> {
        match self.framing {
            Framing::Length(length @ ..=WHOLE_BYTES_MAX) => {
                Ok(usize::try_from(length).is_ok_and(|it| it <= self.connection.buffer.len()))
            }
            Framing::Length(_) | Framing::Chunked(_) | Framing::UntilClose | Framing::Done => {
                self.framing.begin(&mut self.connection.buffer)
            }
        }
    }

    /// Takes the next piece. `None` at its proper end; an error if it broke off.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match self.framing.take(&mut self.connection.buffer) {
                Ok(Some(piece)) => return Poll::Ready(Some(Ok(piece))),
                Ok(None) if self.framing.is_done() => return Poll::Ready(None),
                Ok(None) => {}
                Err(bad) => {
                    let error = io::Error::new(io::ErrorKind::InvalidData, bad);
                    return Poll::Ready(Some(Err(error)));
                }
            }
            match ready!(self.poll_read(cx)) {
                Ok(0) if self.framing == Framing::UntilClose => {
                    self.framing = Framing::Done;
                    return Poll::Ready(None);
                }
                Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// How long the body is, if its head said so.
    pub const fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(length) => Some(length),
            Framing::Done => Some(0),
            Framing::Chunked(_) | Framing::UntilClose => None,
        }
    }

    /// Tells whether everything was taken.
    pub const fn is_done(&self) -> bool {
        self.framing.is_done()
    }

    /// Gives the connection back when the body was read to its end and another request may follow.
    pub fn into_connection(self) -> Option<Connection> {
        let clean = self.framing.is_done() && self.connection.buffer.is_empty();
        (clean && self.keeps_alive).then_some(self.connection)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Connection { stream, buffer } = &mut self.connection;
        buffer.reserve(self.read_bytes);
        let read = ready!(poll_read_buf(Pin::new(stream), cx, buffer))?;
        if read == self.read_bytes {
            self.read_bytes = (2 * self.read_bytes).min(READ_BYTES_MAX);
        }
        Poll::Ready(Ok(read))
    }
}
