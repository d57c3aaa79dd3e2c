//! The messages of KEDA's external scaler, version 2: field numbers and types are those of its published
//! `externalscaler.proto`.

use std::collections::BTreeMap;

use prost::Message;

/// What is scaled, as KEDA names it.
#[derive(Clone, PartialEq, Message)]
pub struct ScaledObjectRef {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// What the trigger says; `pool` is read.
    #[prost(btree_map = "string, string", tag = "3")]
    pub scaler_metadata: BTreeMap<String, String>,
}

/// Whether there should be any replica at all.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct IsActiveResponse {
    #[prost(bool, tag = "1")]
    pub result: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetMetricSpecResponse {
    #[prost(message, repeated, tag = "1")]
    pub metric_specs: Vec<MetricSpec>,
}

/// A metric, and how much of it one replica stands for.
#[derive(Clone, PartialEq, Message)]
pub struct MetricSpec {
    #[prost(string, tag = "1")]
    pub metric_name: String,
    /// For versions of KEDA that do not know the next.
    #[prost(int64, tag = "2")]
    pub target_size: i64,
    #[prost(double, tag = "3")]
    pub target_size_float: f64,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetMetricsRequest {
    #[prost(message, optional, tag = "1")]
    pub scaled_object_ref: Option<ScaledObjectRef>,
    #[prost(string, tag = "2")]
    pub metric_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetMetricsResponse {
    #[prost(message, repeated, tag = "1")]
    pub metric_values: Vec<MetricValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct MetricValue {
    #[prost(string, tag = "1")]
    pub metric_name: String,
    /// For versions of KEDA that do not know the next.
    #[prost(int64, tag = "2")]
    pub metric_value: i64,
    #[prost(double, tag = "3")]
    pub metric_value_float: f64,
}
