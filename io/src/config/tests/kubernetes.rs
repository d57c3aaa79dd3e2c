//! What is refused of pods, and what is made of the rest.

use super::*;
use crate::discovery::{EnginePort, KubernetesSettings, Source};

fn pool(rest: &str) -> String {
    format!("[[pools]]\nname = \"a\"\nmodels = [\"m\"]\n{rest}\n")
}

#[test]
fn pods_are_found_only_by_a_selector_that_is_given_and_used() {
    let said = |rest: &str| lines(load_text(&pool(rest))).concat();
    let kubernetes = "discover = \"kubernetes\"\nkubernetes = ";
    assert!(said("discover = \"kubernetes\"").contains("pools[0].kubernetes.selector: is missing"));
    let unused = "discover = \"dns:a:1\"\nkubernetes = { selector = \"app=a\" }";
    assert!(said(unused).contains("pools[0].kubernetes: is given, but not used"));
    let port = format!("{kubernetes}{{ selector = \"app=a\", port = \"HTTP port\" }}");
    assert!(said(&port).contains("is not a port of a container"));
    let namespace = format!("{kubernetes}{{ selector = \"app=a\", namespace = \"../nodes\" }}");
    assert!(said(&namespace).contains("is not a namespace"));
}

#[test]
fn an_inference_pool_says_selector_and_port_in_their_place() {
    let file =
        |section: &str| pool(&format!("discover = \"kubernetes\"\nkubernetes = {{ {section} }}"));
    let said = |section: &str| lines(load_text(&file(section))).concat();
    let twice = "inference_pool = \"chat\", selector = \"app=a\"";
    assert!(said(twice).contains("pools[0].kubernetes.selector: is given twice"));
    assert!(said("inference_pool = \"../pods\"").contains("inference_pool: is no name"));
    let config = load_text(&file("inference_pool = \"chat\", namespace = \"llm\"")).unwrap();
    let source = &config.discover["a"];
    assert_eq!(source.to_string(), "kubernetes:llm/inferencepool/chat");
}

#[test]
fn the_settings_of_pods_are_what_was_said_and_usual_otherwise() {
    let section = "discover = \"kubernetes\"\n\
                   kubernetes = { selector = \" app=a \", port = \"8000\", keys = { weight = \"share\" } }";
    let config = load_text(&pool(section)).unwrap();
    let Source::Kubernetes(settings) = &config.discover["a"] else { panic!("another source") };
    let usual = KubernetesSettings::default();
    assert_eq!(
        (settings.selector.as_str(), &settings.port),
        ("app=a", &EnginePort::Numbered(8000))
    );
    assert_eq!((settings.keys.weight.as_str(), &settings.keys.role), ("share", &usual.keys.role));
    assert_eq!((&settings.models, &settings.roles), (&vec!["m".to_owned()], &usual.roles));
}

#[test]
fn replicas_that_are_found_are_priced_by_the_class_of_their_pool() {
    let found = "class = \"h100\"\ndiscover = \"dns:replicas.internal:8000\"";
    let config = load_text(&pool(found)).unwrap();
    let classes = &config.pools[0].classes;
    assert_eq!(classes.usual, classes.named["h100"]);
    assert_ne!(classes.usual, classes.named["l4"]);
    let wrong = "class = \"abacus\"\ndiscover = \"dns:replicas.internal:8000\"";
    assert!(lines(load_text(&pool(wrong))).concat().contains("pools[0].class: "));
}
