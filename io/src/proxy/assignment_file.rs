//! What outlives the process: each pool's assignment, in a file of its own, so that after a restart
//! the same sessions go to the same replicas. A file that is missing, unreadable or broken is no
//! reason to stop: the planner then begins anew, and where load is even it comes to the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use cleave_core::brain::AssignmentView;
use cleave_core::domain::{Moment, Place};
use cleave_core::sharding::{Assignment, Flaw, Generation, Row, Slice, SliceReason};
use serde::{Deserialize, Serialize};

/// The form of the file; another one is not read.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct AssignmentFile {
    version: u32,
    incarnation: u64,
    number: u64,
    /// Addresses by place, for people that read the file.
    replicas: BTreeMap<String, String>,
    slices: Vec<SliceLine>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SliceLine {
    low: String,
    high: String,
    holders: Vec<String>,
    why: String,
    since: u64,
    previous: Option<String>,
}

/// Why a file is not taken up.
#[derive(Debug, thiserror::Error)]
pub(super) enum AssignmentFileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("is of version {0}, not {VERSION}")]
    Version(u32),
    #[error("has `{0}` where a number or a word it knows should be")]
    Word(String),
    #[error(transparent)]
    Flaw(#[from] Flaw),
}

/// Names a file of a pool: by port, because two routers may share a folder.
pub(super) fn file_of(folder: &Path, kind: &str, port: u16, pool: &str) -> PathBuf {
    let plain = |it: char| if it.is_ascii_alphanumeric() { it } else { '_' };
    let pool: String = pool.chars().map(plain).collect();
    folder.join(format!("{kind}-{port}-{pool}.json"))
}

/// Writes an assignment, beside the file first, so that a crash leaves the old one whole.
pub(super) fn write(
    file: &Path,
    view: &AssignmentView,
    names: &BTreeMap<Place, String>,
) -> Result<(), AssignmentFileError> {
    let it = &view.assignment;
    let generation = it.generation();
    let line = |it: cleave_core::sharding::Held<'_>| SliceLine {
        low: hex(it.slice.low),
        high: hex(it.slice.high),
        holders: it.holders.iter().map(|it| hex(it.0)).collect(),
        why: it.why.as_str().to_owned(),
        since: it.since,
        previous: it.previous.map(|it| hex(it.0)),
    };
    let content = AssignmentFile {
        version: VERSION,
        incarnation: generation.incarnation,
        number: generation.number,
        replicas: names.iter().map(|(place, name)| (hex(place.0), name.clone())).collect(),
        slices: it.iter().map(line).collect(),
    };
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = file.with_extension("new");
    fs::write(&beside, serde_json::to_vec(&content)?)?;
    fs::rename(&beside, file)?;
    Ok(())
}

/// Reads an assignment; `None` when there is no file.
pub(super) fn read(file: &Path) -> Result<Option<Arc<Assignment>>, AssignmentFileError> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let content: AssignmentFile = serde_json::from_slice(&text)?;
    if content.version != VERSION {
        return Err(AssignmentFileError::Version(content.version));
    }
    let (incarnation, number) = (content.incarnation, content.number);
    let rows = content.slices.into_iter().map(row).collect::<Result<Vec<Row>, _>>()?;
    let assignment = Assignment::from_rows(Generation { incarnation, number }, rows)?;
    Ok(Some(Arc::new(assignment)))
}

fn row(line: SliceLine) -> Result<Row, AssignmentFileError> {
    let place = |it: &String| number(it).map(Place);
    Ok(Row {
        slice: Slice { low: number(&line.low)?, high: number(&line.high)? },
        holders: line.holders.iter().map(place).collect::<Result<_, _>>()?,
        why: SliceReason::read(&line.why).ok_or(AssignmentFileError::Word(line.why))?,
        since: line.since,
        settled_at: Moment::ZERO,
        previous: line.previous.as_ref().map(place).transpose()?,
    })
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

fn number(text: &str) -> Result<u64, AssignmentFileError> {
    u64::from_str_radix(text, 16).map_err(|_| AssignmentFileError::Word(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use cleave_core::brain::{Brain, Event, Settings};
    use cleave_core::domain::{Extent, Outline, ReplicaId, RequestId, SliceKey};
    use cleave_core::fleet::Probe;
    use cleave_core::queue::Claim;

    use super::*;

    /// A brain with eight replicas that has seen two workloads and planned.
    fn brain() -> Brain {
        let mut brain = Brain::new(Settings::default());
        let mut actions = Vec::new();
        for number in 0..8 {
            let (replica, name) = (ReplicaId(number), format!("http://gpu-{number}:8000"));
            let hardware = Arc::default();
            let joined = Event::Joined { replica, name, weight: 1.0, hardware };
            brain.on_event(Moment::ZERO, joined, &mut actions);
            let probed = Event::Probed { replica, probe: Probe::Passed };
            brain.on_event(Moment::ZERO, probed, &mut actions);
        }
        for number in 0..2 {
            let (request, key) = (RequestId(number), SliceKey::new(number, "m", "s"));
            let outline = Outline { prompt_tokens: 1000, ..Outline::default() };
            let extent = Extent::default();
            let arrived = Event::Arrived { request, key, outline, extent, claim: Claim::default() };
            brain.on_event(Moment::ZERO, arrived, &mut actions);
        }
        brain.on_time(Moment::from_nanos(5_000_000_000), &mut actions);
        brain
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = std::env::temp_dir().join(format!("cleave-keep-{}", std::process::id()));
        let file = file_of(&folder, "assignment", 8080, "llama/70b");
        assert!(file.ends_with("assignment-8080-llama_70b.json"));
        assert!(read(&file).unwrap().is_none());
        let view = brain().assignment(Moment::from_nanos(6_000_000_000));
        assert!(view.divided && !view.assignment.is_empty());
        let name = (view.assignment.all_holders()[0], "http://gpu-0:8000".to_owned());
        write(&file, &view, &BTreeMap::from([name])).unwrap();
        let kept = read(&file).unwrap().unwrap();
        assert_eq!(kept.generation(), view.assignment.generation());
        for (one, other) in kept.iter().zip(view.assignment.iter()) {
            assert_eq!((one.slice, one.holders, one.why), (other.slice, other.holders, other.why));
        }
        fs::write(&file, "{\"version\":9}").unwrap();
        assert!(read(&file).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
