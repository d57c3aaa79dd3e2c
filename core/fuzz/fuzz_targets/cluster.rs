//! Whatever another router sends, reading it must not panic, and a message that was read is written as it was.

#![no_main]

use cleave_core::cluster::{PeerFrame, Hello, Link, VERSION, VERSION_MIN};
use cleave_core::domain::{Moment, RouterId};
use libfuzzer_sys::fuzz_target;

fn hello(router: u64) -> Hello {
    let (version, version_min, address) = (VERSION, VERSION_MIN, String::new());
    Hello { version, version_min, router: RouterId(router), address }
}

fuzz_target!(|input: &[u8]| {
    if let Ok(frame) = PeerFrame::decode(input) {
        assert_eq!(PeerFrame::decode(&frame.encode()), Ok(frame));
    }
    // A peer that was met may send any frames in any order: two bytes say how long each is.
    let (mut link, mut events) = (Link::new(Moment::ZERO, hello(1)), Vec::new());
    _ = link.on_frame(Moment::ZERO, &PeerFrame::Hello(hello(2)).encode(), &mut events);
    let mut rest = input;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (frame, after) = after.split_at(length);
        _ = link.on_frame(Moment::ZERO, frame, &mut events);
        while link.take(Moment::ZERO).is_some() {}
        rest = after;
    }
});
