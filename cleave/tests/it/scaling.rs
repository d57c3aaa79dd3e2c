//! The number of replicas follows the work: what is advised, what a command is told, and a pool that begins with
//! nothing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use bytes::Bytes;
use cleave_io::admin::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, ScaledObjectRef,
};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cluster;
use crate::support::{
    ApiServer, Json, Mock, Mood, PodSpec, Request, Router, WAIT_MAX, ask, eventually, next_piece,
};

/// A folder with the list of replicas and a program that changes it; it ends with the test.
struct Hosts(PathBuf);

impl Hosts {
    /// `script` gets the pool, the number and the victims, and `$LIST` is the list.
    fn new(name: &str, replicas: &[String], script: &str) -> Self {
        let name = format!("scaling-{name}-{}", std::process::id());
        let hosts = Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name));
        fs::create_dir_all(&hosts.0).unwrap();
        fs::write(hosts.list(), replicas.join("\n")).unwrap();
        let (list, told) = (hosts.list(), hosts.0.join("told"));
        let script =
            format!("LIST='{}'\necho \"$@\" >> '{}'\n{script}\n", list.display(), told.display());
        fs::write(hosts.0.join("scale.sh"), script).unwrap();
        hosts
    }

    fn list(&self) -> PathBuf {
        self.0.join("list")
    }

    /// What the program was told, one line each time.
    fn told(&self) -> Vec<String> {
        let told = fs::read_to_string(self.0.join("told")).unwrap_or_default();
        told.lines().map(str::to_owned).collect()
    }

    fn router(&self, scaling: &str) -> Router {
        let (list, script) = (self.list(), self.0.join("scale.sh"));
        Router::start_with(&format!(
            "listen = \"127.0.0.1:0\"\nadmin = {{ listen = \"127.0.0.1:0\" }}\nthreads = 2\n\
             health.interval = \"100ms\"\nsubsets.state_dir = \"{}\"\n[[pools]]\nname = \"chat\"\n\
             models = [\"m\"]\ndiscover = \"file:{}\"\n[pools.scaling]\nmode = \"command\"\n\
             command = [\"/bin/sh\", \"{}\"]\n{scaling}\n",
            self.0.display(),
            list.display(),
            script.display()
        ))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

async fn page(router: &Router) -> Json {
    let page = ask(router.admin, &Request::get("/scale")).await.json();
    page["pools"][0].clone()
}

#[tokio::test]
async fn a_pool_without_a_replica_holds_its_first_request_asks_for_one_and_answers() {
    let mock = Mock::start(&["--speed", "inf"]);
    let script = format!("if test \"$2\" -gt 0; then echo '{}' > \"$LIST\"; fi", mock.url());
    let hosts = Hosts::new("zero", &[], &script);
    let router = hosts.router("min = 0\nmax = 3\nstart_up = \"5s\"");
    eventually("it is looked at", async || page(&router).await["wanted"] == 0).await;
    assert_eq!(ask(router.admin, &Request::get("/readyz")).await.status(), 200);
    let answer = router.ask(&Request::chat("hi")).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(hosts.told()[0], "chat 1");
    let page = page(&router).await;
    assert_eq!((&page["mode"], &page["steps_failed"]), (&Json::from("command"), &Json::from(0)));
    let shown = Command::new(env!("CARGO_BIN_EXE_cleave"))
        .args(["scale", "--admin", &format!("http://{}", router.admin)])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("pool chat · command, 0 to 3"), "{shown}");
    let metrics = ask(router.admin, &Request::get("/metrics")).await;
    let wanted = "cleave_scale_wanted_replicas{pool=\"chat\"} ";
    assert!(metrics.text().contains(wanted), "{}", metrics.text());
}

#[tokio::test]
async fn a_request_that_cannot_wait_for_the_start_is_refused_at_once_with_the_time_it_takes() {
    let hosts = Hosts::new("late", &[], "");
    let router = hosts.router("min = 0\nmax = 3\nstart_up = \"10m\"");
    eventually("it is looked at", async || page(&router).await["wanted"] == 0).await;
    let answer = router.ask(&Request::chat("hi")).await;
    assert_eq!(answer.status(), 503, "{}", answer.text());
    assert!(answer.text().contains("no_replica"), "{}", answer.text());
    let retry_after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((590..=600).contains(&retry_after), "{retry_after}");
    eventually("one is asked for", async || hosts.told() == ["chat 1"]).await;
}

#[tokio::test]
async fn all_routers_give_one_number_also_for_what_one_refused_and_one_that_comes_later() {
    let hosts = ["one", "other", "late"].map(|it| Hosts::new(it, &[], ""));
    let start = |hosts: &Hosts, peers: &str| {
        let scaling = "min = 0\nmax = 3\nstart_up = \"10m\"";
        hosts.router(&format!("{scaling}\n[cluster]\nlisten = \"127.0.0.1:0\"\n{peers}"))
    };
    let first = start(&hosts[0], "");
    let peers = format!("peers = [\"{}\"]", cluster::address(&first).await);
    let mut routers = vec![first, start(&hosts[1], &peers)];
    cluster::all_talk(&routers).await;
    let leads = cluster::leader(&routers).await;
    for router in &routers {
        eventually("none is wanted", async || page(router).await["wanted"] == 0).await;
    }
    // Refused by the one that does not lead, so that it goes nowhere.
    let answer = routers[1 - leads].ask(&Request::chat("hi")).await;
    assert_eq!(answer.status(), 503, "{}", answer.text());
    for router in &routers {
        eventually("one is wanted", async || page(router).await["wanted"] == 1).await;
    }
    routers.push(start(&hosts[2], &peers));
    cluster::all_talk(&routers).await;
    eventually("it gives the same number, also if it leads", async || {
        page(&routers[2]).await["wanted"] == 1
    })
    .await;
    assert_eq!(page(&routers[leads]).await["wanted"], 1);
}

#[tokio::test]
async fn a_victim_is_drained_before_the_command_is_told_and_its_address_may_come_back() {
    let mocks = [Mock::start(&["--speed", "inf"]), Mock::start(&["--speed", "inf"])];
    let urls = [mocks[0].url(), mocks[1].url()];
    let script = "shift 2; for it in \"$@\"; do grep -v \"$it\" \"$LIST\" > \"$LIST.new\"; \
                  mv \"$LIST.new\" \"$LIST\"; done";
    let hosts = Hosts::new("victim", &urls, script);
    let router = hosts.router("min = 1\nmax = 2\nstart_up = \"1s\"");
    router.until("both are up", |it| it.count(|it| it.state == "up") == 2).await;
    eventually("one is left", async || {
        fs::read_to_string(hosts.list()).unwrap().lines().count() == 1
    })
    .await;
    let told = hosts.told();
    assert!(urls.iter().any(|it| told == [format!("chat 1 {it}")]), "{told:?}");
    router.until("it has left", |it| it.replicas().count() == 1).await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    // Another replica at the address of the victim is not drained.
    fs::write(hosts.list(), urls.join("\n")).unwrap();
    router.until("it is back", |it| it.count(|it| it.state == "up") == 2).await;
}

#[tokio::test]
async fn a_command_that_fails_is_told_of_and_tried_again() {
    let hosts = Hosts::new("fails", &[], "echo 'no GPU is free' >&2; exit 7");
    let router = hosts.router("min = 1\nmax = 3\nstart_up = \"60s\"");
    router.says("no GPU is free").await;
    eventually("it is tried again", async || 2 <= hosts.told().len()).await;
    let page = page(&router).await;
    let error = page["last_step"]["error"].as_str().unwrap();
    assert!(error.ends_with("exit status: 7: no GPU is free"), "{error}");
}

#[tokio::test]
async fn the_scale_of_a_deployment_is_written_after_conflicts_and_a_role_that_forbids_it_is_an_alert()
 {
    let api = ApiServer::start("scale").await;
    let mocks = [0, 1].map(|_| Mock::start(&["--speed", "inf"]));
    for (uid, mock) in [("a", &mocks[0]), ("b", &mocks[1])] {
        api.put(PodSpec::new(uid, mock.address));
    }
    api.set_replicas(2, 2);
    let router = scaling_router(&api, "deployment/vllm", 1);
    router.until("both are up", |it| it.count(|it| it.state == "up") == 2).await;
    eventually("one is given up", async || api.replicas() == (1, 0)).await;
    let marked = api.marked();
    let (pod, how) = &marked[0];
    assert!(["vllm-a", "vllm-b"].contains(&pod.as_str()), "{marked:?}");
    assert!(how.contains(r#""controller.kubernetes.io/pod-deletion-cost":"-1000""#), "{how}");
    let uid = pod.strip_prefix("vllm-").unwrap();
    api.set_mood(Mood::Forbidding);
    // One replica more than is wanted, by another writer: it is written again, and refused.
    api.delete(uid, true);
    api.put(PodSpec::new("c", mocks[usize::from(uid == "b")].address));
    router.says("deploy/kubernetes/scaling/rbac.yaml").await;
}

/// A router that scales an object of Kubernetes.
fn scaling_router(api: &ApiServer, target: &str, min: u32) -> Router {
    Router::start_with(&format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nhealth.interval = \"100ms\"\n{}\
         [pools.scaling]\nmode = \"kubernetes\"\ntarget = \"{target}\"\nmin = {min}\nmax = 4\nstart_up = \"1s\"\n",
        api.pool()
    ))
}

#[tokio::test]
async fn a_pod_that_is_gone_before_it_is_marked_does_not_stop_the_scale() {
    let api = ApiServer::start("gone").await;
    let mocks = [0, 1].map(|_| Mock::start(&["--speed", "inf"]));
    for (uid, mock) in [("a", &mocks[0]), ("b", &mocks[1])] {
        api.put(PodSpec::new(uid, mock.address));
    }
    api.set_replicas(2, 0);
    let router = scaling_router(&api, "deployment/vllm", 1);
    router.until("both are up", |it| it.count(|it| it.state == "up") == 2).await;
    for uid in ["a", "b"] {
        api.delete(uid, false);
    }
    eventually("one is given up", async || api.replicas().0 == 1).await;
    assert_eq!(api.marked().len(), 1);
    assert_eq!(page(&router).await["steps_failed"], 0);
}

#[tokio::test]
async fn a_kind_that_is_not_installed_is_an_alert_that_says_so() {
    let api = ApiServer::start("uninstalled").await;
    let router = scaling_router(&api, "leaderworkerset/vllm", 2);
    router.says("there is no leaderworkersets/vllm: is that its name (scaling.target)").await;
    let error = page(&router).await["last_step"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("is its kind (leaderworkerset.x-k8s.io/v1) installed?"), "{error}");
}

/// KEDA, as far as it asks.
struct Keda {
    sender: SendRequest<Full<Bytes>>,
    _connection: JoinSet<()>,
}

impl Keda {
    async fn to(router: &Router) -> Self {
        let address = router.process.addresses()[2];
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let mut connection = JoinSet::new();
        connection.spawn(async move { _ = driver.await });
        Self { sender, _connection: connection }
    }

    async fn call(&mut self, method: &str, message: &impl Message) -> Incoming {
        let mut framed = vec![0, 0, 0, 0, u8::try_from(message.encoded_len()).unwrap()];
        framed.extend(message.encode_to_vec());
        let request =
            hyper::Request::post(format!("http://r/externalscaler.ExternalScaler/{method}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(Full::from(framed))
                .unwrap();
        let answer = timeout(WAIT_MAX, self.sender.send_request(request)).await.unwrap().unwrap();
        assert_eq!(answer.headers()["content-type"], "application/grpc");
        answer.into_body()
    }

    /// Calls for one message; an error is the status of gRPC.
    async fn ask<M: Message + Default>(
        &mut self,
        method: &str,
        message: &impl Message,
    ) -> Result<M, String> {
        let whole = timeout(WAIT_MAX, self.call(method, message).await.collect()).await;
        let whole = whole.unwrap().unwrap();
        let status = whole.trailers().unwrap()["grpc-status"].to_str().unwrap().to_owned();
        let body = whole.to_bytes();
        if status == "0" { Ok(M::decode(&body[5..]).unwrap()) } else { Err(status) }
    }
}

fn of_pool(name: &str) -> ScaledObjectRef {
    let scaler_metadata = [("pool".to_owned(), name.to_owned())].into();
    ScaledObjectRef { name: "vllm".to_owned(), namespace: "llm".to_owned(), scaler_metadata }
}

#[tokio::test]
async fn keda_is_told_the_same_number_and_nothing_where_there_is_none() {
    let mock = Mock::start(&["--speed", "inf"]);
    let router = Router::start_with(&format!(
        "listen = \"127.0.0.1:0\"\nadmin = {{ listen = \"127.0.0.1:0\", keda_listen = \"127.0.0.1:0\", \
         token = \"long-and-random\" }}\nhealth.interval = \"100ms\"\n[[pools]]\nname = \"chat\"\n\
         models = [\"m\"]\nreplicas = [\"{}\"]\nscaling = {{ min = 1, max = 4 }}\n",
        mock.url()
    ));
    let mut keda = Keda::to(&router).await;
    let spec: GetMetricSpecResponse = keda.ask("GetMetricSpec", &of_pool("chat")).await.unwrap();
    assert!((spec.metric_specs[0].target_size_float - 1.0).abs() < 1e-9);
    let mut active = keda.call("StreamIsActive", &of_pool("chat")).await;
    let first = next_piece(&mut active).await.unwrap();
    assert!(IsActiveResponse::decode(&first[5..]).unwrap().result);
    let now: IsActiveResponse = keda.ask("IsActive", &ScaledObjectRef::default()).await.unwrap();
    assert!(now.result, "the only pool that is scaled is meant");
    let asked = GetMetricsRequest {
        scaled_object_ref: Some(of_pool("chat")),
        metric_name: "s0-wanted_replicas".to_owned(),
    };
    let told: GetMetricsResponse = keda.ask("GetMetrics", &asked).await.unwrap();
    let value = &told.metric_values[0];
    assert_eq!((value.metric_name.as_str(), value.metric_value), ("s0-wanted_replicas", 1));
    let unknown = keda.ask::<IsActiveResponse>("IsActive", &of_pool("nowhere")).await;
    assert_eq!(unknown, Err("5".to_owned()));
    let new = keda.ask::<GetMetricSpecResponse>("StreamMetricSpec", &of_pool("chat")).await;
    assert_eq!(new, Err("12".to_owned()), "as KEDA expects of what is not implemented");
}
