//! KEDA's own words, spoken by a client that its tools generate from the messages it publishes.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Rig;
use crate::process::must;

/// Service, messages, field numbers and types as KEDA publishes them.
const PROTO: &str = r#"syntax = "proto3";
package externalscaler;
service ExternalScaler {
  rpc IsActive(ScaledObjectRef) returns (IsActiveResponse);
  rpc StreamIsActive(ScaledObjectRef) returns (stream IsActiveResponse);
  rpc GetMetricSpec(ScaledObjectRef) returns (GetMetricSpecResponse);
  rpc GetMetrics(GetMetricsRequest) returns (GetMetricsResponse);
  rpc StreamMetricSpec(ScaledObjectRef) returns (stream GetMetricSpecResponse);
}
message ScaledObjectRef { string name = 1; string namespace = 2; map<string, string> scalerMetadata = 3; }
message IsActiveResponse { bool result = 1; }
message MetricSpec { string metricName = 1; int64 targetSize = 2; double targetSizeFloat = 3; }
message GetMetricSpecResponse { repeated MetricSpec metricSpecs = 1; }
message GetMetricsRequest { ScaledObjectRef scaledObjectRef = 1; string metricName = 2; }
message MetricValue { string metricName = 1; int64 metricValue = 2; double metricValueFloat = 3; }
message GetMetricsResponse { repeated MetricValue metricValues = 1; }
"#;

const CLIENT: &str = r#"import sys, grpc, externalscaler_pb2 as m, externalscaler_pb2_grpc as s
channel = grpc.insecure_channel(sys.argv[1])
scaler = s.ExternalScalerStub(channel)
ref = m.ScaledObjectRef(name="vllm", namespace="llm", scalerMetadata={"pool": sys.argv[2]})
spec = scaler.GetMetricSpec(ref, timeout=10).metricSpecs[0]
assert (spec.targetSize, spec.targetSizeFloat) == (1, 1.0), spec
assert scaler.IsActive(ref, timeout=10).result
assert next(scaler.StreamIsActive(ref, timeout=10)).result
asked = m.GetMetricsRequest(scaledObjectRef=ref, metricName="s0-" + spec.metricName)
value = scaler.GetMetrics(asked, timeout=10).metricValues[0]
assert value.metricName == asked.metricName and value.metricValue == value.metricValueFloat
for call, of, code in [
    (scaler.IsActive, m.ScaledObjectRef(scalerMetadata={"pool": "nowhere"}), grpc.StatusCode.NOT_FOUND),
    (lambda of, timeout: next(scaler.StreamMetricSpec(of, timeout=timeout)), ref, grpc.StatusCode.UNIMPLEMENTED),
]:
    try:
        call(of, timeout=10)
        raise SystemExit("no error")
    except grpc.RpcError as error:
        assert error.code() == code, error
print(value.metricValue)
"#;

/// Asks by KEDA's protocol, and compares the number with the page's.
pub(super) fn check(folder: &Path, address: SocketAddr, pool: &str, rig: &Rig) -> Result<()> {
    let venv = folder.with_file_name("e2e-scale-venv");
    let python = venv.join("bin/python");
    if !python.exists() {
        must(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    let tools = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "grpcio-tools"];
    if must(Command::new(&python).args(tools)).is_err() {
        println!("grpcio-tools does not install here; KEDA's client was left out");
        return Ok(());
    }
    fs::write(folder.join("externalscaler.proto"), PROTO)?;
    fs::write(folder.join("client.py"), CLIENT)?;
    let generate = ["-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=."];
    must(Command::new(&python).args(generate).arg("externalscaler.proto").current_dir(folder))?;
    let mut client = Command::new(&python);
    client.arg("client.py").arg(address.to_string()).arg(pool).current_dir(folder);
    let output = client.output().context("run KEDA's client")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "KEDA's client: {said}");
    let told: usize = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    let wanted = rig.page()?.wanted;
    ensure!(Some(told) == wanted, "KEDA is told {told}, the page says {wanted:?}");
    println!("a generated client of KEDA is told {told}, as the page says");
    Ok(())
}
