//! Where an HTTP/1.1 answer's body ends: by length, by chunks, or with the connection (RFC 9112,
//! section 6.3). Bytes in, bytes out, no sockets. hyper's client does this too, behind a task, two
//! channels and a wake-up per piece; a stream of tokens is nothing but small pieces, and this is
//! most of what they cost.

use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};

/// A replica that needs more than this to begin its answer is broken.
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;
/// A chunk's size line with extensions, or a line of a trailer section.
const LINE_BYTES_MAX: usize = 8 << 10;
const LINE_END: &[u8] = b"\r\n";
/// Interim answers (1xx) before the answer itself. A replica that sends more would keep the router busy
/// until its patience ends.
const INTERIM_MAX: u32 = 16;
/// Lines of a trailer section, for the same reason.
const TRAILERS_MAX: u32 = 128;

/// What a replica sent is not HTTP/1.1 as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    #[error("malformed head")]
    Head,
    #[error("head larger than 64 KiB")]
    HeadTooLarge,
    #[error("unexpected switch of protocols")]
    Switched,
    #[error("more than {INTERIM_MAX} interim answers")]
    Interim,
    #[error("contradictory or malformed length")]
    Length,
    #[error("malformed chunk")]
    Chunk,
}

/// The head of an answer, and how its body is framed.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) framing: Framing,
    /// Whether the connection may serve another request afterwards.
    pub(super) keeps_alive: bool,
}

/// Takes the head off the buffer once it is whole. Interim answers (1xx) are passed over, and counted in
/// `interim` over all calls for one answer.
pub(super) fn take_head(
    buffer: &mut BytesMut,
    method: &Method,
    interim: &mut u32,
) -> Result<Option<Head>, BadAnswer> {
    loop {
        let Some(parsed) = parse_head(buffer)? else {
            let full = HEAD_BYTES_MAX <= buffer.len();
            return if full { Err(BadAnswer::HeadTooLarge) } else { Ok(None) };
        };
        let (status, version, headers) = parsed;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(BadAnswer::Switched);
        }
        if status.is_informational() {
            *interim += 1;
            if INTERIM_MAX < *interim {
                return Err(BadAnswer::Interim);
            }
            continue;
        }
        let framing = Framing::of(method, status, &headers)?;
        let keeps_alive = version == Version::HTTP_11
            && framing != Framing::UntilClose
            && !says_close(&headers)
            && !(headers.contains_key(header::TRANSFER_ENCODING)
                && headers.contains_key(header::CONTENT_LENGTH));
        return Ok(Some(Head { status, headers, framing, keeps_alive }));
    }
}

type Parsed = (StatusCode, Version, HeaderMap);

fn parse_head(buffer: &mut BytesMut) -> Result<Option<Parsed>, BadAnswer> {
    if buffer.is_empty() {
        // As before the first read of each answer.
        return Ok(None);
    }
    // Room for all headers that may come; most answers have a few, so it is not filled beforehand.
    let mut slots = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let length = match parser.parse_response_with_uninit_headers(&mut head, buffer, &mut slots) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(BadAnswer::Head),
    };
    let status = head.code.and_then(|it| StatusCode::from_u16(it).ok()).ok_or(BadAnswer::Head)?;
    let version = if head.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    // Values are cut out of the received bytes, not copied; so note where they stand first.
    let base = buffer.as_ptr().addr();
    let mut spans = Vec::with_capacity(head.headers.len());
    for it in head.headers.iter() {
        let name = HeaderName::from_bytes(it.name.as_bytes()).map_err(|_| BadAnswer::Head)?;
        let start = it.value.as_ptr().addr() - base;
        spans.push((name, start..start + it.value.len()));
    }
    let received = buffer.split_to(length).freeze();
    let mut headers = HeaderMap::with_capacity(spans.len() + 2);
    for (name, span) in spans {
        let value = HeaderValue::from_maybe_shared(received.slice(span));
        headers.append(name, value.map_err(|_| BadAnswer::Head)?);
    }
    Ok(Some((status, version, headers)))
}

fn says_close(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|value| {
        value
            .as_bytes()
            .split(|it| *it == b',')
            .any(|it| it.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}

/// How much of a body is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes.
    Length(u64),
    Chunked(Chunk),
    UntilClose,
    /// Nothing: the body is whole.
    Done,
}

/// Where in a chunked body we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    Size,
    Data(u64),
    DataEnd,
    /// After this many trailer lines.
    Trailers(u32),
}

impl Framing {
    fn of(method: &Method, status: StatusCode, headers: &HeaderMap) -> Result<Self, BadAnswer> {
        let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if method == Method::HEAD || bodiless {
            return Ok(Self::Done);
        }
        if let Some(coding) = headers.get_all(header::TRANSFER_ENCODING).iter().next_back() {
            let last = coding.as_bytes().rsplit(|it| *it == b',').next().unwrap_or_default();
            let chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            return if chunked { Ok(Self::Chunked(Chunk::Size)) } else { Ok(Self::UntilClose) };
        }
        let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter().map(parse_length);
        let Some(first) = lengths.next() else { return Ok(Self::UntilClose) };
        let length = first.ok_or(BadAnswer::Length)?;
        if !lengths.all(|it| it == Some(length)) {
            return Err(BadAnswer::Length);
        }
        Ok(if length == 0 { Self::Done } else { Self::Length(length) })
    }

    /// Moves up to the first byte of the body. Tells whether that is there, or the body is known to be
    /// empty; an error if what comes instead is no body.
    pub(super) fn begin(&mut self, buffer: &mut BytesMut) -> Result<bool, BadAnswer> {
        while let Self::Chunked(chunk) = self
            && !matches!(chunk, Chunk::Data(_))
        {
            match chunk.step(buffer)? {
                Step::More => return Ok(false),
                Step::To(next) => *self = Self::Chunked(next),
                Step::End => *self = Self::Done,
            }
        }
        Ok(self.is_done() || !buffer.is_empty())
    }

    /// Takes the next piece of the body off the buffer; `None` when more must be received first, or
    /// when the body is done.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, BadAnswer> {
        loop {
            match self {
                Self::Done => return Ok(None),
                Self::UntilClose => {
                    return Ok((!buffer.is_empty()).then(|| buffer.split().freeze()));
                }
                Self::Length(left) => {
                    let piece = take_up_to(buffer, left);
                    if *left == 0 {
                        *self = Self::Done;
                    }
                    return Ok(piece);
                }
                Self::Chunked(Chunk::Data(left)) => {
                    let piece = take_up_to(buffer, left);
                    if *left == 0 {
                        *self = Self::Chunked(Chunk::DataEnd);
                    }
                    return Ok(piece);
                }
                Self::Chunked(chunk) => match chunk.step(buffer)? {
                    Step::More => return Ok(None),
                    Step::To(next) => *self = Self::Chunked(next),
                    Step::End => *self = Self::Done,
                },
            }
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

enum Step {
    More,
    To(Chunk),
    End,
}

impl Chunk {
    /// Moves over what stands between pieces of data.
    fn step(self, buffer: &mut BytesMut) -> Result<Step, BadAnswer> {
        match self {
            Self::Data(_) => Ok(Step::To(self)),
            Self::DataEnd => {
                if buffer.len() < LINE_END.len() {
                    return Ok(Step::More);
                }
                if !buffer.starts_with(LINE_END) {
                    return Err(BadAnswer::Chunk);
                }
                buffer.advance(LINE_END.len());
                Ok(Step::To(Self::Size))
            }
            Self::Size => {
                let Some(length) = line_length(buffer)? else { return Ok(Step::More) };
                let size = chunk_size(&buffer[..length]).ok_or(BadAnswer::Chunk)?;
                buffer.advance(length + LINE_END.len());
                Ok(Step::To(if size == 0 { Self::Trailers(0) } else { Self::Data(size) }))
            }
            Self::Trailers(lines) => {
                let Some(length) = line_length(buffer)? else { return Ok(Step::More) };
                buffer.advance(length + LINE_END.len());
                match length {
                    0 => Ok(Step::End),
                    _ if lines == TRAILERS_MAX => Err(BadAnswer::Chunk),
                    _ => Ok(Step::To(Self::Trailers(lines + 1))),
                }
            }
        }
    }
}

fn take_up_to(buffer: &mut BytesMut, left: &mut u64) -> Option<Bytes> {
    if buffer.is_empty() {
        return None;
    }
    let held = u64::try_from(buffer.len()).unwrap_or(u64::MAX);
    let piece = buffer.split_to(usize::try_from(held.min(*left)).unwrap_or(buffer.len())).freeze();
    *left -= u64::try_from(piece.len()).unwrap_or(*left);
    Some(piece)
}

/// Measures the first line without its end, which must be CRLF; `None` until the line is whole. The line
/// stays where it is: cutting it out of the buffer would cost more than reading it.
fn line_length(buffer: &[u8]) -> Result<Option<usize>, BadAnswer> {
    let within = &buffer[..buffer.len().min(LINE_BYTES_MAX)];
    let Some(end) = within.iter().position(|it| *it == b'\n') else {
        return if LINE_BYTES_MAX <= buffer.len() { Err(BadAnswer::Chunk) } else { Ok(None) };
    };
    let line = buffer[..=end].strip_suffix(LINE_END).ok_or(BadAnswer::Chunk)?;
    Ok(Some(line.len()))
}

/// Reads the hexadecimal size before any extension.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|it| *it == b';').next()?.trim_ascii();
    // 15 digits cannot overflow and are a petabyte.
    if digits.is_empty() || 15 < digits.len() {
        return None;
    }
    digits.iter().try_fold(0, |size, it| Some(size << 4 | u64::from(char::from(*it).to_digit(16)?)))
}

/// Reads a length that is digits and nothing else: `+5` is no length.
fn parse_length(value: &HeaderValue) -> Option<u64> {
    let digits = value.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
