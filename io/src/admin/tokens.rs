//! What a request may do on the admin port: tokens with names and rights. Without any, everything is open, and
//! orders have no name.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use crate::proxy::equal_in_constant_time;

use super::settings::{AdminToken, Secret};

/// What orders are signed with where no token is asked for.
const UNNAMED: &str = "anonymous";

/// The name of the token that a request carried, and its right.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Operator {
    pub(super) name: String,
    pub(super) may_order: bool,
    /// Whether a token is asked for at all.
    pub(super) needs_token: bool,
}

pub(super) async fn guard(
    State(tokens): State<Arc<Vec<AdminToken>>>,
    mut request: Request,
    next: Next,
) -> Response {
    if tokens.is_empty() {
        request.extensions_mut().insert(Operator {
            name: UNNAMED.to_owned(),
            may_order: true,
            needs_token: false,
        });
        return next.run(request).await;
    }
    let given = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let given = given.and_then(|it| it.strip_prefix(b"Bearer ")).unwrap_or_default();
    // All are compared, so that the time does not tell which one was nearly right.
    let fitting = tokens.iter().fold(None, |found, it| {
        let Secret(token) = &it.token;
        let fits = equal_in_constant_time(given, token.as_bytes());
        if fits { Some(it) } else { found }
    });
    let Some(token) = fitting else {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        let said = "send the admin token as a bearer token\n";
        return (StatusCode::UNAUTHORIZED, challenge, said).into_response();
    };
    let is_order = !matches!(*request.method(), Method::GET | Method::HEAD);
    if is_order && !token.may_order {
        let said = "this token may read, and give no orders\n";
        return (StatusCode::FORBIDDEN, said).into_response();
    }
    request.extensions_mut().insert(Operator {
        name: token.name.clone(),
        may_order: token.may_order,
        needs_token: true,
    });
    next.run(request).await
}
