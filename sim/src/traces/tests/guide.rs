//! The guide's example of each format is read by its reader, and told by its first line.

use super::super::format::NAMES;
use super::super::*;

const PAGE: &str = include_str!("../../../../docs/guide/trace-formats.md");

#[test]
fn every_format_has_an_example_in_the_guide_that_can_be_played() {
    for (name, format) in NAMES {
        let marker = format!("\n```{name}\n");
        let (_, rest) = PAGE.split_once(&marker).unwrap_or_else(|| panic!("no example of {name}"));
        let (example, _) = rest.split_once("\n```").unwrap();
        assert_eq!(example.lines().count(), 5, "{name}");
        let file = std::env::temp_dir().join(format!("cleave-guide-{name}-{}", std::process::id()));
        std::fs::write(&file, example).unwrap();
        let told = format_of(&file).unwrap();
        let played = Workload::open(&file, None, &Replay::default()).and_then(|mut it| it.take());
        std::fs::remove_file(&file).unwrap();
        // Without ids a line of Mooncake's is one of Azure's.
        assert_eq!(told, Some(format), "{name}");
        let request = played.unwrap_or_else(|why| panic!("{name}: {why}")).unwrap();
        assert!(0 < request.prompt.tokens() && 0 < request.output_tokens, "{name}");
    }
}
