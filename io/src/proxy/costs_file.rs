//! What a pool has learned of its costs, beside its assignment: after a restart prices are right at once.
//! A file that is missing, unreadable or broken is no reason to stop: the pool then learns anew, and what
//! it reads is checked by the learner like anything it sees.

use std::path::Path;
use std::{fs, io};

use cleave_core::cost::learned::Learned;
use serde::{Deserialize, Serialize};

/// The form of the file; another one is not read.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct CostsFile {
    version: u32,
    costs: Vec<Learned>,
}

/// Writes it, beside the file first, so that a crash leaves the old one whole.
pub(super) fn write(file: &Path, costs: Vec<Learned>) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = file.with_extension("new");
    fs::write(&beside, serde_json::to_vec(&CostsFile { version: VERSION, costs })?)?;
    fs::rename(&beside, file)
}

/// Reads it; nothing when there is no file.
pub(super) fn read(file: &Path) -> io::Result<Vec<Learned>> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let content: CostsFile = serde_json::from_slice(&text)?;
    if content.version == VERSION {
        Ok(content.costs)
    } else {
        Err(io::Error::other(format!("is of version {}, not {VERSION}", content.version)))
    }
}

/// Says by what learned costs are worth writing again: which are used, and every few dozen sightings.
pub(super) fn progress(costs: &[Learned]) -> u64 {
    costs.iter().map(|it| (it.seen / 64) << 1 | u64::from(it.is_used)).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cleave_core::cost::learned::Learner;

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let folder = std::env::temp_dir().join(format!("cleave-costs-{}", std::process::id()));
        let file = folder.join("costs-8080-a.json");
        assert_eq!(read(&file).unwrap(), []);
        let costs = vec![Learner::new(Arc::default()).learned()];
        write(&file, costs.clone()).unwrap();
        assert_eq!(read(&file).unwrap(), costs);
        fs::write(&file, "{\"version\":9,\"costs\":[]}").unwrap();
        assert!(read(&file).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
