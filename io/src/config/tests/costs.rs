//! Where replicas get their coefficients from, and what is said when they cannot.

use std::path::PathBuf;

use cleave_core::cost::{Coefficients, CostBook, built_in};

use super::{Config, lines, load_text};

/// A file of coefficients that is gone when this is.
struct Costs(PathBuf);

impl Costs {
    fn new(text: &str) -> Self {
        let name = format!("cleave-costs-{}.toml", uuid::Uuid::new_v4());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn of(classes: &[(&str, f64)]) -> Self {
        let mut book = CostBook::default();
        for (class, slowness) in classes {
            let mut entry = Coefficients { model: "m".to_owned(), ..built_in("x-8b").unwrap() };
            entry.class = (*class).to_owned();
            entry.step.floor_ms *= slowness;
            entry.knee.requests_per_min /= slowness;
            book.put(entry);
        }
        Self::new(&toml::to_string(&book).unwrap())
    }

    fn pool(&self, rest: &str) -> String {
        let path = self.0.display();
        format!("[[pools]]\nname = \"p\"\nmodels = [\"m\"]\ncosts = \"{path}\"\n{rest}")
    }
}

impl Drop for Costs {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

fn classes(config: &Config) -> Vec<(&str, f64)> {
    let replicas = config.pools.iter().flat_map(|it| &it.replicas);
    replicas.map(|it| (it.hardware.class.as_str(), it.hardware.step.floor_ms)).collect()
}

#[test]
fn a_replica_has_the_class_it_names_or_its_pools_or_the_first_of_the_file() {
    let costs = Costs::of(&[("fast", 1.0), ("slow", 2.0)]);
    let replicas =
        "replicas = [\"http://a:1\", { url = \"http://b:1\", class = \"slow\" }, \"http://c:1\"]";
    let floor = |config: &Config, at: usize| classes(config)[at].1 / classes(config)[0].1;
    let config = load_text(&costs.pool(replicas)).unwrap();
    let names: Vec<&str> = classes(&config).iter().map(|it| it.0).collect();
    assert_eq!(names, ["fast", "slow", "fast"]);
    assert!((floor(&config, 1) - 2.0).abs() < 1e-9);
    let config = load_text(&costs.pool(&format!("class = \"slow\"\n{replicas}"))).unwrap();
    assert!(classes(&config).iter().all(|it| it.0 == "slow"));
    // One file for all pools, and the short form for one pool.
    let text = format!("costs = \"{}\"\nreplicas = [\"http://a:1\"]", costs.0.display());
    assert_eq!(classes(&load_text(&text).unwrap())[0].0, "fast");
}

#[test]
fn without_a_file_the_models_name_and_the_gpu_tell() {
    let floor = |models: &str, class: &str| {
        let text = format!("[[pools]]\nname = \"p\"\nmodels = [{models}]\n{class}\n");
        let config = load_text(&format!("{text}replicas = [\"http://a:1\"]")).unwrap();
        classes(&config)[0].1
    };
    let eight = floor("\"llama-3-8b\"", "");
    assert!(6.0 * eight < floor("\"llama-3-70b\"", ""));
    assert!(6.0 * eight < floor("\"llama-3-8b\", \"llama-3-70b\"", ""), "the largest rules");
    assert!(1.4 * eight < floor("\"llama-3-8b\"", "class = \"h100\""));
    assert!((floor("\"gpt-4o\"", "") - eight).abs() < 1e-9);
}

#[test]
fn what_is_wrong_with_coefficients_names_the_file_the_key_and_the_remedy() {
    let good = Costs::of(&[("fast", 1.0)]);
    let text = std::fs::read_to_string(&good.0).unwrap();
    let replica = "replicas = [\"http://a:1\"]";
    let check = |costs: &Costs, rest: &str, wanted: &[&str]| {
        let said = lines(load_text(&costs.pool(rest)));
        let [said] = said.as_slice() else { panic!("one problem: {said:?}") };
        for part in wanted {
            assert!(said.contains(part), "{said} has no {part}");
        }
    };
    let negative = Costs::new(&text.replace("floor_ms = ", "floor_ms = -"));
    check(
        &negative,
        replica,
        &["file:4: pools[0].costs", "coefficients[0].step.floor_ms", "calibrate"],
    );
    let unknown = Costs::new(&text.replace("floor_ms", "flour_ms"));
    check(&unknown, replica, &["pools[0].costs", "flour_ms"]);
    let other = Costs::new(&text.replace("\"m\"", "\"n\""));
    check(&other, replica, &["has no coefficients for the pool's models", "cleave calibrate"]);
    let replica = "replicas = [{ url = \"http://a:1\", class = \"b200\" }]";
    check(&good, replica, &["pools[0].replicas[0].class", "no class b200", "choose one of fast"]);
    let gone = Costs::of(&[]);
    std::fs::remove_file(&gone.0).unwrap();
    check(&gone, "replicas = [\"http://a:1\"]", &["file:4: pools[0].costs: cannot be read"]);
    let said = lines(load_text(
        "[[pools]]\nname = \"p\"\nclass = \"abacus\"\nreplicas = [\"http://a:1\"]",
    ));
    assert!(said[0].contains("file:3: pools[0].class: abacus is no GPU"), "{said:?}");
    assert!(said[0].contains("h200") && said[0].contains("`costs`"), "{said:?}");
}
