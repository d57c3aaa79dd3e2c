//! How a field of an access line is written. There is a line for every request, so values are appended as they
//! are: formatting them one by one took a tenth of what a request costs.

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use cleave_core::domain::{HexDigits, SliceKey};

/// Names a field, with what stands around its name in either format.
macro_rules! field {
    ($name:literal) => {
        AccessField { text: concat!(" ", $name, "="), json: concat!(",\"", $name, "\":") }
    };
}

pub(super) use field;

/// The name of a field.
#[derive(Clone, Copy)]
pub(super) struct AccessField {
    pub(super) text: &'static str,
    pub(super) json: &'static str,
}

/// A line in the making.
pub(super) struct Fields<'a> {
    pub(super) line: &'a mut String,
    pub(super) is_json: bool,
}

impl Fields<'_> {
    fn name(&mut self, name: AccessField) {
        self.line.push_str(if self.is_json { name.json } else { name.text });
    }

    /// Adds a value that needs no quotes.
    pub(super) fn word(&mut self, name: AccessField, value: &str) {
        self.name(name);
        self.line.push_str(value);
    }

    pub(super) fn number(&mut self, name: AccessField, value: u64) {
        self.word(name, itoa::Buffer::new().format(value));
    }

    /// Adds tokens as the engine tells them, else as they are estimated, with a mark that says so.
    pub(super) fn tokens(
        &mut self,
        [name, mark]: [AccessField; 2],
        told: Option<u32>,
        estimated: Option<u32>,
    ) {
        if let Some(count) = told.or(estimated) {
            self.number(name, count.into());
        }
        if told.is_none() && estimated.is_some() {
            self.word(mark, "true");
        }
    }

    /// Adds milliseconds with three places.
    pub(super) fn millis(&mut self, name: AccessField, value: Duration) {
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.number(name, micros / 1000);
        push_thousandths(self.line, u32::try_from(micros % 1000).unwrap_or(0));
    }

    /// Adds a field of text, escaped so that no value can forge a field or a line.
    pub(super) fn text(&mut self, name: AccessField, value: &str) {
        if !value.is_empty() && value.bytes().all(|it| SAFE[usize::from(it)]) {
            self.quoted(name, value);
        } else {
            self.name(name);
            // Writing to a string does not fail.
            _ = write!(self.line, "{}", Quoted(value));
        }
    }

    /// Adds text that has nothing to escape; only JSON has quotes around it.
    pub(super) fn quoted(&mut self, name: AccessField, value: &str) {
        self.name(name);
        self.quote();
        self.line.push_str(value);
        self.quote();
    }

    pub(super) fn address(&mut self, name: AccessField, address: IpAddr) {
        self.name(name);
        self.quote();
        match address {
            IpAddr::V4(it) => {
                for (at, octet) in it.octets().into_iter().enumerate() {
                    self.line.push_str(if at == 0 { "" } else { "." });
                    self.line.push_str(itoa::Buffer::new().format(octet));
                }
            }
            IpAddr::V6(it) => _ = write!(self.line, "{it}"),
        }
        self.quote();
    }

    /// Adds a session's sixteen digits.
    pub(super) fn session(&mut self, name: AccessField, SliceKey(key): SliceKey) {
        self.quoted(name, HexDigits::of(key).as_str());
    }

    fn quote(&mut self) {
        if self.is_json {
            self.line.push('"');
        }
    }
}

/// Whether a byte means itself in both formats.
static SAFE: [bool; 256] = {
    let mut safe = [false; 256];
    let mut byte = 0;
    while byte < safe.len() {
        // All that can be seen, without the quote, the equals sign and the backslash.
        safe[byte] = matches!(byte, 0x21 | 0x23..=0x3C | 0x3E..=0x5B | 0x5D..=0x7E);
        byte += 1;
    }
    safe
};

/// Text in quotes, with JSON's escapes.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for it in self.0.chars() {
            match it {
                '"' | '\\' => write!(f, "\\{it}")?,
                it if it.is_control() => write!(f, "\\u{:04x}", u32::from(it))?,
                it => f.write_char(it)?,
            }
        }
        f.write_char('"')
    }
}

/// Adds a fraction of three places.
pub(super) fn push_thousandths(line: &mut String, thousandths: u32) {
    // The leading one keeps the zeros behind it.
    let mut digits = itoa::Buffer::new();
    line.push('.');
    line.push_str(&digits.format(1000 + thousandths % 1000)[1..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_sessions_are_written_as_they_are_shown_elsewhere() {
        for address in ["10.0.200.1", "2001:db8::1"] {
            let mut line = String::new();
            let mut fields = Fields { line: &mut line, is_json: true };
            fields.address(field!("client"), address.parse().unwrap());
            fields.session(field!("session"), SliceKey(0x0123_4567_89AB_CDEF));
            let session = SliceKey(0x0123_4567_89AB_CDEF);
            assert_eq!(line, format!(",\"client\":\"{address}\",\"session\":\"{session}\""));
        }
    }
}
