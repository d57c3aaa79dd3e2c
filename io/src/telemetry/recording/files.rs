//! The files of recordings: gzip, in members that are each whole, so that a file can be read while it is written
//! and a crash loses the last seconds only. A full file is followed by the next, and the oldest of the folder
//! go when all of them are too large together. Only files that look like recordings are ever removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use cleave_core::recording::{FileHead, VERSION};
use flate2::Compression;
use flate2::write::GzEncoder;
use tracing::{info, warn};

use super::settings::RecordSettings;

const PREFIX: &str = "cleave-";
const SUFFIX: &str = ".rec";
/// For its owner only: it tells how much each tenant used when, if not by name.
const FILE_MODE: u32 = 0o600;

#[derive(Debug)]
pub(super) struct RecordingFiles {
    dir: PathBuf,
    /// The zero of all times in the files.
    pub(super) began: Instant,
    began_at: SystemTime,
    recorder: String,
    part: u64,
    file: File,
    bytes: u64,
    file_bytes_max: u64,
    bytes_max: u64,
}

impl RecordingFiles {
    /// Makes the folder, if it is not there, and the first file.
    pub(super) fn new(
        dir: &Path,
        settings: &RecordSettings,
        began_at: SystemTime,
    ) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let recorder = uuid::Uuid::new_v4().simple().to_string();
        let file = open(&name(dir, began_at, &recorder, 0))?;
        let mut it = Self {
            dir: dir.to_owned(),
            began: Instant::now(),
            began_at,
            recorder,
            part: 0,
            file,
            bytes: 0,
            file_bytes_max: settings.file_bytes_max,
            bytes_max: settings.bytes_max,
        };
        it.begin()?;
        Ok(it)
    }

    /// Appends lines, packed by themselves.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(lines)?;
        let packed = encoder.finish()?;
        self.file.write_all(&packed)?;
        self.bytes += u64::try_from(packed.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Begins the next file if this one is full, and says so.
    pub(super) fn rotate_if_full(&mut self) -> io::Result<bool> {
        if self.bytes < self.file_bytes_max {
            return Ok(false);
        }
        self.part += 1;
        self.file = open(&name(&self.dir, self.began_at, &self.recorder, self.part))?;
        self.bytes = 0;
        self.begin()?;
        Ok(true)
    }

    fn begin(&mut self) -> io::Result<()> {
        let since = self.began_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let head = FileHead {
            cleave_recording: VERSION,
            recorder: self.recorder.clone(),
            began_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            part: self.part,
        };
        let mut line = serde_json::to_vec(&head)?;
        line.push(b'\n');
        self.append(&line)?;
        self.make_room()
    }

    /// Removes the oldest files until there is room for a full one.
    fn make_room(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours =
                name.to_str().is_some_and(|it| it.starts_with(PREFIX) && it.ends_with(SUFFIX));
            if is_ours {
                let about = entry.metadata()?;
                files.push((about.modified()?, entry.path(), about.len()));
            }
        }
        files.sort_unstable();
        let own = name(&self.dir, self.began_at, &self.recorder, self.part);
        let mut sum: u64 = files.iter().map(|it| it.2).sum();
        let room = self.bytes_max.saturating_sub(self.file_bytes_max);
        for (_, file, bytes) in files.iter().filter(|it| it.1 != own) {
            if sum <= room {
                break;
            }
            match fs::remove_file(file) {
                Ok(()) => info!(file = %file.display(), "an old recording makes room"),
                Err(error) => warn!(file = %file.display(), %error, "an old recording stays"),
            }
            sum = sum.saturating_sub(*bytes);
        }
        Ok(())
    }
}

fn name(dir: &Path, began: SystemTime, recorder: &str, part: u64) -> PathBuf {
    let at = humantime::format_rfc3339_seconds(began).to_string().replace([':', '-'], "");
    let recorder = recorder.get(..8).unwrap_or(recorder);
    dir.join(format!("{PREFIX}{at}-{recorder}-{part:04}{SUFFIX}"))
}

fn open(file: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).append(true).mode(FILE_MODE).open(file).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", file.display()))
    })
}
