//! `cleave simulate` as a process: the same bytes for the same seed, and errors that say what to do.

#![expect(clippy::disallowed_types, reason = "tests look at a few values of what is printed")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.current_dir(repository()).arg("simulate").args(args);
    command.output().expect("the binary starts")
}

/// Reads what a simulation prints as JSON.
fn json(args: &[&str]) -> Value {
    let output = simulate(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

fn refusal(args: &[&str]) -> String {
    let output = simulate(args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const CONVERSATION: [&str; 2] = ["--trace", "sim/data/mooncake-conversation.jsonl"];

#[test]
fn the_same_seed_prints_the_same_bytes_in_every_form() {
    for form in [&[][..], &["--json"], &["--csv"]] {
        let args = [&CONVERSATION, &["--policy", "all", "--seeds", "2", "--seed", "7"][..], form];
        let args = args.concat();
        let (one, other) = (simulate(&args), simulate(&args));
        assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stderr));
        assert!(!one.stdout.is_empty());
        assert!(one.stdout == other.stdout, "{form:?}");
    }
}

#[test]
fn a_run_says_version_seed_and_parameters_first() {
    let args = [&CONVERSATION, &["--policy", "session", "--seed", "41"][..]].concat();
    let text = String::from_utf8(simulate(&args).stdout).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(concat!("cleave ", env!("CARGO_PKG_VERSION"), " simulate")));
    assert_eq!(lines.next(), Some("  seed: 41"));
    for parameter in ["fleet", "routers", "slo", "workload", "rate scale", "policies"] {
        assert!(text.contains(&format!("\n  {parameter}: ")), "{parameter}");
    }
}

#[test]
fn a_misspelt_policy_is_refused_with_the_names_there_are() {
    let args = [&CONVERSATION, &["--policy", "sesion"][..]].concat();
    let why = refusal(&args);
    assert!(why.contains("\"sesion\"") && why.contains("dynamo_16"), "{why}");
}

#[test]
fn nothing_to_play_and_too_much_to_play_are_refused_with_the_remedy() {
    assert!(refusal(&["--policy", "session"]).contains("--trace FILE"));
    let two = ["--trace", "sim/data/bailian.jsonl", "sim/data/burstgpt.csv"];
    assert!(refusal(&two).contains("--compose"));
    assert!(refusal(&["--synthetic", "chat"]).contains("multi-turn"));
}

#[test]
fn rules_that_size_a_fleet_are_compared_and_say_what_they_cost() {
    let args =
        ["scale", "--scenario", "scenarios/scale.toml", "--until", "1200s", "--start-up", "30s"];
    let document = json(&args);
    let runs = document["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|it| it["scaler"].as_str().unwrap()).collect();
    assert_eq!(names, ["ours", "hpa", "keda", "kpa", "static", "clairvoyant"]);
    for it in runs {
        assert!(0.0 < it["replica_hours"].as_f64().unwrap(), "{it}");
        assert_eq!(it["requests"], runs[0]["requests"], "all play the same");
        assert!(it["replicas_max"].as_u64().unwrap() <= 12, "{it}");
    }
    assert_eq!(document, json(&args), "the same seed gives the same figures");
}

#[test]
fn sizes_of_subsets_that_nobody_was_measured_with_are_no_table_of_zeros() {
    let args = ["subsets", "--scenario", "scenarios/subsets.toml", "--floors", "none,2"];
    let why = refusal(&[&args[..], &["--seeds", "1", "--requests", "3"]].concat());
    assert!(why.contains("nothing was measured") && why.contains("--requests"), "{why}");
}

#[test]
fn a_swarm_prints_what_it_went_through() {
    let output = simulate(&["swarm", "--seeds", "4", "--seed", "100"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("4 worlds, 0 failed"), "{text}");
}

#[test]
fn a_sweep_finds_a_knee_for_each_policy() {
    let args = ["sweep", "--synthetic", "smg-600-prefixes", "--requests", "300", "--replicas", "2"];
    let json = json(&[&args[..], &["--policy", "session,random", "--step", "2"]].concat());
    let knees = json["knees"].as_array().expect("it lists them");
    assert_eq!(knees.len(), 2, "{knees:?}");
    assert!(knees.iter().all(|it| it["requests_per_s"].is_number()), "{knees:?}");
}

#[test]
fn a_report_is_one_page_that_needs_nothing_else() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("report.html");
    let args = [&CONVERSATION, &["--policy", "session,random", "--report"][..]].concat();
    let path = file.to_str().unwrap();
    assert!(simulate(&[&args[..], &[path]].concat()).status.success());
    let page = std::fs::read_to_string(file).unwrap();
    assert!(page.contains("\"ttft_cdf\"") && !page.contains("/*DATA*/"));
    assert!(!page.contains("src=") && !page.contains("href="));
}

#[test]
fn load_is_a_share_of_what_the_fleet_can_do_whatever_the_fleet() {
    let scale = |replicas: &str, load: &str| -> f64 {
        let args = ["--policy", "session", "--load", load, "--replicas", replicas];
        let text =
            String::from_utf8(simulate(&[&CONVERSATION, &args[..]].concat()).stdout).unwrap();
        let line = text.lines().find_map(|it| it.strip_prefix("  rate scale: ")).unwrap();
        line.parse().unwrap()
    };
    let one = scale("4", "0.5");
    assert!((scale("8", "0.5") / one - 2.0).abs() < 1e-9);
    assert!((scale("4", "1.5") / one - 3.0).abs() < 1e-9);
}

#[test]
fn kv_load_is_sessions_that_fill_so_much_of_the_kv() {
    let sessions = |load: &str| -> f64 {
        let trace = ["--trace", "sim/data/claude-code-sessions.jsonl", "--policy", "session"];
        let args = ["--kv-load", load, "--requests", "50", "--prompt-tokens-max", "200000"];
        let text = String::from_utf8(simulate(&[&trace[..], &args].concat()).stdout).unwrap();
        let line = text.lines().find_map(|it| it.strip_prefix("  session starts: ")).unwrap();
        line.trim_end_matches(" at once").parse().unwrap()
    };
    let ratio = sessions("20") / sessions("10");
    assert!((1.9..2.1).contains(&ratio), "{ratio}");
}

#[test]
fn classes_are_told_apart_in_the_table_and_the_json() {
    let args = ["--scenario", "scenarios/deadlines.toml", "--requests", "300", "--seeds", "2"];
    let table = String::from_utf8(simulate(&args).stdout).unwrap();
    for part in ["sent and missed", "at most ", "interactive"] {
        assert!(table.contains(part), "{part} is not in {table}");
    }
    let json = json(&args);
    let class = &json["runs"][0]["classes"][0];
    assert_eq!(class["name"], "interactive", "{class}");
    assert!(
        class["deadlines_met"].is_number() && class["served_mu_per_min"].is_number(),
        "{class}"
    );
    assert!(json["bounds"]["deadlines"][0]["met_max"].is_number(), "{}", json["bounds"]);
}

#[test]
fn tenants_that_both_ask_for_too_much_are_served_alike_while_both_wait() {
    let args = ["--scenario", "scenarios/two-tenants.toml", "--policy", "priced"];
    let more = ["--load", "40", "--prompt-tokens-max", "8192", "--requests", "36000"];
    let json = json(&[&args[..], &more, &["--seed", "11", "--seeds", "1"]].concat());
    let tenants = json["runs"][0]["tenants"].as_array().expect("it lists them");
    let figures: Vec<f64> = tenants.iter().filter_map(|it| it["contested_mu"].as_f64()).collect();
    let [one, other] = figures[..] else { panic!("{figures:?}") };
    assert!(10.0 < one && (0.9..1.1).contains(&(one / other)), "{figures:?}");
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    let refused = |args: &[&str]| refusal(&[&CONVERSATION, args].concat());
    assert!(refused(&["--policy", "session,session"]).contains("twice"));
    assert!(refused(&["--report", "no/such/folder/page.html"]).contains("cannot write"));
    assert!(refused(&["--warmup", "nope.jsonl"]).contains("nope.jsonl"));
    assert!(refused(&["--rate-scale", "-1"]).contains("positive"));
    assert!(refused(&["--until", "1ms"]).contains("nothing to play"));
    assert!(refusal(&["--synthetic", "agentic", "--compose"]).contains("two traces"));
    let missing = refusal(&["--trace", "nope.jsonl"]);
    assert_eq!(missing.matches("os error 2").count(), 1, "{missing}");
}
