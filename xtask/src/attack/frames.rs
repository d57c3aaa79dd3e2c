//! HTTP/2 frame by frame, so that a client can be as rude as the protocol lets it: any frame at any
//! time, windows that never open, streams that are reset as soon as they are begun. Headers are written
//! without compression, and answers are not decompressed: their data says enough.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::client::bare;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// The setting that says how much of a stream may be sent before the reader asks for more.
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) struct Http2 {
    stream: TcpStream,
    next: u32,
}

#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Http2 {
    pub(super) fn open(address: SocketAddr, settings: &[(u16, u32)]) -> io::Result<Self> {
        let stream = bare(address)?;
        let mut http2 = Self { stream, next: 1 };
        http2.stream.write_all(PREFACE)?;
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        http2.write(&frame(SETTINGS, 0, 0, &payload))?;
        Ok(http2)
    }

    pub(super) fn write(&mut self, frames: &[u8]) -> io::Result<()> {
        self.stream.write_all(frames)
    }

    /// Begins a request and returns its stream.
    pub(super) fn begin(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        ends: bool,
    ) -> io::Result<u32> {
        let stream = self.next;
        self.next += 2;
        let pseudo =
            [(":method", method), (":scheme", "http"), (":path", path), (":authority", "router")];
        let mut block = Vec::new();
        for (name, value) in pseudo.iter().chain(headers) {
            write_header(&mut block, name, value);
        }
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        self.write(&frame(HEADERS, flags, stream, &block))?;
        Ok(stream)
    }

    /// Posts a JSON body, in as many frames as it needs, and returns the stream its answer comes on.
    pub(super) fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<u32> {
        let kind = [("content-type", "application/json")];
        let headers: Vec<(&str, &str)> = kind.iter().chain(headers).copied().collect();
        let stream = self.begin("POST", path, &headers, false)?;
        for piece in body.as_bytes().chunks(16_000) {
            self.write(&frame(DATA, 0, stream, piece))?;
        }
        self.write(&frame(DATA, END_STREAM, stream, b""))?;
        Ok(stream)
    }

    pub(super) fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.stream.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        Ok(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Reads the data of one answer; frames of other streams are passed over.
    pub(super) fn read_body(&mut self, stream: u32) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let frame = self.read()?;
            if frame.kind == GOAWAY || (frame.kind == RST_STREAM && frame.stream == stream) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if frame.stream == stream {
                if frame.kind == DATA {
                    body.extend_from_slice(&frame.payload);
                }
                if matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0 {
                    return Ok(body);
                }
            }
        }
    }

    /// Another handle on the connection, to read while this one writes.
    pub(super) fn reader(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }
}

impl Drop for Http2 {
    /// A clone may still read: the connection must end all the same.
    fn drop(&mut self) {
        _ = self.stream.shutdown(Shutdown::Both);
    }
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("frames are short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Writes a header that is neither compressed nor remembered.
pub(super) fn write_header(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        write_length(block, text.len());
        block.extend_from_slice(text.as_bytes());
    }
}

/// Writes a number in the rest of a byte of which one bit is taken (RFC 7541, section 5.1).
fn write_length(block: &mut Vec<u8>, length: usize) {
    let low = |it: usize| u8::try_from(it & 0x7f).expect("seven bits fit");
    if length < 127 {
        block.push(low(length));
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while 128 <= rest {
        block.push(low(rest) | 0x80);
        rest >>= 7;
    }
    block.push(low(rest));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_length_kind_flags_and_stream_before_its_payload() {
        assert_eq!(
            frame(PING, 1, 0, b"12345678"),
            [&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], b"12345678"].concat()
        );
    }

    #[test]
    fn long_headers_are_counted_in_several_bytes() {
        let mut block = Vec::new();
        write_header(&mut block, "a", &"b".repeat(1337));
        assert_eq!(block[..5], [0, 1, b'a', 127, 0xba]);
        assert_eq!(block[5], 9);
        assert_eq!(block.len(), 6 + 1337);
    }
}
