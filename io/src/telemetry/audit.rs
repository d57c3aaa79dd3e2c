//! Which token ordered what, and when: a line of JSON for each order and each reload, appended to a file. An order
//! that cannot be written down is not carried out. The file is opened for each line, because orders are
//! rare and the file may be rotated.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::time::SystemTime;

use serde::Serialize;

/// Where orders are written down, if anywhere.
#[derive(Clone, Debug, Default)]
pub struct AuditLog(pub Option<PathBuf>);

/// One order.
#[derive(Clone, Debug, Serialize)]
pub struct AuditEntry<'a> {
    /// The name of the token, or what caused it.
    pub by: &'a str,
    /// `drain`, `undrain`, `freeze`, `unfreeze`, `pin`, `unpin`, `record`, `stop recording` or `reload`; or `not kept`, of
    /// the order before, which is not in force.
    pub order: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<&'a str>,
    /// The replica, or the workload and its replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    at: String,
    #[serde(flatten)]
    entry: &'a AuditEntry<'a>,
}

impl AuditLog {
    /// Writes an order down; an error where it could not be.
    pub fn write(&self, entry: &AuditEntry<'_>) -> io::Result<()> {
        let Some(file) = &self.0 else { return Ok(()) };
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let mut line = serde_json::to_vec(&Line { at, entry })?;
        line.push(b'\n');
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(file)?;
        if is_cut_off(&mut file)? {
            line.insert(0, b'\n');
        }
        file.write_all(&line)
    }
}

/// Tells whether the last line of the file has no end: the disk was full in the middle of it. The order was refused,
/// and the next one must not stand on the same line.
fn is_cut_off(file: &mut File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_one_line_and_a_full_disk_is_an_error() {
        let file = std::env::temp_dir().join(format!("cleave-audit-{}", std::process::id()));
        let entry = AuditEntry { by: "alice", order: "freeze", pool: Some("p"), of: None };
        let log = AuditLog(Some(file.clone()));
        log.write(&entry).unwrap();
        log.write(&AuditEntry { of: Some("x\n\"y".to_owned()), ..entry.clone() }).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        std::fs::write(&file, format!("{text}{{\"at\":\"cut o")).unwrap();
        log.write(&entry).unwrap();
        let after = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(after.lines().count(), 4, "{after}");
        assert!(after.lines().next_back().unwrap().starts_with("{\"at\":\"20"), "{after}");
        assert!(text.contains(r#","by":"alice","order":"freeze","pool":"p"}"#), "{text}");
        assert!(AuditLog(Some("/dev/full".into())).write(&entry).is_err());
        assert!(AuditLog(None).write(&entry).is_ok());
    }
}
