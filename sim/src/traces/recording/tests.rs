use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::{Replay, Workload};
use super::*;

const HEAD: &str = r#"{"cleave_recording":1,"recorder":"ab12","began_ms":1000,"part":0}"#;
const POOL: &str = r#"{"pool":0,"at_us":0,"name":"default","policy":"priced","holds":true,"gates":false,"learns":true,"classes":[],"replicas":[],"costs":[]}"#;

struct Written(PathBuf);

impl Written {
    fn new(bytes: &[u8]) -> Self {
        let name = format!("cleave-rec-{}-{:x}", std::process::id(), name_of(bytes));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Another name for other content and another test.
fn name_of(bytes: &[u8]) -> u64 {
    let thread = format!("{:?}", std::thread::current().id());
    bytes.iter().chain(thread.as_bytes()).fold(7, |hash, it| mix(hash, u64::from(*it)))
}

fn request(t: u64, blocks: &str, input: u32) -> String {
    format!(
        r#"{{"t":{t},"pool":0,"tenant":"aa","session":"bb","class":1,"bytes":{bytes},"in":{input},"out":40,"blocks":{blocks},"block":256,"first":5000,"end":900000,"replica":0,"status":200,"how":"done","stream":true}}"#,
        bytes = input * 4,
    )
}

fn packed(lines: &[&str]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    for line in lines {
        writeln!(packer, "{line}").unwrap();
    }
    packer.finish().unwrap()
}

#[test]
fn requests_are_played_in_the_order_in_which_they_came_and_share_what_they_shared() {
    let (one, two) = (request(100, "[[0,4]]", 300), request(2_000_000, "[[0,4],[9,2]]", 400));
    // It ended before the first one did.
    let file = Written::new(&packed(&[HEAD, POOL, &two, &one]));
    let recording = Recording::open([file.0.as_path()]).unwrap();
    assert!(recording.damage.is_empty() && recording.pools().count() == 1);
    let requests = recording.requests_from(1_000_000);
    assert_eq!(requests[0].arrival, Moment::ZERO + Duration::from_micros(100));
    assert_eq!(requests[1].think, Some(Duration::from_micros(2_000_000 - 900_100)));
    let block = NonZeroU32::new(64).unwrap();
    let hashes = |at: usize| requests[at].prompt.hashes(block).collect::<Vec<u64>>();
    assert_eq!((hashes(0).len(), hashes(1).len()), (4, 6));
    assert_eq!(hashes(0)[..4], hashes(1)[..4]);
    let next = requests[0].next.as_ref().unwrap();
    assert_eq!(**next, requests[1].prompt, "it names the answer's blocks");
    let mut workload = Workload::open(&file.0, None, &Replay::default()).unwrap();
    assert_eq!(workload.next_arrival().unwrap(), Some(Moment::ZERO));
}

#[test]
fn what_was_refused_for_want_of_room_is_played_and_what_a_contract_refused_is_not() {
    let refused = |how: &str| {
        let line = request(100, "[[0,4]]", 300);
        line.replace(
            "\"replica\":0,\"status\":200,\"how\":\"done\"",
            &format!("\"status\":429,\"how\":\"{how}\""),
        )
    };
    let played = |how: &str| {
        let file = Written::new(&packed(&[HEAD, POOL, &refused(how)]));
        Recording::open([file.0.as_path()]).unwrap().requests_from(0).len()
    };
    for how in FOR_ROOM {
        assert_eq!(played(how), 1, "{how}");
    }
    for how in ["over_contract", "no_replica", "quarantined", "id_not_found"] {
        assert_eq!(played(how), 0, "{how}");
    }
}

#[test]
fn what_is_whole_of_a_damaged_file_is_read_and_the_rest_is_told() {
    let one = request(100, "[[0,4]]", 300);
    let whole = packed(&[HEAD, POOL, &one]);
    let second = packed(&[&request(200, "[[0,4]]", 300)]);
    let mut cut = whole.clone();
    cut.extend(&second[..second.len() / 2]);
    let mut garbled = whole.clone();
    garbled.extend(packed(&["{\"t\":1,"]));
    let mut absurd = whole;
    absurd.extend(packed(&[&request(300, "[[0,4000000000],[0,4000000000]]", 300)]));
    for (bytes, why) in [(cut, "line 4"), (garbled, "line 4"), (absurd, "more blocks")] {
        let file = Written::new(&bytes);
        let recording = Recording::open([file.0.as_path()]).unwrap();
        assert_eq!(recording.requests.len(), 1);
        let refusal = Workload::open(&file.0, None, &Replay::default()).unwrap_err().to_string();
        assert!(refusal.contains("lines before it"), "{refusal}");
        let name = file.0.display().to_string();
        let [damage] = &recording.damage[..] else { panic!("{:?}", recording.damage) };
        assert!(damage.contains(&name) && damage.contains("lines before it"), "{damage}");
        assert!(damage.contains(why) || damage.contains("cannot read"), "{damage}");
    }
}

#[test]
fn what_is_no_recording_or_another_form_is_refused_with_its_file() {
    let other = HEAD.replace(":1,\"rec", ":7,\"rec");
    for (text, why) in [(other.as_str(), "version 7"), ("{\"a\":1}", "line 1"), ("", "no lines")] {
        let file = Written::new(text.as_bytes());
        let refusal = Recording::open([file.0.as_path()]).unwrap_err().to_string();
        assert!(refusal.contains(why), "{refusal}");
        assert!(refusal.contains(&file.0.display().to_string()), "{refusal}");
    }
}

#[test]
fn numbers_beyond_those_of_a_space_are_in_the_next() {
    let mut runs = Runs::default();
    push(&mut runs, 1, NumberedRun((1 << 32) - 2, 4));
    assert_eq!(runs.blocks(), 4);
    let mut last = Runs::default();
    push(&mut last, 1, NumberedRun(u64::MAX - 1, 9));
    assert!(last.blocks() <= 9);
}
