//! Files line by line, plain or gzip, told apart by their first bytes. A line is held at a time,
//! never a file. Every complaint names the file and the line, because a trace of a million lines
//! with one bad one cannot be mended otherwise.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use cleave_core::domain::Moment;
use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;

use super::Format;

/// The longest line taken; the longest in the known traces has about one megabyte.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot read {file}")]
    Read { file: Arc<str>, source: io::Error },
    #[error("{file}, line {line}: {problem}")]
    Line { file: Arc<str>, line: u64, problem: String },
    #[error("{file} has no lines")]
    Empty { file: Arc<str> },
    #[error("cannot tell the format of {file} by its first line; name one of: {}", Format::names())]
    UnknownFormat { file: Arc<str> },
    #[error("{file} has arrivals but no prompts: compose it with a trace that has content")]
    NoContent { file: Arc<str> },
    #[error("{what}; `cleave replay` plays what is whole")]
    Damaged { what: String },
    #[error("{what} must be a positive number, not {value}")]
    NotPositive { what: &'static str, value: f64 },
}

/// A file being read, with the line it is at.
pub(super) struct Lines {
    file: Arc<str>,
    reader: Box<dyn BufRead + Send>,
    line: String,
    number: u64,
    /// The current line was looked at but not taken.
    held: bool,
    latest: Moment,
}

impl Lines {
    /// Opens a file, unpacking it when it is gzip.
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let file: Arc<str> = path.display().to_string().into();
        let read = |source| TraceError::Read { file: Arc::clone(&file), source };
        let mut plain = BufReader::new(File::open(path).map_err(read)?);
        let packed = plain.fill_buf().map_err(read)?.starts_with(&[0x1F, 0x8B]);
        let reader: Box<dyn BufRead + Send> = if packed {
            Box::new(BufReader::new(MultiGzDecoder::new(plain)))
        } else {
            Box::new(plain)
        };
        Ok(Self { file, reader, line: String::new(), number: 0, held: false, latest: Moment::ZERO })
    }

    /// Steps to the next line that is not blank; false at the end.
    pub(super) fn advance(&mut self) -> Result<bool, TraceError> {
        if std::mem::take(&mut self.held) {
            return Ok(true);
        }
        loop {
            self.line.clear();
            self.number += 1;
            let bytes = (&mut self.reader)
                .take(LINE_BYTES_MAX)
                .read_line(&mut self.line)
                .map_err(|source| TraceError::Read { file: Arc::clone(&self.file), source })?;
            if bytes == 0 {
                return Ok(false);
            }
            if LINE_BYTES_MAX <= u64::try_from(bytes).unwrap_or(u64::MAX) {
                return Err(self.complain("the line is too long"));
            }
            if !self.line.trim().is_empty() {
                return Ok(true);
            }
        }
    }

    /// Looks at the first line without taking it.
    pub(super) fn peek(&mut self) -> Result<&str, TraceError> {
        if !self.advance()? {
            return Err(TraceError::Empty { file: Arc::clone(&self.file) });
        }
        self.held = true;
        Ok(self.text())
    }

    /// The current line without its end.
    pub(super) fn text(&self) -> &str {
        self.line.trim_end()
    }

    /// Reads the current line as one JSON value.
    pub(super) fn json<'line, T: Deserialize<'line>>(&'line self) -> Result<T, TraceError> {
        serde_json::from_str(self.text()).map_err(|problem| self.complain(problem))
    }

    /// Steps on and reads the line as one JSON value; none at the end.
    pub(super) fn next_json<T: for<'line> Deserialize<'line>>(
        &mut self,
    ) -> Result<Option<T>, TraceError> {
        if self.advance()? { self.json().map(Some) } else { Ok(None) }
    }

    /// Passes an arrival on, unless it lies before the one on an earlier line.
    pub(super) fn in_order(&mut self, arrival: Moment) -> Result<Moment, TraceError> {
        if arrival < self.latest {
            return Err(self.complain("time runs backwards; sort the file by time"));
        }
        self.latest = arrival;
        Ok(arrival)
    }

    /// Makes a complaint about the current line.
    pub(super) fn complain(&self, problem: impl fmt::Display) -> TraceError {
        TraceError::Line {
            file: Arc::clone(&self.file),
            line: self.number,
            problem: problem.to_string(),
        }
    }

    /// The line that is being read, from one.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn file(&self) -> Arc<str> {
        Arc::clone(&self.file)
    }
}
