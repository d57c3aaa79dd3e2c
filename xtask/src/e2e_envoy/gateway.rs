//! Envoy as a gateway sets it up for an endpoint picker: external processing on every request, and a cluster that goes
//! where the picker's header says.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::http1::{free_address, is_up};
use crate::rig;
use crate::server::Server;

/// How Envoy sends bodies to the picker.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyMode {
    FullDuplex,
    /// The request's body whole; the answer's piece by piece.
    Buffered,
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
    ) -> Result<Self> {
        let (address, admin) = (free_address()?, free_address()?);
        let name = format!("envoy-{}", address.port());
        let file = folder.join(format!("{name}.yaml"));
        fs::write(&file, config(address, admin, picker, mode))?;
        let mut command = Command::new(envoy);
        command.arg("-c").arg(&file).args(["--log-level", "warning", "--concurrency", "1"]);
        // Several Envoys on one machine share memory unless they are told apart.
        command.args(["--base-id", &address.port().to_string()]);
        let mut server = Server::start(&name, &mut command, folder)?;
        server.wait_for(rig::START_LIMIT, |_| is_up(admin, "/ready").then_some(()))?;
        Ok(Self { address, _envoy: server })
    }
}

fn config(address: SocketAddr, admin: SocketAddr, picker: SocketAddr, mode: BodyMode) -> String {
    let (request_mode, answer_mode, trailers) = match mode {
        BodyMode::FullDuplex => ("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED", "SEND"),
        BodyMode::Buffered => ("BUFFERED", "STREAMED", "SKIP"),
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
                      failure_mode_allow: false
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
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {{ http2_protocol_options: {{}} }}
      load_assignment:
        cluster_name: picker
        endpoints:
          - lb_endpoints:
              - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {picker} }} }} }}
    - name: replicas
      type: ORIGINAL_DST
      lb_policy: CLUSTER_PROVIDED
      connect_timeout: 2s
      original_dst_lb_config:
        use_http_header: true
        http_header_name: x-gateway-destination-endpoint
"#,
        admin = admin.port(),
        listen = address.port(),
        picker = picker.port(),
    )
}
