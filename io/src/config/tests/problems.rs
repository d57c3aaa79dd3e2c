//! What is wrong with a file, as data: the text, then every line that must be said.

mod tenancy;

use super::{ENOUGH, lines, load_text};

fn check(text: &str, want: &[&str]) {
    assert_eq!(lines(load_text(text)), want, "{text}");
}

/// Checks text that follows a first line with a replica.
fn check_after(text: &str, want: &[&str]) {
    check(&format!("{ENOUGH}{text}"), want);
}

/// Checks one line of a section.
fn check_line(section: &str, line: &str, want: &str) {
    let key = line.split(' ').next().unwrap();
    check_after(&format!("[{section}]\n{line}"), &[&format!("file:3: {section}.{key}: {want}")]);
}

#[test]
fn a_replica_is_all_that_is_needed() {
    check(ENOUGH, &[]);
    check("[[pools]]\nname = \"a\"\nreplicas = [{ url = \"http://gpu-0:8000\" }]", &[]);
    let missing = "there is no replica to send to; give one with --replica http://HOST:PORT, \
                   or in the file as replicas = [\"http://HOST:PORT\"]";
    check("", &[&format!("file: replicas: {missing}")]);
    check("[[pools]]\nname = \"a\"", &[&format!("file: replicas: {missing}")]);
    check("replicas = []", &[&format!("file:1: replicas: {missing}")]);
}

#[test]
fn everything_wrong_is_reported_at_once_in_the_order_of_the_file() {
    check(
        r#"
listn = "127.0.0.1:80"
threads = 0
policy = "sticky"

[timeouts]
idle = "5 parsecs"

[[pools]]
name = "a"
models = ["m", 7]
replicas = ["http://gpu-0:8000", "ftp://gpu-1", { url = "http://GPU-0:8000/", wieght = 2 }]

[[pools]]
models = ["m"]

[[pools]]
name = "a"
models = ["m"]
"#,
        &[
            "file:2: listn: unknown key; did you mean `listen`?",
            "file:3: threads: is 0; give a whole number from 1 to 1024",
            "file:4: policy: sticky is not a choice; give one of \"priced\", \"session\", \
             \"round_robin\", \"random\", \"least_requests\", \"power_of_two\"",
            "file:7: timeouts.idle: is not a duration; write a number and its unit, for example \
             250ms, 5s or 10m",
            "file:11: pools[0].models[1]: is a whole number; give text in quotes",
            "file:12: pools[0].replicas[1]: is not the address of a replica; replicas speak \
             http:// or https://; write it as http://HOST:PORT",
            "file:12: pools[0].replicas[2]: http://gpu-0:8000 is already pools[0].replicas[0]; \
             remove one; to send it more, raise its weight",
            "file:12: pools[0].replicas[2].wieght: unknown key; did you mean `weight`?",
            "file:14: pools[1]: has no `name`; add `name`: give text in quotes",
            "file:18: pools[2].name: a is also the name of pools[0]; give every pool a name of \
             its own",
            "file:19: pools[2].models[0]: m is already served by pools[0]; list a model once, in \
             one pool",
        ],
    );
}

#[test]
fn what_is_not_toml_is_named_by_line_and_column() {
    check(
        "listen = \"x\"\npolicy = ",
        &["file:2:10: not valid TOML: string values must be quoted, expected literal string; \
           correct the syntax; see https://toml.io"],
    );
    check(
        "[log]\nlevel = 'info'\nlevel = 'warn'",
        &["file:3:1: not valid TOML: duplicate key; correct the syntax; see https://toml.io"],
    );
}

#[test]
fn a_key_that_resembles_none_gets_the_list_of_keys() {
    check_after(
        "[tls]\nzzz = 1",
        &["file:3: tls.zzz: unknown key; remove it; the keys here are cert, key"],
    );
    check_after(
        "\"a key\\u0007\" = 1\n",
        &["file:2: \"a key\\u{7}\": unknown key; remove it; the keys here are listen, threads, \
           policy, costs, learn_costs, resume, forward_credentials, engine_fields, engine_headers, api_key, api_key_file, engine_tls, replicas, admin, tls, paths, limits, timeouts, sessions, subsets, retries, \
           breaker, health, quarantine, explain, log, traces, record, cluster, line, classes, keys, tenants, \
           workloads, pools"],
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_told_the_right_one() {
    let size = "give a whole number from 1 to 4096";
    check_line("limits", "body_mib_max = '64'", &format!("is text; {size}"));
    check_line("limits", "body_mib_max = 64.0", &format!("is a number; {size}"));
    check_line("limits", "body_mib_max = [64]", &format!("is a list; {size}"));
    check_line("timeouts", "idle = 5", "is a whole number; give a time span such as \"5s\"");
    check_line("log", "access = 'yes'", "is text; give true or false");
    check_line("tls", "cert = 1979-05-27", "is a date; give text in quotes");
    check_line(
        "sessions",
        "headers = 'x-a'",
        "is text; give a list, each a header name such as \"x-session-affinity\"",
    );
    check_after("tls = true", &["file:2: tls: is true or false; give a table of cert, key"]);
    check(
        "pools = 3",
        &["file:1: pools: is a whole number; give a list, each a table of name, models, aliases, \
           policy, costs, class, resume, forward_credentials, engine_fields, engine_headers, api_key, api_key_file, engine_tls, cache, \
           tokenizer, replicas, discover, kubernetes, scaling"],
    );
}

#[test]
fn a_number_out_of_range_is_told_the_range() {
    check_line("retries", "tries_max = 0", "is 0; give a whole number from 1 to 16");
    check_line("retries", "share = 1.5", "is 1.5; give a number from 0 to 1");
    check_line("retries", "share = -0.1", "is -0.1; give a number from 0 to 1");
    check_line("retries", "share = nan", "is NaN; give a number from 0 to 1");
    check_line("retries", "share = 2", "is 2; give a number from 0 to 1");
    check_line("retries", "reserve = -1", "is -1; give a whole number from 0 to 1000000");
    check_line("breaker", "failures_max = 0", "is 0; give a whole number from 1 to 1000");
    check_line("sessions", "table_mib = 0", "is 0; give a whole number from 1 to 65536");
    check_line(
        "limits",
        "connections_max = 99999999999999999999",
        "is too large a number; give a smaller one",
    );
    for (weight, shown) in [("-1", "-1"), ("nan", "NaN"), ("inf", "inf"), ("1001", "1001")] {
        check(
            &format!("replicas = [{{ url = 'http://a:1', weight = {weight} }}]"),
            &[&format!("file:1: replicas[0].weight: is {shown}; give a number from 0 to 1000")],
        );
    }
}

#[test]
fn text_that_means_nothing_is_told_how_to_write_it() {
    let duration = "write a number and its unit, for example 250ms, 5s or 10m";
    check_line("timeouts", "drain = 'soon'", &format!("is not a duration; {duration}"));
    check_line("timeouts", "drain = '0s'", &format!("is zero; {duration}"));
    check_line("timeouts", "drain = '3years'", "is too long; give at most one year");
    check_line(
        "health",
        "path = 'health'",
        "is not a path; begin it with a slash, for example /health",
    );
    check_line(
        "admin",
        "listen = 'localhost:9090'",
        "is not an address to listen on; write it as IP:PORT, for example 127.0.0.1:8080, or \
         0.0.0.0:8080 for every interface",
    );
    check_line("admin", "token = ''", "is empty; give a token, or leave the key out");
    check_line(
        "log",
        "level = 'inof'",
        "is not a log filter; give one of off, error, warn, info, debug, trace, or MODULE=LEVEL \
         after a comma",
    );
    check_line(
        "log",
        "format = 'jsn'",
        "jsn is not a choice; did you mean \"json\"? give one of \"text\", \"json\"",
    );
    check_after(
        "[sessions]\nheaders = ['x-a', 'x id']",
        &["file:3: sessions.headers[1]: is not a header name; use letters, digits, `-` and `_`, \
           without the colon"],
    );
    check(
        "[[pools]]\nname = ''\nreplicas = ['http://a:1']",
        &["file:2: pools[0].name: is empty; give text in quotes"],
    );
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    check_after(
        "[[pools]]\nname = \"a\"",
        &["file:1: replicas: are given beside pools; move these replicas into a pool, or remove \
           the pools"],
    );
    check_after(
        "[limits]\nbody_mib_max = 64\nbuffered_mib_max = 32",
        &["file:4: limits.buffered_mib_max: is less than limits.body_mib_max, so the largest \
             body \
           could never be read; give at least 64"],
    );
    check_after(
        "[breaker]\nopen = \"2m\"",
        &["file:2: breaker.open_max: is less than breaker.open; give at least 2m"],
    );
    check_after(
        "[admin]\nlisten = \"127.0.0.1:8080\"",
        &["file:3: admin.listen: is the address clients use (listen); give it a port of its own"],
    );
    check_after(
        "[tls]\ncert = \"a.pem\"",
        &["file:3: tls.cert: has no key; add tls.key, the PEM file of its private key"],
    );
    check_after(
        "[tls]\nkey = \"a.pem\"",
        &["file:3: tls.key: has no certificate; add tls.cert, the PEM file of its certificate \
           chain"],
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named_where_it_was_asked_for() {
    let missing = "cannot be read: No such file or directory (os error 2); check the path and its \
                   permissions";
    check_after(
        "[admin]\ntoken = \"hunter2\"\ntoken_file = \"no/such/file\"",
        &[
            &format!("file:4: admin.token_file: {missing}"),
            "file:4: admin.token_file: is given beside admin.token; keep one of the two",
        ],
    );
    check_after(
        "[tls]\ncert = \"no/such/cert\"\nkey = \"no/such/key\"",
        &[&format!("file:3: tls.cert: {missing}"), &format!("file:4: tls.key: {missing}")],
    );
    check_line("admin", "token_file = '/dev/zero'", "is longer than 16 MiB; check the path");
    let file = std::path::Path::new("no/such/cleave.toml");
    let result = super::load(Some(file), std::iter::empty(), super::Flags::default());
    assert_eq!(lines(result), [format!("no/such/cleave.toml: {missing}")]);
}

#[cfg(not(feature = "tokenizer"))]
#[test]
fn a_tokenizer_in_a_build_without_one_is_refused() {
    check(
        "[[pools]]\nname = \"a\"\nreplicas = [\"http://a:1\"]\ntokenizer = \"Cargo.toml\"",
        &["file:4: pools[0].tokenizer: this build counts no tokens; build cleave with --features \
           tokenizer, or remove it"],
    );
}

#[test]
fn names_and_aliases_mean_one_thing() {
    check(
        r#"
[[pools]]
name = "chat"
models = ["big", "big"]
aliases = { small = "big", gpt = "bg" }
replicas = ["http://a:1"]
[[pools]]
name = "fast"
models = ["small"]
[pools.aliases]
gpt = "small"
[[pools]]
name = "asks-its-replicas"
aliases = { any = "whatever they serve" }
"#,
        &[
            "file:4: pools[0].models[1]: big is already served by pools[0]; list a model once, in \
             one pool",
            "file:5: pools[0].aliases.gpt: bg is not among the pool's models; name one of \
             pools[0].models",
            "file:5: pools[0].aliases.small: is the name of a model of pools[1]; choose an alias \
             that is no model's name",
            "file:11: pools[1].aliases.gpt: is already an alias in pools[0]; choose another alias",
        ],
    );
}

#[test]
fn a_secret_is_never_repeated() {
    for text in [
        "[admin]\ntoken = \"hunter2 \"",
        "[admin]\ntokn = \"hunter2\"",
        "[admin]\ntoken = [\"hunter2\"]",
        "[admin]\ntoken = { hunter = \"hunter2\" }",
        "[admin]\ntoken = \"hunter2",
        "[admin]\ntoken = hunter2",
        "replicas = [\"http://me:hunter2@gpu-0:8000\"]",
    ] {
        let problems = load_text(text).unwrap_err();
        assert!(!format!("{problems} {problems:?}").contains("hunter2"), "{problems}");
    }
    let config = load_text(&format!("{ENOUGH}[admin]\ntoken = \"hunter2\"")).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
}
