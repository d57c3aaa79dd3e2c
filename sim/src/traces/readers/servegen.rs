//! `ServeGen` clients: a header, then one JSON object per client (tenant). `windows` holds, for every 600
//! seconds in which the client was awake, start, rate, coefficient of variation, pattern, shape and scale;
//! `lengths` holds quantiles of input and output per six hours. Input and output are independent
//! marginals. Clients whose lengths were not published borrow those of the client before them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::super::draw::Spread;
use super::super::lines::{Lines, TraceError};

/// How the time between arrivals varies.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Pattern {
    #[serde(rename = "G")]
    Gamma,
    #[serde(rename = "W")]
    Weibull,
}

/// What a client does for ten minutes.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub start_s: u32,
    pub per_second: f64,
    pub pattern: Pattern,
    pub shape: f64,
}

/// One client.
#[derive(Clone, Debug)]
pub struct Client {
    pub id: u32,
    /// In order of start.
    pub windows: Vec<Window>,
    /// By start in seconds, in order: input and output lengths.
    pub lengths: Vec<(u32, Spread, Spread)>,
}

/// All clients of a file.
#[derive(Clone, Debug)]
pub struct Clients {
    pub clients: Vec<Client>,
    pub window_s: u32,
}

#[derive(Deserialize)]
struct Header {
    window_s: u32,
    quantile_pct: Vec<f64>,
}

#[derive(Deserialize)]
struct ServeGenLine {
    client: u32,
    windows: Vec<(u32, f64, f64, Pattern, f64, f64)>,
    lengths: BTreeMap<u32, (Vec<u32>, Vec<u32>)>,
}

impl Clients {
    /// Reads a whole file; clients are few.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::read(Lines::open(path)?)
    }

    pub(in super::super) fn read(mut lines: Lines) -> Result<Self, TraceError> {
        lines.peek()?;
        let Some(header) = lines.next_json::<Header>()? else {
            return Err(TraceError::Empty { file: lines.file() });
        };
        let mut clients: Vec<Client> = Vec::new();
        while let Some(line) = lines.next_json::<ServeGenLine>()? {
            let mut client = settle(&line, &header).map_err(|problem| lines.complain(problem))?;
            if let (true, Some(before)) = (client.lengths.is_empty(), clients.last()) {
                client.lengths.clone_from(&before.lengths);
            }
            clients.push(client);
        }
        Ok(Self { clients, window_s: header.window_s })
    }
}

fn settle(line: &ServeGenLine, header: &Header) -> Result<Client, &'static str> {
    let mut windows = Vec::with_capacity(line.windows.len());
    for &(start_s, per_second, _cv, pattern, shape, _scale) in &line.windows {
        if !(per_second.is_finite() && 0.0 < per_second && shape.is_finite() && 0.0 < shape) {
            return Err("a window needs a positive rate and shape");
        }
        windows.push(Window { start_s, per_second, pattern, shape });
    }
    if !windows.is_sorted_by(|a, b| a.start_s < b.start_s) {
        return Err("windows must be in order of start");
    }
    let mut lengths = Vec::with_capacity(line.lengths.len());
    for (&start_s, (input, output)) in &line.lengths {
        let (input, output) = (spread(input, header)?, spread(output, header)?);
        lengths.push((start_s, input, output));
    }
    Ok(Client { id: line.client, windows, lengths })
}

fn spread(values: &[u32], header: &Header) -> Result<Spread, &'static str> {
    if values.len() != header.quantile_pct.len() {
        return Err("lengths do not match the header's quantiles");
    }
    let shares = header.quantile_pct.iter().map(|percent| percent / 100.0);
    Ok(Spread::Quantiles(shares.zip(values.iter().copied()).collect()))
}
