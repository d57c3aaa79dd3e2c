//! Whatever is written, something sensible is said, and nothing panics.

use proptest::prelude::*;
use toml::Value;

use super::*;

/// Loads and looks at everything that can be shown.
fn survives(text: &str, variables: &[(String, String)]) {
    let file = Some(("file".to_owned(), Ok(text.to_owned())));
    match assemble(file, variables.iter().cloned(), Flags::default()) {
        Ok(config) => {
            assert!(config.pools.iter().any(|it| !it.replicas.is_empty()));
            assert!(changes_static(&config, &config).is_empty());
        }
        Err(problems) => {
            assert!(problems.iter().next().is_some(), "refused without a reason");
            let shown = problems.to_string();
            // The schema admits nothing that cannot be read afterwards.
            assert!(!shown.contains("does not fit the schema"), "{shown}");
        }
    }
}

/// Keys that exist, mostly.
fn key() -> impl Strategy<Value = String> {
    let mut known: Vec<String> = leaves(&Shape::of_file())
        .into_iter()
        .flat_map(|(path, _)| path.split('.').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    known.sort();
    known.dedup();
    prop_oneof![8 => prop::sample::select(known), 1 => ".{0,8}"]
}

fn word() -> impl Strategy<Value = String> {
    let likely = vec!["session", "5s", "0s", "http://a:1", "http://A:1/", "127.0.0.1:80", "info"];
    prop_oneof![4 => prop::sample::select(likely).prop_map(str::to_owned), 1 => ".{0,12}"]
}

/// Trees of TOML that look like a configuration.
fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        word().prop_map(Value::String),
        (-2_i64..70).prop_map(Value::Integer),
        any::<i64>().prop_map(Value::Integer),
        any::<f64>().prop_map(Value::Float),
        any::<bool>().prop_map(Value::Boolean),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            3 => prop::collection::btree_map(key(), inner, 0..6)
                .prop_map(|map| Value::Table(map.into_iter().collect())),
        ]
    })
}

fn variables() -> impl Strategy<Value = Vec<(String, String)>> {
    let step = prop_oneof![4 => key(), 1 => "[0-3]"];
    let name =
        prop::collection::vec(step, 0..6).prop_map(|it| format!("CLEAVE__{}", it.join("__")));
    let text = prop_oneof![word(), tree().prop_map(|it| it.to_string())];
    prop::collection::vec((name, text), 0..4)
}

proptest! {
    #[test]
    fn any_text_is_answered(text in ".*", variables in variables()) {
        survives(&text, &variables);
    }

    #[test]
    fn any_tree_is_answered(
        tree in prop::collection::btree_map(key(), tree(), 0..8),
        variables in variables(),
    ) {
        survives(&toml::to_string(&tree).unwrap(), &variables);
    }

    #[test]
    fn any_variable_is_answered(name in ".*", text in ".*") {
        survives(ENOUGH, &[(format!("CLEAVE__{name}"), text)]);
    }
}

#[test]
fn depth_is_bounded_before_it_becomes_recursion() {
    survives(&format!("x = {}", "[".repeat(100_000)), &[]);
    survives(&format!("{}x = 1", "a.".repeat(100_000)), &[]);
    survives(&format!("[{}x]", "a.".repeat(100_000)), &[]);
    survives(ENOUGH, &[(format!("CLEAVE__{}", "REPLICAS__0__".repeat(100_000)), "1".to_owned())]);
    survives(ENOUGH, &[("CLEAVE__REPLICAS".to_owned(), "[".repeat(100_000))]);
}
