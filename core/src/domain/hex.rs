//! Sixteen hexadecimal digits, as hashes are shown in what is written for every request: the formatter of the
//! standard library takes ten times as long.

/// A number as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HexDigits([u8; 16]);

impl HexDigits {
    pub fn of(number: u64) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 16];
        for (pair, byte) in text.chunks_exact_mut(2).zip(number.to_be_bytes()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits are ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_as_the_formatter_writes_them() {
        for number in [0, 1, 0x0123_4567_89AB_CDEF, u64::MAX] {
            assert_eq!(HexDigits::of(number).as_str(), format!("{number:016x}"));
        }
    }
}
