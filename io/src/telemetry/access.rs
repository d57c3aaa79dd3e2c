//! One line per request. Lines are gathered and written together: a write for each would cost more
//! than routing it. Keys, session ids and queries are never in a line: sessions are hashes. The fields are
//! listed in the guide (`docs/guide/operations.md`), and a test compares the two.

mod fields;

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cleave_core::domain::SliceKey;
use cleave_core::domain::Usage;

use self::fields::{AccessField, Fields, field, push_thousandths};
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
    /// What the request was priced by, and the tokens of the answer, where the engine says nothing of them.
    pub input_estimated: Option<u32>,
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
    gathered: Mutex<Gathered>,
}

/// Lines that wait to be written, and the second that is written in them.
#[derive(Debug, Default)]
struct Gathered {
    lines: String,
    second: Option<u64>,
    /// That second as text, up to its fraction.
    stamp: String,
}

impl AccessLog {
    pub fn new(format: LogFormat, on: bool) -> Self {
        Self { format, on, gathered: Mutex::default() }
    }

    pub fn write(&self, record: &AccessRecord<'_>) {
        if !self.on {
            return;
        }
        let mut gathered = self.lock();
        let is_json = self.format == LogFormat::Json;
        let Gathered { lines, .. } = &mut *gathered;
        lines.push_str(if is_json { "{\"timestamp\":\"" } else { "" });
        gathered.write_time(SystemTime::now());
        let Gathered { lines, .. } = &mut *gathered;
        lines.push_str(match (is_json, record.status < 500) {
            (false, _) => " ACCESS",
            (true, true) => "\",\"level\":\"INFO\",\"target\":\"access\"",
            (true, false) => "\",\"level\":\"WARN\",\"target\":\"access\"",
        });
        record.write_fields(&mut Fields { line: lines, is_json });
        lines.push_str(if is_json { "}\n" } else { "\n" });
        if BUFFER_BYTES <= lines.len() {
            Self::pour(lines);
        }
    }

    /// Hands on what was gathered; called about once a second, and at the end.
    pub fn flush(&self) {
        Self::pour(&mut self.lock().lines);
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

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gathered {
    /// Adds the moment to the line, with milliseconds. The date is made once a second, not once a line.
    fn write_time(&mut self, now: SystemTime) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != Some(since.as_secs()) {
            self.second = Some(since.as_secs());
            let whole = UNIX_EPOCH + Duration::from_secs(since.as_secs());
            self.stamp = humantime::format_rfc3339_seconds(whole).to_string();
            // Its fraction goes before the letter that names the zone.
            _ = self.stamp.pop();
        }
        self.lines.push_str(&self.stamp);
        push_thousandths(&mut self.lines, since.subsec_millis());
        self.lines.push('Z');
    }
}

impl AccessRecord<'_> {
    fn write_fields(&self, fields: &mut Fields<'_>) {
        fields.text(field!("request_id"), self.request_id);
        // A method is a token, and the words at the end are ours: neither has anything to escape.
        fields.quoted(field!("method"), self.method);
        fields.text(field!("path"), self.path);
        fields.number(field!("status"), self.status.into());
        if let Some(code) = self.code {
            fields.quoted(field!("code"), code);
        }
        if let Some(client) = self.client {
            fields.address(field!("client"), client);
        }
        for (name, value) in [
            (field!("tenant"), self.tenant),
            (field!("model"), self.model),
            (field!("class"), self.class),
        ] {
            if let Some(value) = value {
                fields.text(name, value);
            }
        }
        fields.text(field!("pool"), self.pool);
        fields.text(field!("replica"), self.replica);
        if let Some(key) = self.session {
            fields.session(field!("session"), key);
        }
        fields.number(field!("tries"), self.tries.into());
        fields.word(field!("stream"), if self.stream { "true" } else { "false" });
        if self.stream {
            fields.number(field!("events"), self.events);
        }
        let Usage { input, output, cached } = self.usage;
        let read = [field!("input_tokens"), field!("input_tokens_estimated")];
        fields.tokens(read, input, self.input_estimated);
        if let Some(count) = cached {
            fields.number(field!("cached_tokens"), count.into());
        }
        let written = [field!("output_tokens"), field!("output_tokens_estimated")];
        fields.tokens(written, output, self.output_estimated);
        fields.millis(field!("waited_ms"), self.waited);
        if let Some(first_byte) = self.first_byte {
            fields.millis(field!("first_byte_ms"), first_byte);
        }
        if let Some(first_token) = self.first_token {
            fields.millis(field!("first_token_ms"), first_token);
        }
        fields.millis(field!("total_ms"), self.total);
        fields.quoted(field!("outcome"), self.outcome);
        if let Some(trace_id) = self.trace_id {
            fields.quoted(field!("trace_id"), trace_id);
        }
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
            input_estimated: None,
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
        std::mem::take(&mut log.lock().lines)
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
    fn the_moment_is_written_with_milliseconds_and_moves_on() {
        let mut gathered = Gathered::default();
        for millis in [1_763_000_000_007_u64, 1_763_000_000_999, 1_763_000_001_000] {
            let at = UNIX_EPOCH + Duration::from_millis(millis);
            gathered.write_time(at);
            let line = std::mem::take(&mut gathered.lines);
            assert_eq!(line, humantime::format_rfc3339_millis(at).to_string());
        }
    }

    #[test]
    fn the_guide_lists_every_field_and_no_other() {
        let full = AccessRecord {
            code: Some("no_replica"),
            usage: Usage { input: None, output: None, cached: Some(3) },
            input_estimated: Some(11),
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
