//! Recording on and off, for a time or until further notice.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Deserialize;

use crate::proxy::{NotRecorded, Router};
use crate::telemetry::RecordStatus;

use super::tokens::Operator;

/// The longest time that can be asked for.
const FOR_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// What `POST /record` takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordOrder {
    on: bool,
    /// As in `30m`; until it is turned off where nothing is said.
    #[serde(rename = "for")]
    lasts: Option<String>,
}

pub(super) async fn show(State(router): State<Arc<Router>>) -> Json<RecordStatus> {
    Json(router.recorder.status())
}

pub(super) async fn order(
    State(router): State<Arc<Router>>,
    by: Extension<Operator>,
    body: Bytes,
) -> (StatusCode, String) {
    let (on, lasts) = match read(&body) {
        Ok(order) => order,
        Err(why) => return (StatusCode::BAD_REQUEST, why),
    };
    match router.order_recording(on, lasts, &by.name) {
        Ok(()) => (StatusCode::OK, said(on, lasts)),
        Err(why @ NotRecorded::NoFolder(_)) => (StatusCode::CONFLICT, format!("{why}\n")),
        Err(why @ NotRecorded::NotAudited(_)) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
        }
    }
}

fn said(on: bool, lasts: Option<Duration>) -> String {
    match (on, lasts) {
        (false, _) => "recording is off\n".to_owned(),
        (true, None) => "recording until it is turned off\n".to_owned(),
        (true, Some(it)) => format!("recording for {}\n", humantime::format_duration(it)),
    }
}

fn read(body: &[u8]) -> Result<(bool, Option<Duration>), String> {
    let order: RecordOrder = serde_json::from_slice(body).map_err(|why| {
        format!("{why}; send {{\"on\": true}}, {{\"on\": true, \"for\": \"30m\"}} or {{\"on\": false}}\n")
    })?;
    let lasts = order.lasts.as_deref().map(humantime::parse_duration).transpose();
    let lasts = lasts.map_err(|why| format!("for: {why}; write it as in 30m\n"))?;
    if lasts.is_some_and(|it| it.is_zero() || FOR_MAX < it) {
        return Err("for: must be above 0 and at most 7 days\n".to_owned());
    }
    Ok((order.on, lasts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_to_record_is_read_strictly() {
        assert_eq!(read(br#"{"on":true}"#), Ok((true, None)));
        let lasts = Some(Duration::from_secs(1800));
        assert_eq!(read(br#"{"on":true,"for":"30m"}"#), Ok((true, lasts)));
        for wrong in [
            "",
            "[]",
            "{}",
            r#"{"on":true,"for":"long"}"#,
            r#"{"on":true,"for":"0s"}"#,
            r#"{"on":1}"#,
            r#"{"on":true,"x":1}"#,
        ] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(read(b"{").unwrap_err().contains("30m"), "the remedy is told");
    }
}
