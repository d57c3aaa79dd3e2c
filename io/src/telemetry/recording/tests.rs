use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cleave_core::recording::FileHead;
use flate2::read::MultiGzDecoder;

use super::*;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cleave-{name}-{}", uuid::Uuid::new_v4()));
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    files
}

fn unpacked(file: &Path) -> String {
    let mut text = String::new();
    MultiGzDecoder::new(fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn pool() -> PoolLine {
    PoolLine {
        pool: 0,
        at_us: 0,
        name: "default".to_owned(),
        policy: "priced".to_owned(),
        holds: true,
        gates: false,
        learns: true,
        classes: Vec::new(),
        replicas: Vec::new(),
        costs: Vec::new(),
    }
}

fn request(session: u64, blocks: &[u64]) -> RecordedRequest {
    RecordedRequest {
        arrived: Instant::now(),
        pool: 5,
        tenant: 77,
        session,
        blocks: blocks.into(),
        line: RequestLine { status: 200, how: "done".into(), ..RequestLine::default() },
    }
}

fn recorder(dir: &Path, file_bytes_max: u64, bytes_max: u64) -> Recorder {
    let dir = Some(dir.to_owned());
    let settings = RecordSettings { starts_on: true, dir, file_bytes_max, bytes_max };
    Recorder::new(settings, RecordCounters::default())
}

#[test]
fn what_is_noted_is_in_the_file_without_any_name() {
    let folder = Folder::new("record");
    let recorder = recorder(&folder.0, 1 << 20, 1 << 30);
    recorder.write_out(vec![(5, pool())]);
    recorder.note(request(0xabc, &[1, 2]));
    recorder.note(request(0xabc, &[1, 2, 3]));
    recorder.finish();
    let files = files(&folder.0);
    assert_eq!(files.len(), 1);
    let text = unpacked(&files[0]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    let head: FileHead = serde_json::from_str(lines[0]).unwrap();
    assert!(head.check().is_ok() && head.part == 0);
    assert_eq!(serde_json::from_str::<PoolLine>(lines[1]).unwrap().name, "default");
    let read = |at: usize| serde_json::from_str::<RequestLine>(lines[at]).unwrap();
    let (one, two) = (read(2), read(3));
    assert_eq!((&one.session, &one.tenant), (&two.session, &two.tenant));
    assert_eq!(one.blocks[0], two.blocks[0], "what they share");
    assert!(!text.contains("2748") && !text.contains("\"77\""), "{text}");
    assert_eq!(recorder.status().written_total, 2);
}

#[test]
fn files_are_followed_by_others_and_the_oldest_go() {
    let folder = Folder::new("rotate");
    fs::create_dir_all(&folder.0).unwrap();
    fs::write(folder.0.join("notes.txt"), "kept").unwrap();
    let recorder = recorder(&folder.0, 4 << 10, 16 << 10);
    for round in 0..40_u64 {
        recorder.write_out(vec![(5, PoolLine { policy: format!("p{round}"), ..pool() })]);
        // What hardly packs.
        let blocks: Vec<u64> =
            (0..40).map(|it| (round * 40 + it).wrapping_mul(0x9e37_79b9)).collect();
        for (at, block) in blocks.iter().enumerate() {
            recorder.note(request(*block, &blocks[..at]));
        }
        recorder.write_out(Vec::new());
        recorder.writing.lock().unwrap().run.as_mut().unwrap().pack().unwrap();
    }
    recorder.finish();
    let files = files(&folder.0);
    let recordings: Vec<_> =
        files.iter().filter(|it| it.extension().is_some_and(|it| it == "rec")).collect();
    let bytes: u64 = recordings.iter().map(|it| fs::metadata(it).unwrap().len()).sum();
    assert!(1 < recordings.len() && bytes <= 20 << 10, "{} files, {bytes} bytes", recordings.len());
    assert!(folder.0.join("notes.txt").exists());
    for file in recordings {
        let text = unpacked(file);
        let mut lines = text.lines();
        assert!(serde_json::from_str::<FileHead>(lines.next().unwrap()).unwrap().part < 40);
        if let Some(second) = lines.next() {
            assert!(
                serde_json::from_str::<PoolLine>(second).is_ok(),
                "each file tells of the pools"
            );
        }
    }
}

#[test]
fn what_waits_is_bounded_and_what_does_not_fit_is_counted() {
    let folder = Folder::new("full");
    let recorder = recorder(&folder.0, 1 << 20, 1 << 30);
    let noted = QUEUE_MAX + 100;
    (0..noted).for_each(|_| recorder.note(request(1, &[])));
    assert_eq!(recorder.lock().requests.len(), QUEUE_MAX);
    assert_eq!(recorder.status().dropped_total, 100);
}

#[test]
fn without_a_folder_it_cannot_be_turned_on_and_a_bad_one_turns_it_off() {
    let none = Recorder::new(RecordSettings::default(), RecordCounters::default());
    assert_eq!(none.switch(true, None), Err(NoFolder));
    assert!(!none.is_on());
    let bad = recorder(Path::new("/dev/null/not-a-folder"), 1 << 20, 1 << 30);
    assert!(bad.is_on());
    bad.note(request(1, &[]));
    bad.write_out(Vec::new());
    let status = bad.status();
    assert!(!status.on && status.problem.is_some() && status.dropped_total == 1, "{status:?}");
}

#[test]
fn it_can_be_turned_on_for_a_time() {
    let folder = Folder::new("time");
    let recorder = recorder(&folder.0, 1 << 20, 1 << 30);
    recorder.switch(false, None).unwrap();
    assert!(!recorder.status().on);
    recorder.switch(true, Some(Duration::from_secs(600))).unwrap();
    let status = recorder.status();
    assert!(status.on && status.seconds_left.is_some_and(|it| (590..=600).contains(&it)));
}

#[test]
fn a_request_that_nothing_is_known_of_is_a_short_line() {
    let line = RequestLine { t: 5, end: 7, status: 200, ..RequestLine::default() };
    let text = serde_json::to_string(&line).unwrap();
    assert!(text.len() < 120 && !text.contains("cached"), "{text}");
    assert_eq!(serde_json::from_str::<RequestLine>(&text).unwrap(), line);
}
