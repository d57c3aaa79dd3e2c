//! Numbers as bytes. A reader takes nothing for granted: it never panics, and allocates no more than the bytes that
//! it was given could hold.

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it ends too early")]
    Short,
    #[error("a number or a list in it is too long")]
    Long,
    #[error("it has a kind that is not known: {0}")]
    Unknown(u8),
    #[error("something follows its end")]
    Rest,
    #[error("a text or an assignment in it has a flaw")]
    Flawed,
}

/// Writes small numbers in few bytes: seven bits in each, and one that says whether more follow.
pub(super) fn write_number(into: &mut Vec<u8>, mut number: u64) {
    while 0x7F < number {
        into.push(low_byte(number) | 0x80);
        number >>= 7;
    }
    into.push(low_byte(number));
}

/// Writes a number that is as often large as small, such as a hash.
pub(super) fn write_hash(into: &mut Vec<u8>, hash: u64) {
    into.extend_from_slice(&hash.to_le_bytes());
}

/// Writes a figure that may be anything but no number at all.
pub(super) fn write_float(into: &mut Vec<u8>, figure: f64) {
    write_hash(into, figure.to_bits());
}

/// Writes a list of hashes, of which no more than `max` are told.
pub(super) fn write_hashes(into: &mut Vec<u8>, hashes: &[u64], max: usize) {
    let told = &hashes[..hashes.len().min(max)];
    write_count(into, told.len());
    for it in told {
        write_hash(into, *it);
    }
}

pub(super) fn write_count(into: &mut Vec<u8>, count: usize) {
    write_number(into, u64::try_from(count).unwrap_or(u64::MAX));
}

/// Writes bytes, of which no more than `max` are told.
pub(super) fn write_bytes(into: &mut Vec<u8>, bytes: &[u8], max: usize) {
    let told = &bytes[..bytes.len().min(max)];
    write_count(into, told.len());
    into.extend_from_slice(told);
}

/// Writes a text, of which no more than `max` bytes are told.
pub(super) fn write_text(into: &mut Vec<u8>, text: &str, max: usize) {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    write_bytes(into, &text.as_bytes()[..end], max);
}

fn low_byte(number: u64) -> u8 {
    u8::try_from(number & 0x7F).unwrap_or(0)
}

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && 1 < bits {
                return Err(Malformed::Long);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed::Long)
    }

    pub(super) fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed::Long)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed::Unknown(other)),
        }
    }

    pub(super) fn hash(&mut self) -> Result<u64, Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*first))
    }

    pub(super) fn float(&mut self) -> Result<f64, Malformed> {
        let figure = f64::from_bits(self.hash()?);
        if figure.is_finite() { Ok(figure) } else { Err(Malformed::Long) }
    }

    pub(super) fn short_float(&mut self) -> Result<f32, Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        let figure = f32::from_bits(u32::from_le_bytes(*first));
        if figure.is_finite() { Ok(figure) } else { Err(Malformed::Long) }
    }

    pub(super) fn hashes(&mut self, max: usize) -> Result<Vec<u64>, Malformed> {
        let count = self.count(max, size_of::<u64>())?;
        (0..count).map(|_| self.hash()).collect()
    }

    /// Reads how many items follow, each of `bytes_each` at least.
    pub(super) fn count(&mut self, max: usize, bytes_each: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.number()?).map_err(|_| Malformed::Long)?;
        if max < count {
            return Err(Malformed::Long);
        }
        if self.0.len() / bytes_each < count {
            return Err(Malformed::Short);
        }
        Ok(count)
    }

    pub(super) fn bytes(&mut self, max: usize) -> Result<Vec<u8>, Malformed> {
        let count = self.count(max, 1)?;
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(bytes.to_vec())
    }

    pub(super) fn text(&mut self, max: usize) -> Result<String, Malformed> {
        String::from_utf8(self.bytes(max)?).map_err(|_| Malformed::Flawed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_small_ones_are_short() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            write_number(&mut bytes, number);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.number(), Ok(number));
            assert!(reader.is_empty());
            assert!(bytes.len() == 1 || 127 < number);
        }
        assert_eq!(Reader::new(&[0xFF; 10]).number(), Err(Malformed::Long));
        assert_eq!(Reader::new(&[0x80]).number(), Err(Malformed::Short));
    }

    #[test]
    fn a_list_that_claims_more_than_there_is_takes_no_memory() {
        let mut bytes = Vec::new();
        write_number(&mut bytes, 1 << 40);
        assert_eq!(Reader::new(&bytes).hashes(usize::MAX), Err(Malformed::Short));
        assert_eq!(Reader::new(&bytes).hashes(1_000), Err(Malformed::Long));
        assert_eq!(Reader::new(&[3, b'a', b'b']).text(9), Err(Malformed::Short));
    }

    #[test]
    fn a_text_is_cut_between_letters() {
        let mut bytes = Vec::new();
        write_text(&mut bytes, "aä", 2);
        assert_eq!(Reader::new(&bytes).text(9).as_deref(), Ok("a"));
    }
}
