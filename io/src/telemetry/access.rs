//! One line per request. Lines are gathered and written together: a write for each would cost more
//! than routing it. Keys, session ids and queries are never in a line: sessions are hashes. The fields are
//! listed in the guide (`docs/guide/operations.md`), and a test compares the two.

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use cleave_core::domain::SliceKey;
use cleave_core::domain::Usage;

use super::settings::LogFormat;
use super::writer::LogWriter;

/// Written at this size, or on a flush.
const BUFFER_BYTES: usize = 32 << 10;

/// What is said of one request.
#[derive(Clone, Debug)]
pub struct AccessRecord<'a> {
    pub request_id: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    /// Why the router answered itself, or cut the answer off.
    pub code: Option<&'static str>,
    pub client: Option<IpAddr>,
    pub tenant: Option<&'a str>,
    pub model: Option<&'a str>,
    pub class: Option<&'a str>,
    pub pool: &'a str,
    pub replica: &'a str,
    pub session: Option<SliceKey>,
    pub tries: u32,
    pub stream: bool,
    /// How long it waited to be placed, all tries together.
    pub waited: Duration,
    /// As the engine says.
    pub usage: Usage,
    /// Tokens of the answer where the engine says nothing.
    pub output_estimated: Option<u32>,
    pub events: u64,
    pub first_byte: Option<Duration>,
    /// Of a stream.
    pub first_token: Option<Duration>,
    pub total: Duration,
    pub outcome: &'a str,
    /// Of the trace that the client's `traceparent` names.
    pub trace_id: Option<&'a str>,
}

/// Where lines go.
#[derive(Debug)]
pub struct AccessLog {
    format: LogFormat,
    on: bool,
    buffer: Mutex<String>,
}

impl AccessLog {
    pub fn new(format: LogFormat, on: bool) -> Self {
        Self { format, on, buffer: Mutex::new(String::new()) }
    }

    pub fn write(&self, record: &AccessRecord<'_>) {
        if !self.on {
            return;
        }
        let mut buffer = self.lock();
        let is_json = self.format == LogFormat::Json;
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        // Writing to a string does not fail.
        _ = match self.format {
            LogFormat::Text => write!(buffer, "{now} ACCESS"),
            LogFormat::Json => {
                let level = if record.status < 500 { "INFO" } else { "WARN" };
                write!(
                    buffer,
                    "{{\"timestamp\":\"{now}\",\"level\":\"{level}\",\"target\":\"access\""
                )
            }
        };
        record.write_fields(&mut Fields { line: &mut buffer, is_json });
        buffer.push_str(if is_json { "}\n" } else { "\n" });
        if BUFFER_BYTES <= buffer.len() {
            Self::pour(&mut buffer);
        }
    }

    /// Hands on what was gathered; called about once a second, and at the end.
    pub fn flush(&self) {
        Self::pour(&mut self.lock());
    }

    /// Counts the lines of all logs that were dropped since the start.
    pub fn dropped_total(&self) -> u64 {
        LogWriter::stderr().dropped_total()
    }

    fn pour(buffer: &mut String) {
        if !buffer.is_empty() {
            LogWriter::stderr().put(buffer.as_bytes());
            buffer.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccessRecord<'_> {
    fn write_fields(&self, fields: &mut Fields<'_>) {
        fields.text("request_id", self.request_id);
        fields.text("method", self.method);
        fields.text("path", self.path);
        fields.number("status", self.status.into());
        if let Some(code) = self.code {
            fields.quoted("code", code);
        }
        if let Some(client) = self.client {
            fields.text("client", &client.to_string());
        }
        for (name, value) in [("tenant", self.tenant), ("model", self.model), ("class", self.class)]
        {
            if let Some(value) = value {
                fields.text(name, value);
            }
        }
        fields.text("pool", self.pool);
        fields.text("replica", self.replica);
        if let Some(key) = self.session {
            fields.text("session", &key.to_string());
        }
        fields.number("tries", self.tries.into());
        fields.word("stream", if self.stream { "true" } else { "false" });
        if self.stream {
            fields.number("events", self.events);
        }
        let Usage { input, output, cached } = self.usage;
        let tokens =
            [("input_tokens", input), ("cached_tokens", cached), ("output_tokens", output)];
        for (name, count) in tokens {
            if let Some(count) = count {
                fields.number(name, count.into());
            }
        }
        if let Some(count) = self.output_estimated {
            fields.number("output_tokens", count.into());
            fields.word("output_tokens_estimated", "true");
        }
        fields.millis("waited_ms", self.waited);
        if let Some(first_byte) = self.first_byte {
            fields.millis("first_byte_ms", first_byte);
        }
        if let Some(first_token) = self.first_token {
            fields.millis("first_token_ms", first_token);
        }
        fields.millis("total_ms", self.total);
        fields.text("outcome", self.outcome);
        if let Some(trace_id) = self.trace_id {
            fields.quoted("trace_id", trace_id);
        }
    }
}

/// A line in the making. There is one for every request, so values are appended as they are:
/// formatting them one by one took a tenth of what a request costs.
struct Fields<'a> {
    line: &'a mut String,
    is_json: bool,
}

impl Fields<'_> {
    fn name(&mut self, name: &str) {
        let (before, after) = if self.is_json { (",\"", "\":") } else { (" ", "=") };
        for it in [before, name, after] {
            self.line.push_str(it);
        }
    }

    /// Adds a value that needs no quotes.
    fn word(&mut self, name: &str, value: &str) {
        self.name(name);
        self.line.push_str(value);
    }

    fn number(&mut self, name: &str, value: u64) {
        self.word(name, itoa::Buffer::new().format(value));
    }

    /// Adds milliseconds with three places.
    fn millis(&mut self, name: &str, value: Duration) {
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.number(name, micros / 1000);
        // The leading one keeps the zeros behind it.
        self.line.push('.');
        self.line.push_str(&itoa::Buffer::new().format(1000 + micros % 1000)[1..]);
    }

    /// Adds a field of text, escaped so that no value can forge a field or a line.
    fn text(&mut self, name: &str, value: &str) {
        let is_safe = |it: u8| it.is_ascii_graphic() && !matches!(it, b'"' | b'\\' | b'=');
        if !value.is_empty() && value.bytes().all(is_safe) {
            self.quoted(name, value);
        } else {
            self.name(name);
            // Writing to a string does not fail.
            _ = write!(self.line, "{}", Quoted(value));
        }
    }

    /// Adds text that has nothing to escape; only JSON has quotes around it.
    fn quoted(&mut self, name: &str, value: &str) {
        self.name(name);
        let quote = if self.is_json { "\"" } else { "" };
        for it in [quote, value, quote] {
            self.line.push_str(it);
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> AccessRecord<'static> {
        AccessRecord {
            request_id: "r-1",
            method: "POST",
            path: "/v1/chat/completions",
            status: 200,
            code: None,
            client: Some([127, 0, 0, 1].into()),
            tenant: Some("acme"),
            model: Some("m"),
            class: Some("standard"),
            pool: "default",
            replica: "http://gpu-0:8000",
            session: Some(SliceKey(255)),
            tries: 1,
            stream: true,
            waited: Duration::from_millis(2),
            usage: Usage { input: Some(10), output: Some(4), cached: None },
            output_estimated: None,
            events: 6,
            first_byte: Some(Duration::from_micros(1500)),
            first_token: Some(Duration::from_millis(9)),
            total: Duration::from_micros(20_007),
            outcome: "done",
            trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736"),
        }
    }

    fn line(format: LogFormat, record: &AccessRecord<'_>) -> String {
        let log = AccessLog::new(format, true);
        log.write(record);
        let line = log.lock().clone();
        log.lock().clear();
        line
    }

    #[test]
    fn a_line_has_every_field_in_both_formats() {
        let text = line(LogFormat::Text, &record());
        assert!(text.ends_with(
            " ACCESS request_id=r-1 method=POST path=/v1/chat/completions status=200 client=127.0.0.1 \
             tenant=acme model=m class=standard pool=default replica=http://gpu-0:8000 session=00000000000000ff tries=1 stream=true events=6 \
             input_tokens=10 output_tokens=4 waited_ms=2.000 first_byte_ms=1.500 first_token_ms=9.000 \
             total_ms=20.007 outcome=done trace_id=4bf92f3577b34da6a3ce929d0e0e4736\n"
        ), "{text}");
        let json = line(LogFormat::Json, &record());
        assert!(json.contains(r#","class":"standard","pool":"default","#) && json.ends_with("}\n"));
        assert!(json.contains(r#""level":"INFO","target":"access","request_id""#), "{json}");
        let failed = line(LogFormat::Json, &AccessRecord { status: 503, ..record() });
        assert!(failed.contains(r#""level":"WARN""#), "{failed}");
    }

    #[test]
    fn the_guide_lists_every_field_and_no_other() {
        let full = AccessRecord {
            code: Some("no_replica"),
            usage: Usage { input: Some(10), output: None, cached: Some(3) },
            output_estimated: Some(4),
            ..record()
        };
        let json = line(LogFormat::Json, &full);
        let names = json.split(['{', ',']).filter_map(|it| it.strip_prefix('"')?.split('"').next());
        let guide = include_str!("../../../docs/guide/operations.md");
        let table = guide.split("One line per request").nth(1).unwrap();
        let table = table.split("\n\n").find(|it| it.starts_with("| field")).unwrap();
        let listed = table.lines().filter_map(|it| it.strip_prefix("| `")?.split('`').next());
        assert_eq!(names.collect::<Vec<_>>(), listed.collect::<Vec<_>>());
    }

    #[test]
    fn a_value_cannot_forge_a_field_or_a_line() {
        let evil =
            AccessRecord { path: "/x outcome=done\nstatus=200", request_id: "a\"b", ..record() };
        let text = line(LogFormat::Text, &evil);
        assert!(text.contains(r#"path="/x outcome=done\u000astatus=200""#), "{text}");
        assert_eq!(text.lines().count(), 1);
        assert!(line(LogFormat::Json, &evil).contains(r#""request_id":"a\"b""#));
    }
}
