//! The frames of an HTTP/2 client, counted as they come in. A library answers or ignores frames that
//! carry nothing (pings, settings, priorities, resets, empty data) as fast as they come, and each costs
//! far more to take in than to send. So they are counted here, from their heads alone; all else of the
//! protocol is the library's.

/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
/// A frame of data of this many bytes is worth its head.
const DATA_BYTES_MIN: usize = 256;

/// Counts the frames of one connection that carry next to nothing.
#[derive(Clone, Debug)]
pub struct Frames(LinePlace);

/// Where in the stream of bytes the next one is.
#[derive(Clone, Debug)]
enum LinePlace {
    /// This far into the preface.
    Preface(usize),
    /// In a frame's head, of which this many bytes are known.
    Head([u8; HEAD_BYTES], usize),
    /// In a frame, of which this many bytes are left.
    Payload(usize),
    /// It is no HTTP/2.
    Other,
}

impl Default for Frames {
    fn default() -> Self {
        Self(LinePlace::Preface(0))
    }
}

impl Frames {
    /// Takes in what came; returns how many frames began in it that carry next to nothing.
    pub fn on_bytes(&mut self, mut bytes: &[u8]) -> u32 {
        let mut count = 0;
        while let Some(first) = bytes.first() {
            let used = match &mut self.0 {
                LinePlace::Other => return count,
                LinePlace::Preface(at) => {
                    if PREFACE.get(*at) != Some(first) {
                        self.0 = LinePlace::Other;
                    } else if *at + 1 == PREFACE.len() {
                        self.0 = LinePlace::Head([0; HEAD_BYTES], 0);
                    } else {
                        *at += 1;
                    }
                    1
                }
                LinePlace::Head(head, have) => {
                    let used = bytes.len().min(HEAD_BYTES - *have);
                    head[*have..*have + used].copy_from_slice(&bytes[..used]);
                    *have += used;
                    if *have == HEAD_BYTES {
                        let [a, b, c, kind, ..] = *head;
                        let length =
                            [a, b, c].into_iter().fold(0, |it, byte| it << 8 | usize::from(byte));
                        count += u32::from(kind != DATA || length < DATA_BYTES_MIN);
                        self.0 = Self::after_head(length);
                    }
                    used
                }
                LinePlace::Payload(left) => {
                    let used = bytes.len().min(*left);
                    *left -= used;
                    if *left == 0 {
                        self.0 = Self::after_head(0);
                    }
                    used
                }
            };
            bytes = &bytes[used..];
        }
        count
    }

    const fn after_head(length: usize) -> LinePlace {
        if length == 0 { LinePlace::Head([0; HEAD_BYTES], 0) } else { LinePlace::Payload(length) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let [.., a, b, c] = length.to_be_bytes();
        let mut frame = vec![a, b, c, kind, 0, 0, 0, 0, 1];
        frame.resize(HEAD_BYTES + length, 0x5a);
        frame
    }

    fn connection(frames: &[(u8, usize)]) -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frames.iter().flat_map(|it| frame(it.0, it.1)));
        bytes
    }

    #[test]
    fn what_carries_something_costs_nothing() {
        let (ping, settings, empty, data) = ((6, 8), (4, 0), (DATA, 0), (DATA, 16_384));
        let bytes = connection(&[settings, data, ping, data, empty, data]);
        assert_eq!(Frames::default().on_bytes(&bytes), 3);
    }

    #[test]
    fn other_protocols_have_no_frames() {
        for text in ["GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/1.1\r\n\r\n", "", "PRI"] {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(bytes.len() + 1000, 0);
            assert_eq!(Frames::default().on_bytes(&bytes), 0, "{text}");
        }
    }

    proptest! {
        #[test]
        fn frames_are_counted_alike_however_they_come(
            frames in prop::collection::vec((0_u8..12, 0_usize..600), 0..40),
            cut in 1_usize..50,
        ) {
            let bytes = connection(&frames);
            let whole = Frames::default().on_bytes(&bytes);
            let mut counter = Frames::default();
            let pieces: u32 = bytes.chunks(cut).map(|it| counter.on_bytes(it)).sum();
            prop_assert_eq!(whole, pieces);
            let empty = frames.iter().filter(|it| it.0 != DATA || it.1 < DATA_BYTES_MIN).count();
            prop_assert_eq!(usize::try_from(whole).unwrap(), empty);
        }
    }
}
