//! How two routers know each other: both show that they know the secret, by a keyed hash over what both drew by chance,
//! and every frame after that carries a hash under keys of this connection. The secret never travels, nothing of one
//! connection can be played back in another, and no frame can be changed, left out or put in on the way.

use std::io;

use aws_lc_rs::{hmac, rand};
use bytes::{Buf as _, BytesMut};
use cleave_core::cluster::FRAME_BYTES_MAX;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};

use super::securing::PeerSocket;

const MAGIC: &[u8; 8] = b"cleave/1";
const NONCE: usize = 32;
/// What TLS begins with where the other end expects none: an alert, or a handshake.
const RECORDS: [u8; 2] = [21, 22];
/// Bytes of the hash that a frame carries.
const MARK: usize = 16;
/// Bytes of the length before a frame.
const LENGTH: usize = 4;

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Dialled,
    Accepted,
}

impl Side {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Dialled => b"dialled",
            Self::Accepted => b"accepted",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Dialled => Self::Accepted,
            Self::Accepted => Self::Dialled,
        }
    }
}

/// Why a connection is no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0}")]
    Io(io::Error),
    #[error("it did not introduce itself in time")]
    Late,
    #[error("it is no router of this kind")]
    Stranger,
    #[error("one of the two has a secret and the other has none; set cluster.secret_file at both")]
    Uneven,
    #[error("its certificate is refused: {0}")]
    Certificate(String),
    #[error("it refuses the certificate of this router: {0}")]
    NotAccepted(String),
    #[error("it does not speak TLS and this router does; set cluster.tls at both")]
    Plain,
    #[error("it speaks TLS and this router does not; set cluster.tls at both")]
    Encrypted,
    #[error("no TLS with it: {0}")]
    Tls(String),
    #[error("it does not know the secret")]
    Unproven,
    #[error("a frame was not sent by it, or is too long")]
    Forged,
}

impl Refused {
    /// Says in a word why.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Io(_) => "lost",
            Self::Late => "late",
            Self::Stranger | Self::Forged => "stranger",
            Self::Uneven | Self::Unproven => "secret",
            Self::Certificate(_) | Self::NotAccepted(_) => "certificate",
            Self::Plain | Self::Encrypted => "plain",
            Self::Tls(_) => "tls",
        }
    }

    /// Tells whether an operator can mend it.
    pub(super) const fn is_alert(&self) -> bool {
        !matches!(self, Self::Io(_) | Self::Late | Self::Stranger | Self::Forged)
    }
}

/// A connection on which both have shown that they know the secret.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) reading: ReadHalf<Box<dyn PeerSocket>>,
    pub(super) writing: WriteHalf<Box<dyn PeerSocket>>,
    pub(super) seal: Seal,
    pub(super) open: Seal,
}

/// Marks the frames of one direction.
#[derive(Debug)]
pub(super) struct Seal {
    /// `None` where there is no secret.
    key: Option<hmac::Key>,
    count: u64,
}

/// Introduces this router and checks the other.
pub(super) async fn shake(
    mut stream: Box<dyn PeerSocket>,
    side: Side,
    secret: Option<&[u8]>,
) -> Result<Session, Refused> {
    let mut own = [0; NONCE];
    rand::fill(&mut own).map_err(|_| io::Error::other("no randomness"))?;
    let mut opening = Vec::with_capacity(MAGIC.len() + 1 + NONCE);
    opening.extend_from_slice(MAGIC);
    opening.push(secret.is_some().into());
    opening.extend_from_slice(&own);
    stream.write_all(&opening).await?;
    stream.flush().await?;
    let mut theirs = [0; MAGIC.len() + 1 + NONCE];
    let (first, others) = theirs.split_at_mut(1);
    stream.read_exact(first).await?;
    if RECORDS.contains(&first[0]) {
        return Err(Refused::Encrypted);
    }
    stream.read_exact(others).await?;
    let (magic, rest) = theirs.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(Refused::Stranger);
    }
    if rest[0] != u8::from(secret.is_some()) {
        return Err(Refused::Uneven);
    }
    let nonces = match side {
        Side::Dialled => [&own, &rest[1..]].concat(),
        Side::Accepted => [&rest[1..], &own].concat(),
    };
    let Some(secret) = secret else {
        let [seal, open] = [(); 2].map(|()| Seal { key: None, count: 0 });
        let (reading, writing) = split(stream);
        return Ok(Session { reading, writing, seal, open });
    };
    let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let text = |kind: &[u8], side: Side| [kind, side.label(), &nonces].concat();
    stream.write_all(hmac::sign(&secret, &text(b"proof", side)).as_ref()).await?;
    stream.flush().await?;
    let mut proof = [0; 32];
    stream.read_exact(&mut proof).await?;
    hmac::verify(&secret, &text(b"proof", side.other()), &proof).map_err(|_| Refused::Unproven)?;
    let seal = |side| {
        let key = hmac::sign(&secret, &text(b"frames", side));
        Seal { key: Some(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref())), count: 0 }
    };
    let (reading, writing) = split(stream);
    Ok(Session { reading, writing, seal: seal(side), open: seal(side.other()) })
}

impl Seal {
    /// Writes a frame with its length and its mark.
    pub(super) fn write(&mut self, frame: &[u8], into: &mut BytesMut) {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        into.extend_from_slice(&length.to_le_bytes());
        into.extend_from_slice(frame);
        let mark = self.mark(frame);
        into.extend_from_slice(&mark[..self.marked()]);
    }

    /// Takes the next frame out of what has come, if it is there.
    pub(super) fn read(&mut self, from: &mut BytesMut) -> Result<Option<BytesMut>, Refused> {
        let Some(length) = from.first_chunk::<LENGTH>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if FRAME_BYTES_MAX < length {
            return Err(Refused::Forged);
        }
        let marked = self.marked();
        if from.len() < LENGTH + length + marked {
            return Ok(None);
        }
        from.advance(LENGTH);
        let frame = from.split_to(length);
        let mark = from.split_to(marked);
        let expected = self.mark(&frame);
        if crate::proxy::equal_in_constant_time(&mark, &expected[..marked]) {
            Ok(Some(frame))
        } else {
            Err(Refused::Forged)
        }
    }

    fn marked(&self) -> usize {
        if self.key.is_some() { MARK } else { 0 }
    }

    /// Hashes a frame with its number in this direction.
    fn mark(&mut self, frame: &[u8]) -> [u8; MARK] {
        let mut mark = [0; MARK];
        if let Some(key) = &self.key {
            let mut context = hmac::Context::with_key(key);
            context.update(&self.count.to_le_bytes());
            context.update(frame);
            mark.copy_from_slice(&context.sign().as_ref()[..MARK]);
            self.count += 1;
        }
        mark
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn pair(one: Option<&[u8]>, other: Option<&[u8]>) -> [Result<Session, Refused>; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let both = tokio::join!(
            shake(Box::new(dialled), Side::Dialled, one),
            shake(Box::new(accepted), Side::Accepted, other)
        );
        [both.0, both.1]
    }

    #[tokio::test]
    async fn those_that_know_the_secret_read_each_other_and_nothing_that_was_changed() {
        let [one, other] = pair(Some(b"secret"), Some(b"secret")).await;
        let (mut one, mut other) = (one.unwrap(), other.unwrap());
        let mut wire = BytesMut::new();
        for text in [&b"first"[..], b"", b"third"] {
            one.seal.write(text, &mut wire);
        }
        let mut half = wire.split_to(7);
        assert!(other.open.read(&mut half).unwrap().is_none(), "it is not all there");
        half.unsplit(wire);
        let mut wire = half;
        assert_eq!(other.open.read(&mut wire).unwrap().unwrap(), &b"first"[..]);
        assert_eq!(other.open.read(&mut wire).unwrap().unwrap(), &b""[..]);
        let mut again = wire.clone();
        wire[5] ^= 1;
        assert!(matches!(other.open.read(&mut wire), Err(Refused::Forged)));
        // Nor can one be played back: each is read in its turn only.
        assert!(matches!(other.open.read(&mut again), Err(Refused::Forged)));
        let mut long = BytesMut::from(&u32::MAX.to_le_bytes()[..]);
        assert!(matches!(one.open.read(&mut long), Err(Refused::Forged)));
    }

    #[tokio::test]
    async fn those_that_do_not_are_refused() {
        for it in pair(Some(b"secret"), Some(b"another")).await {
            assert!(matches!(it, Err(Refused::Unproven | Refused::Io(_))), "{it:?}");
        }
        for it in pair(Some(b"secret"), None).await {
            assert!(matches!(it, Err(Refused::Uneven | Refused::Io(_))), "{it:?}");
        }
        assert!(pair(None, None).await.iter().all(Result::is_ok));
    }
}
