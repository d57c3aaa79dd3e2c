//! Envoy as a gateway sets it up for an endpoint picker: external processing on every request, and a cluster that goes
//! where the picker's header says. One that fails open knows the engines itself, for when no picker answers, and asks
//! after the picker's health.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::http1::{free_address, is_up};
use crate::rig;
use crate::server::Server;

/// The cluster of a gateway that fails closed: it knows no engine but the one that the header names.
const BY_HEADER: &str = "    - name: replicas
      type: ORIGINAL_DST
      lb_policy: CLUSTER_PROVIDED
      connect_timeout: 2s
      original_dst_lb_config:
        use_http_header: true
        http_header_name: x-gateway-destination-endpoint
";

const BY_HEADER_OR_IN_TURN: &str = r#"    - name: replicas
      type: STATIC
      connect_timeout: 2s
      load_balancing_policy:
        policies:
          - typed_extension_config:
              name: envoy.load_balancing_policies.override_host
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
                override_host_sources: [{ header: x-gateway-destination-endpoint }]
                fallback_policy:
                  policies:
                    - typed_extension_config:
                        name: envoy.load_balancing_policies.round_robin
                        typed_config:
                          "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
"#;

/// A picker that is away must be known to be away: a body that streams towards it is lost, so Envoy fails open no more
/// once it has begun to send.
const HEALTH: &str = "      common_lb_config: { healthy_panic_threshold: { value: 0 } }
      health_checks:
        - timeout: 1s
          interval: 0.2s
          no_traffic_interval: 0.2s
          unhealthy_threshold: 1
          healthy_threshold: 1
          grpc_health_check: { service_name: readiness }
";

/// How Envoy sends bodies to the picker.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyMode {
    FullDuplex,
    /// The request's body whole; the answer's piece by piece.
    Buffered,
}

/// What Envoy does while no picker answers, as the `failureMode` of an `InferencePool` says.
#[derive(Clone, Copy, Debug)]
pub(super) enum FailureMode<'a> {
    Close,
    /// It sends to these in turn.
    Open(&'a [SocketAddr]),
}

pub(super) struct Gateway {
    pub(super) address: SocketAddr,
    _envoy: Server,
}

impl Gateway {
    pub(super) fn start(
        envoy: &Path,
        folder: &Path,
        picker: SocketAddr,
        mode: BodyMode,
        failure: FailureMode<'_>,
    ) -> Result<Self> {
        let (address, admin) = (free_address()?, free_address()?);
        let name = format!("envoy-{}", address.port());
        let file = folder.join(format!("{name}.yaml"));
        fs::write(&file, config(address, admin, picker, mode, failure))?;
        let mut command = Command::new(envoy);
        command.arg("-c").arg(&file).args(["--log-level", "warning", "--concurrency", "1"]);
        // Several Envoys on one machine share memory unless they are told apart.
        command.args(["--base-id", &address.port().to_string()]);
        let mut server = Server::start(&name, &mut command, folder)?;
        server.wait_for(rig::START_LIMIT, |_| is_up(admin, "/ready").then_some(()))?;
        Ok(Self { address, _envoy: server })
    }
}

fn config(
    address: SocketAddr,
    admin: SocketAddr,
    picker: SocketAddr,
    mode: BodyMode,
    failure: FailureMode<'_>,
) -> String {
    let (request_mode, answer_mode, trailers) = match mode {
        BodyMode::FullDuplex => ("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED", "SEND"),
        BodyMode::Buffered => ("BUFFERED", "STREAMED", "SKIP"),
    };
    let (fails_open, health, replicas) = match failure {
        FailureMode::Close => (false, "", BY_HEADER.to_owned()),
        FailureMode::Open(engines) => (true, HEALTH, by_header_or_in_turn(engines)),
    };
    format!(
        r#"
admin:
  address: {{ socket_address: {{ address: 127.0.0.1, port_value: {admin} }} }}
static_resources:
  listeners:
    - name: clients
      address: {{ socket_address: {{ address: 127.0.0.1, port_value: {listen} }} }}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: gateway
                use_remote_address: true
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - match: {{ prefix: "/" }}
                          route: {{ cluster: replicas, timeout: 0s, idle_timeout: 300s }}
                http_filters:
                  - name: envoy.filters.http.ext_proc
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
                      grpc_service: {{ envoy_grpc: {{ cluster_name: picker }}, timeout: 1000s }}
                      message_timeout: 1000s
                      failure_mode_allow: {fails_open}
                      response_attributes: ["response.code_details"]
                      processing_mode:
                        request_header_mode: SEND
                        response_header_mode: SEND
                        request_body_mode: {request_mode}
                        response_body_mode: {answer_mode}
                        request_trailer_mode: {trailers}
                        response_trailer_mode: {trailers}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: picker
      type: STATIC
      connect_timeout: 2s
{health}      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {{ http2_protocol_options: {{}} }}
      load_assignment:
        cluster_name: picker
        endpoints:
          - lb_endpoints:
              - {picker}
{replicas}"#,
        admin = admin.port(),
        listen = address.port(),
        picker = endpoint(picker),
    )
}

fn endpoint(address: SocketAddr) -> String {
    let port = address.port();
    format!(
        "endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}"
    )
}

/// The cluster of a gateway that fails open: where the header says, and in turn where there is none.
fn by_header_or_in_turn(engines: &[SocketAddr]) -> String {
    let engines = engines.iter().map(|it| format!("{{ {} }}", endpoint(*it)));
    format!(
        "{BY_HEADER_OR_IN_TURN}      load_assignment:\n        cluster_name: replicas\n        endpoints:\n          \
         - lb_endpoints: [{}]\n",
        engines.collect::<Vec<_>>().join(", ")
    )
}
