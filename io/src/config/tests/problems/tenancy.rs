//! Problems of workloads, tenants, keys and classes.

use super::*;

#[test]
fn a_workload_is_named_as_it_is_shown_and_listed_once() {
    let wrong =
        "is not a workload; give the eight hexadecimal digits that `cleave assignment` shows";
    for id in ["zz", "+1a2b3c4", "1a2b3c4g"] {
        check_after(
            &format!("[[workloads]]\nworkload = \"{id}\"\nname = \"a\""),
            &[&format!("file:3: workloads[0].workload: {wrong}")],
        );
    }
    let one = "[[workloads]]\nworkload = \"1a2b3c4d\"\nname = \"a\"\n";
    check_after(one, &[]);
    check_after(
        &format!("{one}{one}"),
        &["file:6: workloads[1].workload: 1a2b3c4d is already workloads[0]; list a workload once"],
    );
}

#[test]
fn a_subset_that_must_be_larger_than_it_may_be_is_refused() {
    check_line(
        "subsets",
        "floor = 4\ncap = 1",
        "is 4, above cap, which is 1; give at most 1, or raise cap",
    );
    let own = |lines: &str, want: &[&str]| {
        let usual = "[subsets]\nfloor = 3\ncap = 5\n";
        let workload = "[[workloads]]\nworkload = \"1a2b3c4d\"\nname = \"a\"\n";
        check_after(&format!("{usual}{workload}{lines}"), want);
    };
    own("floor = 6\ncap = 6", &[]);
    own("cap = 3", &[]);
    own(
        "floor = 4\ncap = 1",
        &["file:8: workloads[0].floor: is 4, above cap, which is 1; give at most 1, or raise cap"],
    );
    own(
        "floor = 6",
        &["file:8: workloads[0].floor: is 6, above subsets.cap, which is 5; give at most 5, or \
           raise subsets.cap"],
    );
    own(
        "cap = 2",
        &[
            "file:8: workloads[0].cap: is 2, below subsets.floor, which is 3; give at least 3, or a \
           floor of its own",
        ],
    );
}

#[test]
fn a_tenant_has_a_key_and_a_name_of_its_own() {
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let key = format!("key_sha256 = [\"{hash}\"]\n");
    check_after(&format!("[[tenants]]\nname = \"a\"\n{key}"), &[]);
    let no_key = "has no key, so no request is of this tenant; give the SHA-256 of at least one: printf \
                  %s KEY | sha256sum";
    check_after(
        "[[tenants]]\nname = \"a\"",
        &[&format!("file:2: tenants[0].key_sha256: {no_key}")],
    );
    check_after(
        "[[tenants]]\nname = \"a\"\nkey_sha256 = []",
        &[&format!("file:4: tenants[0].key_sha256: {no_key}")],
    );
    check_after(
        "[[tenants]]\nname = \"a\"\nkey_sha256 = 3",
        &["file:4: tenants[0].key_sha256: is a whole number; give a list, each a sha256 such as \
           \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\""],
    );
    for (name, other) in [
        ("default", "requests without a tenant"),
        ("other", "the tenants beyond the first hundred"),
    ] {
        check_after(
            &format!("[[tenants]]\nname = \"{name}\"\n{key}"),
            &[&format!(
                "file:3: tenants[0].name: is what metrics call {other}; choose another name"
            )],
        );
    }
}

#[test]
fn keys_are_refused_only_where_there_are_tenants() {
    check_line(
        "keys",
        "unknown = \"refuse\"",
        "refuses nothing, because without tenants every key is served; add [[tenants]] with the \
         keys that may pass, or remove it",
    );
    check_after("[keys]\nunknown = \"share\"", &[]);
    check_after("[keys]", &[]);
}

#[test]
fn a_class_that_is_not_there_is_told_those_that_are() {
    check_line(
        "line",
        "default_class = \"nope\"",
        "there is no class nope; give one of interactive, standard, batch",
    );
    let gold = "[[classes]]\nname = \"gold\"\nweight = 2.0\n";
    check_after(gold, &["file: line.default_class: there is no class standard; give one of gold"]);
    check_after(&format!("[line]\ndefault_class = \"Gold\"\n{gold}"), &[]);
    let tin = "[[classes]]\nname = \"GOLD\"\nweight = 1.0\n\
               [[classes]]\nname = \"a b\"\nweight = 1.0\n";
    check_after(
        &format!("{gold}{tin}"),
        &[
            "file:6: classes[1].name: GOLD is also the name of classes[0]; give every class a name \
             of its own",
            "file:9: classes[2].name: a class's name has 1 to 64 letters, digits, '-' or '_', \
             unlike \"a b\"; rename it, for example to \"my-class\"",
        ],
    );
    let class = |at: u32| format!("[[classes]]\nname = \"c{at}\"\nweight = 1.0\n");
    let many = (0..17).map(class).collect::<Vec<_>>().concat();
    check_after(
        &format!("[line]\ndefault_class = \"c0\"\n{many}"),
        &["file:4: classes: there are 17 classes; keep at most 16"],
    );
}
