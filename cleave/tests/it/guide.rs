//! The guide's examples do what the guide says: every `sh` block runs against a router with two mock
//! replicas, every `toml` block is read by the program it is for. Addresses and paths of the text are
//! replaced by those of the test, endless commands end once they listen, and long runs are cut short.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Authority, Mock, Request, Router};

/// What the guide's commands run as. `serve` and `mock-replica` end once they listen.
const COMMANDS: &str = r#"
until_listening() {
    "$BIN" "$@" > listening.txt 2> log.txt &
    pid=$!
    until grep -q "listening on" listening.txt; do
        kill -0 $pid 2> /dev/null || { cat log.txt >&2; return 1; }
    done
    kill $pid
}
cleave() {
    command=$1; shift
    case $command in
        serve) until_listening serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 "$@" ;;
        mock-replica) until_listening mock-replica "$@" ;;
        top|explain|assignment|scale) "$BIN" $command --admin $ADMIN "$@" ;;
        # A mock that does not wait has no times to fit; what is measured has tests of its own.
        calibrate) "$BIN" calibrate --quick "$@" 2> log.txt || grep "too little was measured" log.txt ;;
        *) "$BIN" $command "$@" ;;
    esac
}
"#;

fn guide(page: &str) -> String {
    fs::read_to_string(repository().join("docs/guide").join(page)).unwrap()
}

fn written(path: PathBuf) -> String {
    path.to_str().unwrap().to_owned()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The examples of a page in one language.
fn examples(page: &str, language: &str) -> Vec<String> {
    let text = guide(page);
    let fenced = text.split("```").skip(1).step_by(2);
    let bodies = fenced.filter_map(|it| it.strip_prefix(language)?.strip_prefix('\n'));
    bodies.map(str::to_owned).collect()
}

/// An empty folder of the test's own, with the files that examples name.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("guide-{name}"));
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let request = |at: u32| {
        format!(
            "{{\"timestamp\":{},\"input_length\":1024,\"output_length\":8,\"hash_ids\":[1,{}]}}\n",
            at * 300,
            at + 2
        )
    };
    let conversation: String = (0..20).map(request).collect();
    fs::write(folder.join("conversation.jsonl.gz"), conversation).unwrap();
    let clients = "{\"window_s\":600,\"quantile_pct\":[0,50,100]}\n\
        {\"client\":1,\"windows\":[[0,0.1,1.0,\"G\",1.0,10.0]],\"lengths\":{\"0\":[[9,99,999],[1,8,16]]}}\n";
    fs::write(folder.join("servegen-clients.jsonl.gz"), clients).unwrap();
    folder
}

struct Stage {
    mocks: [Mock; 2],
    router: Router,
    request_id: String,
    folder: PathBuf,
}

impl Stage {
    async fn new(name: &str) -> Self {
        let mocks = [0, 1].map(|_| Mock::start_for("mock", &["--speed", "inf"]));
        let folder = folder(name);
        let config = format!(
            "record.dir = {:?}\nlisten = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nhealth.interval = \"100ms\"\n\
             explain.sample = 1.0\n[[pools]]\nname = \"chat\"\nreplicas = [\"{}\", \"{}\"]\n\
             [[workloads]]\nworkload = \"1a2b3c4d\"\nname = \"nightly\"\n",
            folder.join("recorded"),
            mocks[0].url(),
            mocks[1].url()
        );
        let router = Router::start_with(&config);
        router.until("both replicas are up", |it| it.count(|it| it.state == "up") == 2).await;
        let body = r#"{"model": "mock", "messages": [{"role": "user", "content": "hi"}]}"#;
        let answer = router.ask(&Request::post("/v1/chat/completions", body)).await;
        let request_id = answer.header("x-request-id").unwrap().to_owned();
        Self { mocks, router, request_id, folder }
    }

    /// Writes an example with this test's addresses, paths and sizes in it.
    fn adapt(&self, example: &str) -> String {
        let repository = repository();
        let file = self.folder.join("cleave.toml");
        fs::write(&file, format!("replicas = [\"{}\"]\n", self.mocks[0].url())).unwrap();
        let pairs = [
            ("127.0.0.1:9090", self.router.admin.to_string()),
            ("127.0.0.1:8080", self.router.address.to_string()),
            ("127.0.0.1:8001/", format!("{}/", self.mocks[0].address)),
            ("gpu-0:8000", self.mocks[0].address.to_string()),
            ("gpu-1:8000", self.mocks[1].address.to_string()),
            ("/etc/cleave/cleave.toml", file.to_string_lossy().into_owned()),
            ("REQUEST_ID", self.request_id.clone()),
            ("scenarios/", format!("{}/scenarios/", repository.display())),
            ("--port 8001", "--port 0".to_owned()),
            ("--port 8002", "--port 0".to_owned()),
            ("--port 8003", "--port 0".to_owned()),
            ("--requests 4000", "--requests 20".to_owned()),
            ("--requests 200", "--requests 20".to_owned()),
            ("faults.toml", "faults.toml --requests 50".to_owned()),
            ("subsets.toml", "subsets.toml --requests 2000 --seeds 1".to_owned()),
            ("scale.toml", "scale.toml --requests 200".to_owned()),
            ("none,1,2,3,4,8,auto", "none,2".to_owned()),
            ("--policy all", "--policy session,priced".to_owned()),
            ("--for 30s", "--for 5s".to_owned()),
            ("--seeds 1000", "--seeds 1".to_owned()),
            ("--seed 4711", "--seed 2".to_owned()),
        ];
        pairs.iter().fold(example.to_owned(), |text, (old, new)| text.replace(old, new))
    }

    fn run(&self, example: &str) -> Output {
        let admin = format!("http://{}", self.router.admin);
        let script = format!("set -e\n{COMMANDS}\n{}\nwait\n", self.adapt(example));
        Command::new("sh")
            .args(["-c", &script])
            .current_dir(&self.folder)
            .env("BIN", env!("CARGO_BIN_EXE_cleave"))
            .env("ADMIN", admin)
            .output()
            .unwrap()
    }
}

async fn check_commands(page: &str) {
    let stage = Stage::new(page).await;
    let examples = examples(page, "sh");
    assert!(!examples.is_empty(), "{page} has examples");
    for example in examples {
        let output = stage.run(&example);
        let (out, err) = (&output.stdout, &output.stderr);
        let said = [String::from_utf8_lossy(out), String::from_utf8_lossy(err)].join("\n");
        assert!(output.status.success(), "{page}:\n{example}\n{said}");
    }
}

macro_rules! commands_of {
    ($($name:ident $page:literal,)*) => {
        /// Pages whose commands have a test.
        const TESTED: &[&str] = &[$($page,)*];
        $(
            #[tokio::test]
            async fn $name() {
                check_commands($page).await;
            }
        )*
    };
}

commands_of! {
    commands_of_calibration_run "calibration.md",
    commands_of_clients_run "clients.md",
    commands_of_cluster_run "cluster.md",
    commands_of_configuration_run "configuration.md",
    commands_of_deployment_run "deployment.md",
    commands_of_errors_run "errors.md",
    commands_of_explain_run "explain.md",
    commands_of_failures_run "failures.md",
    commands_of_load_run "load.md",
    commands_of_metrics_run "metrics.md",
    commands_of_mock_replica_run "mock-replica.md",
    commands_of_operations_run "operations.md",
    commands_of_page_run "page.md",
    commands_of_replay_run "replay.md",
    commands_of_scaling_run "scaling.md",
    commands_of_sessions_run "sessions.md",
    commands_of_sharding_run "sharding.md",
    commands_of_simulator_run "simulator.md",
    commands_of_trace_formats_run "trace-formats.md",
    commands_of_troubleshooting_run "troubleshooting.md",
}

fn pages() -> Vec<String> {
    let files = fs::read_dir(repository().join("docs/guide")).unwrap();
    files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_page_with_commands_is_tested() {
    for page in pages() {
        assert!(examples(&page, "sh").is_empty() || TESTED.contains(&page.as_str()), "{page}");
    }
}

#[test]
fn every_page_begins_with_what_its_reader_can_do_and_an_example() {
    for page in pages().iter().filter(|it| *it != "README.md") {
        let text = guide(page);
        let opening = text.split("\n## ").next().unwrap();
        assert!(opening.contains("After this page you"), "{page} does not say what it is for");
        assert!(opening.contains("```"), "{page} does not begin with an example");
    }
}

#[test]
fn every_file_of_the_guide_is_sound() {
    let folder = folder("files");
    let secret = folder.join("secret");
    fs::write(&secret, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef").unwrap();
    let authority = Authority::new();
    let [cert, key] = authority.sign("routers.internal", 2100).files.map(written);
    let ca = written(authority.file.clone());
    for (page, example) in
        pages().iter().flat_map(|page| examples(page, "toml").into_iter().map(move |it| (page, it)))
    {
        let file = folder.join("example.toml");
        let path = file.to_str().unwrap();
        let arguments = if example.contains("[workload]") {
            fs::write(&file, &example).unwrap();
            vec!["simulate", "--requests", "20", "--scenario", path]
        } else if example.contains("[[coefficients]]") {
            fs::write(folder.join("costs.toml"), &example).unwrap();
            let costs = folder.join("costs.toml");
            let model = "[[pools]]\nname = \"a\"\nmodels = [\"llama-3-8b\"]\nclass = \"h200\"\n";
            let rest = format!("costs = {costs:?}\n{model}replicas = [\"http://gpu-0:8000\"]\n");
            fs::write(&file, rest).unwrap();
            vec!["check-config", "--config", path]
        } else {
            let has_replicas = example.contains("replicas =") || example.contains("discover =");
            let replicas = if has_replicas { "" } else { "replicas = [\"http://gpu-0:8000\"]\n" };
            let secret = secret.to_str().unwrap();
            let example = example.replace("/run/secrets/cleave-cache-secret", secret);
            let example = example.replace("/run/secrets/cleave-cluster", secret);
            let example = example.replace("/etc/cleave/routers-ca.crt", &ca);
            let example = example.replace("/etc/cleave/router.crt", &cert);
            let example = example.replace("/etc/cleave/router.key", &key);
            fs::write(&file, format!("{replicas}{example}")).unwrap();
            vec!["check-config", "--config", path]
        };
        let output = Command::new(env!("CARGO_BIN_EXE_cleave")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{page}:\n{example}\n{said}");
    }
}
