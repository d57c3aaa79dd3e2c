//! What is refused of the number of replicas, and what is made of the rest.

use std::time::Duration;

use super::*;
use crate::proxy::{Actuator, ScaleCommand, ScaleMode};

fn pool(rest: &str) -> String {
    format!("[[pools]]\nname = \"a\"\n{rest}\n")
}

#[test]
fn a_number_that_cannot_be_kept_or_acted_on_is_refused_with_its_remedy() {
    let said = |rest: &str| lines(load_text(&pool(rest))).concat();
    let found = "models = [\"m\"]\ndiscover = \"dns:a:1\"\n";
    let scaled = |rest: &str| said(&format!("{found}scaling = {{ {rest} }}"));
    assert!(scaled("min = 1").contains("pools[0].scaling.max: is missing"));
    assert!(scaled("min = 3, max = 2").contains("pools[0].scaling.min: is more than max"));
    let unnamed = "discover = \"dns:a:1\"\nscaling = { min = 0, max = 2 }";
    assert!(said(unnamed).contains("pools[0].scaling.min: is 0, but the pool does not list"));
    assert!(scaled("max = 2, mode = \"command\"").contains("pools[0].scaling.command: is missing"));
    let unused = scaled("max = 2, command = [\"a\"]");
    assert!(unused.contains("pools[0].scaling.command: is given, but not used"));
    let untargeted = scaled("max = 2, mode = \"kubernetes\"");
    assert!(untargeted.contains("pools[0].scaling.target: is missing"));
    assert!(untargeted.contains("the pool's replicas are found otherwise"));
    let target = scaled("max = 2, mode = \"kubernetes\", target = \"job/a\"");
    assert!(target.contains("is nothing that can be scaled"), "{target}");
    assert!(
        scaled("max = 2, mode = \"guess\"").contains("\"advise\", \"command\", \"kubernetes\"")
    );
    let listed =
        "replicas = [\"http://a:1\"]\nscaling = { max = 2, mode = \"command\", command = [\"a\"] }";
    assert!(said(listed).contains("has no `discover` to find them by"));
}

#[test]
fn the_settings_are_what_was_said_and_usual_otherwise() {
    let text = pool("replicas = [\"http://a:1\"]\nscaling = { max = 8 }");
    let config = load_text(&text).unwrap();
    let scaling = config.pools[0].scaling.clone().unwrap();
    assert_eq!((scaling.min, scaling.max, scaling.start_up), (1, 8, None));
    assert_eq!(scaling.actuator.mode(), ScaleMode::Advise);
    let text = pool(
        "models = [\"m\"]\ndiscover = \"file:/tmp/list\"\n[pools.scaling]\nmode = \"command\"\nmin = 0\nmax = 6\n\
         start_up = \"90s\"\ncommand = [\"scale\", \"--cluster\", \"a b\"]\ncommand_timeout = \"5s\"",
    );
    let scaling = load_text(&text).unwrap().pools[0].scaling.clone().unwrap();
    assert_eq!(scaling.start_up, Some(Duration::from_secs(90)));
    let arguments = vec!["--cluster".to_owned(), "a b".to_owned()];
    let timeout = Duration::from_secs(5);
    let command =
        ScaleCommand { program: "scale".to_owned(), arguments, timeout, hidden: Vec::new() };
    assert_eq!(scaling.actuator, Actuator::Command(command));
}
