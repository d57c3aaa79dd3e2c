//! `BurstGPT`: comma-separated `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`, and in
//! newer files `Session ID` and `Elapsed time` as well; columns are found by their heading. Times
//! are seconds. Lengths only: no content is shared. Requests that failed have no response and are
//! left out. Split at commas, since no published field holds one or is quoted; a CSV library would
//! be weight without use. Written from the published description.

use std::collections::BTreeMap;

use cleave_core::domain::Moment;
use twox_hash::XxHash3_64;

use super::super::draw;
use super::super::lines::{Lines, TraceError};
use super::super::prompt::{Prompt, mix, named};
use super::super::request::Request;
use super::names::Names;
use super::requests::lone_request;
use super::{UNSHARED_BLOCK_TOKENS, iterate_reader};

const ALONE: u64 = named("burstgpt requests");

/// Which column holds what.
struct Columns {
    timestamp: usize,
    model: usize,
    request: usize,
    response: usize,
    session: Option<usize>,
    elapsed: Option<usize>,
}

pub(in super::super) struct BurstGpt {
    lines: Lines,
    columns: Option<Columns>,
    models: Names,
    /// When the last answer of each session came.
    ends: BTreeMap<u64, Moment>,
    requests: u64,
}

impl BurstGpt {
    pub(in super::super) fn new(lines: Lines) -> Self {
        let models = Names::default();
        Self { lines, columns: None, models, ends: BTreeMap::new(), requests: 0 }
    }

    fn read(&mut self) -> Result<Option<Request>, TraceError> {
        if self.columns.is_none() {
            if !self.lines.advance()? {
                return Ok(None);
            }
            self.columns = Some(columns(&self.lines)?);
        }
        while self.lines.advance()? {
            if let Some(request) = self.request()? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    fn request(&mut self) -> Result<Option<Request>, TraceError> {
        let columns = self.columns.as_ref().expect("the heading is read first");
        let fields: Vec<&str> = self.lines.text().split(',').map(str::trim).collect();
        let field = |place: usize| fields.get(place).copied().unwrap_or_default();
        let number = |place: usize| {
            let parsed = field(place).parse::<f64>().ok().filter(|number| number.is_finite());
            parsed.ok_or_else(|| self.lines.complain(format!("{:?} is not a number", field(place))))
        };
        let output = draw::tokens(number(columns.response)?);
        if output == 0 {
            return Ok(None);
        }
        self.requests += 1;
        let alone = mix(ALONE, self.requests);
        let named = columns.session.map(field).filter(|session| !session.is_empty());
        let session = named.map_or(alone, |name| XxHash3_64::oneshot(name.as_bytes()));
        let arrival = Moment::ZERO + draw::seconds(number(columns.timestamp)?);
        let elapsed = columns.elapsed.map(number).transpose()?;
        let input = draw::tokens(number(columns.request)?);
        let model = field(columns.model).to_owned();
        let named = named.is_some();

        let arrival = self.lines.in_order(arrival)?;
        let prompt = Prompt::unshared(alone, input, UNSHARED_BLOCK_TOKENS);
        let mut request = lone_request(arrival, session, prompt, output);
        if let (true, Some(elapsed)) = (named, elapsed) {
            let end = self.ends.insert(session, arrival + draw::seconds(elapsed));
            request.think = end.map(|end| arrival.since(end));
        }
        request.model = Some(self.models.get(&model));
        Ok(Some(request))
    }
}

fn columns(lines: &Lines) -> Result<Columns, TraceError> {
    let heading: Vec<&str> = lines.text().split(',').map(str::trim).collect();
    let find = |name: &str| heading.iter().position(|column| column.eq_ignore_ascii_case(name));
    let need = |name: &str| find(name).ok_or_else(|| lines.complain(format!("no column {name:?}")));
    Ok(Columns {
        timestamp: need("Timestamp")?,
        model: need("Model")?,
        request: need("Request tokens")?,
        response: need("Response tokens")?,
        session: find("Session ID"),
        elapsed: find("Elapsed time"),
    })
}

iterate_reader!(BurstGpt => Request);
