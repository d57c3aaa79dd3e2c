//! A client's body on its way in, and how slow it may be. What counts is the time that is spent waiting
//! for the client: neither a router that waits for room nor a replica that takes a body slowly makes a
//! client late.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout};

/// Why a client's body did not arrive whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("it broke off")]
    Broken,
    #[error("it is larger than allowed")]
    TooLarge,
    #[error("it did not come in time")]
    TimedOut,
    #[error("it came too slowly")]
    TooSlow,
}

/// What a client's body is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadLimits {
    pub bytes_max: usize,
    /// Between two pieces.
    pub piece: Duration,
    /// For all of it.
    pub whole: Duration,
    /// On the average, once `piece` has passed.
    pub bytes_per_s_min: u64,
}

#[derive(Debug)]
pub struct Upload<B> {
    body: B,
    limits: UploadLimits,
    /// Time spent waiting for the client.
    waited: Duration,
    bytes: usize,
}

impl<B> Upload<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    pub const fn new(body: B, limits: UploadLimits) -> Self {
        Self { body, limits, waited: Duration::ZERO, bytes: 0 }
    }

    /// How long the body is, if its head said so.
    pub fn length(&self) -> Option<usize> {
        self.body.size_hint().exact().map(|it| usize::try_from(it).unwrap_or(usize::MAX))
    }

    /// Waits for the next piece, which is not empty; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let (limit, late) = self.allowance();
            let began = Instant::now();
            let came = timeout(limit, self.body.frame()).await;
            self.waited += began.elapsed();
            let Some(frame) = came.map_err(|_| late)? else { return Ok(None) };
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
            if data.is_empty() {
                continue;
            }
            self.bytes = self.bytes.saturating_add(data.len());
            if self.limits.bytes_max < self.bytes {
                return Err(BodyError::TooLarge);
            }
            return Ok(Some(data));
        }
    }

    /// Says how long the next piece may take, and what it means when it takes longer.
    fn allowance(&self) -> (Duration, BodyError) {
        let UploadLimits { piece, whole, bytes_per_s_min, .. } = self.limits;
        let bytes = u64::try_from(self.bytes).unwrap_or(u64::MAX);
        let millis = bytes.saturating_mul(1000) / bytes_per_s_min.max(1);
        let by_rate = piece.saturating_add(Duration::from_millis(millis));
        let in_time = piece.min(whole.saturating_sub(self.waited));
        let fast_enough = by_rate.saturating_sub(self.waited);
        // Where nothing comes for most of the time for a piece, that is the matter.
        let late = if fast_enough < in_time / 2 { BodyError::TooSlow } else { BodyError::TimedOut };
        (fast_enough.min(in_time), late)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream::unfold;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tokio::time::sleep;

    use super::*;

    const LIMITS: UploadLimits = UploadLimits {
        bytes_max: 100_000,
        piece: Duration::from_secs(30),
        whole: Duration::from_secs(600),
        bytes_per_s_min: 1024,
    };

    /// Reads a body that comes in `pieces` pieces of `bytes`, one every `pause`; says how it went and how
    /// long it took.
    async fn read(
        bytes: usize,
        pause: Duration,
        pieces: usize,
    ) -> (Result<usize, BodyError>, Duration) {
        let frames = Box::pin(unfold(pieces, |left| async move {
            sleep(pause).await;
            let data = Frame::data(Bytes::from(vec![0; bytes]));
            (0 < left).then(|| (Ok::<_, Infallible>(data), left - 1))
        }));
        let (mut upload, began) = (Upload::new(StreamBody::new(frames), LIMITS), Instant::now());
        let mut sum = 0;
        let read = loop {
            match upload.next().await {
                Ok(Some(piece)) => sum += piece.len(),
                Ok(None) => break Ok(sum),
                Err(error) => break Err(error),
            }
        };
        (read, began.elapsed())
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_is_late_after_the_time_for_a_piece() {
        assert_eq!(read(99, s(31), 2).await, (Err(BodyError::TimedOut), s(30)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_now_and_then_is_too_slow_after_the_same_time() {
        let (read, took) = read(1, s(20), 99).await;
        assert_eq!(read, Err(BodyError::TooSlow));
        assert!((s(30)..s(31)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_may_take_as_long_as_its_bytes_allow() {
        // 2 KiB every 2 s is just fast enough, and 1.5 KiB is not.
        assert_eq!(read(2048, s(2), 40).await.0, Ok(2048 * 40));
        assert_eq!(read(1500, s(2), 60).await.0, Err(BodyError::TooSlow));
    }

    #[tokio::test(start_paused = true)]
    async fn no_body_takes_longer_than_all_of_it_may() {
        let slow = UploadLimits { bytes_per_s_min: 1, ..LIMITS };
        let frames = Box::pin(unfold((), |()| async {
            sleep(s(20)).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0; 100]))), ()))
        }));
        let (mut upload, began) = (Upload::new(StreamBody::new(frames), slow), Instant::now());
        let error = loop {
            if let Err(error) = upload.next().await {
                break error;
            }
        };
        assert_eq!((error, began.elapsed()), (BodyError::TimedOut, s(600)));
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_waits_for_the_client_does_not_count() {
        let frames = Box::pin(unfold((), |()| async {
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))), ()))
        }));
        let mut upload = Upload::new(StreamBody::new(frames), LIMITS);
        for _ in 0..100 {
            sleep(s(20)).await;
            assert_eq!(upload.next().await, Ok(Some(Bytes::from_static(b"x"))));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_cut_at_its_largest_size_and_empty_pieces_are_none() {
        assert_eq!(read(60_000, s(0), 2).await.0, Err(BodyError::TooLarge));
        assert_eq!(read(0, s(20), 9).await.0, Err(BodyError::TooSlow), "nothing came");
    }
}
