//! Reads a table of measured step times (CSV, columns as in `core/data/README.md`) into samples that
//! a fit can use: scaled to the whole model, without the rows whose kernel no serving engine runs.
//! It reads this one layout and nothing else; quoted fields are not part of it.

use std::collections::BTreeMap;

use thiserror::Error;

use super::StepWork;

const HEADER: &str = "model,kind,new_tokens,cached_tokens,batch,context,ms_median,ms_min,ms_max,\
                      reps,layers_timed,layers_scaled";

/// One measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSample {
    pub work: StepWork,
    /// Answers whose way to the client is part of the time: one for a first token seen there, none
    /// for a step timed by itself or between two tokens.
    pub answers: f64,
    pub ms: f64,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {problem}")]
pub struct TableError {
    pub line: usize,
    pub problem: String,
}

/// Reads the samples of every model in the table, in the order of its rows.
pub fn read_samples(text: &str) -> Result<BTreeMap<String, Vec<StepSample>>, TableError> {
    let mut lines = text.lines().zip(1..);
    if lines.next().map(|(header, _)| header.trim()) != Some(HEADER) {
        return Err(TableError { line: 1, problem: format!("the header must be {HEADER}") });
    }
    let rows = lines
        .filter(|(text, _)| !text.trim().is_empty())
        .map(|(text, line)| TableRow::parse(text).map_err(|problem| TableError { line, problem }))
        .collect::<Result<Vec<_>, _>>()?;
    let heads: BTreeMap<&str, f64> =
        rows.iter().filter(|row| row.kind == Kind::Head).map(|row| (row.model, row.ms)).collect();
    let mut samples = BTreeMap::<String, Vec<StepSample>>::new();
    for row in &rows {
        if let Some(work) = row.work() {
            let head_ms = heads.get(row.model).copied().unwrap_or(0.0);
            let ms = (row.ms - head_ms) * row.layers_scale + head_ms;
            samples.entry(row.model.to_owned()).or_default().push(StepSample {
                work,
                answers: 0.0,
                ms,
            });
        }
    }
    Ok(samples)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Head,
    Prefill,
    Decode,
}

struct TableRow<'a> {
    model: &'a str,
    kind: Kind,
    new_tokens: u32,
    cached_tokens: u32,
    batch: u32,
    ms: f64,
    layers_scale: f64,
}

impl<'a> TableRow<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let fields: Vec<&str> = text.trim().split(',').collect();
        let columns: Vec<&str> = HEADER.split(',').collect();
        if fields.len() != columns.len() {
            return Err(format!("{} fields instead of {}", fields.len(), columns.len()));
        }
        let number = |at: usize| -> Result<u32, String> {
            let (name, field) = (columns[at], fields[at]);
            field.parse().map_err(|_| format!("{name}: {field:?} is not a whole number"))
        };
        let kind = match fields[1] {
            "head" => Kind::Head,
            "prefill" => Kind::Prefill,
            "decode" => Kind::Decode,
            other => return Err(format!("kind: {other:?} is none of head, prefill, decode")),
        };
        let ms: f64 = fields[6].parse().map_err(|_| format!("ms_median: {:?}", fields[6]))?;
        if !(ms.is_finite() && 0.0 < ms) {
            return Err(format!("ms_median: {ms} is not a time"));
        }
        Ok(Self {
            model: fields[0],
            kind,
            new_tokens: number(2)?,
            cached_tokens: number(3)?,
            batch: number(4)?,
            ms,
            layers_scale: f64::from(number(11)?) / f64::from(number(10)?.max(1)),
        })
    }

    /// Says what the timed step worked through; nothing for rows that a fit must not see.
    fn work(&self) -> Option<StepWork> {
        let unsplit = self.batch < 16 && 4096 < self.cached_tokens + self.new_tokens;
        if self.kind == Kind::Head || (self.kind == Kind::Decode && unsplit) {
            return None;
        }
        let mut work = StepWork::default();
        for _ in 0..self.batch {
            work.add(self.new_tokens, self.cached_tokens);
        }
        Some(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &str) -> String {
        format!("{HEADER}\n{rows}")
    }

    #[test]
    fn rows_of_a_few_layers_are_scaled_to_the_whole_model() {
        let text = table("m,head,1,0,1,0,0.5,0,0,1,8,80\nm,prefill,16,32,1,48,2.5,0,0,1,8,80\n");
        let samples = &read_samples(&text).unwrap()["m"];
        let mut work = StepWork::default();
        work.add(16, 32);
        assert_eq!(samples, &[StepSample { work, answers: 0.0, ms: 20.5 }]);
    }

    #[test]
    fn small_batches_of_long_contexts_are_left_out() {
        let text = table(
            "m,decode,1,8191,8,8192,9,0,0,1,1,1\nm,decode,1,8191,16,8192,9,0,0,1,1,1\n\
             m,decode,1,4095,1,4096,9,0,0,1,1,1\n",
        );
        assert_eq!(read_samples(&text).unwrap()["m"].len(), 2);
    }

    #[test]
    fn a_bad_row_is_named_by_its_line() {
        let wrong = table("m,decode,1,8191,16,8192,fast,0,0,1,1,1\n");
        assert_eq!(read_samples(&wrong).unwrap_err().line, 2);
        assert_eq!(read_samples("a,b\n").unwrap_err().line, 1);
        assert_eq!(read_samples(&table("m,decode,1\n")).unwrap_err().line, 2);
    }
}
