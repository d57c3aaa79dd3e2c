//! What the admin port of one router asks the others, so that any of them answers for all: what was decided there and what
//! tenants used there. Both ends are this one definition; the frames between them are `core/cluster`.

use std::sync::{Arc, Weak};

use cleave_core::cluster::ANSWER_BYTES_MAX;
use cleave_core::domain::RouterId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::explain::{self, Explained};
use super::tenants::TenantList;
use crate::proxy::Router;

/// What one router asks another.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PeerQuery {
    /// The decision of this request.
    Explain(String),
    /// The latest decisions, or those kept for something.
    Latest(Option<String>),
    /// What tenants used there.
    Tenants,
}

/// Has this router answer the questions of others.
pub fn answer_other_routers(router: &Arc<Router>) {
    if let Some(sharing) = router.sharing() {
        let router: Weak<Router> = Arc::downgrade(router);
        sharing.desk.set_answering(move |question| {
            let router = router.upgrade()?;
            answer(&router, question)
        });
    }
}

fn answer(router: &Router, question: &[u8]) -> Option<Vec<u8>> {
    match serde_json::from_slice(question).ok()? {
        PeerQuery::Explain(id) => serde_json::to_vec(&explain::own(router, &id)?).ok(),
        PeerQuery::Latest(kept_for) => {
            Some(fitting(&explain::own_latest(router, kept_for.as_deref())))
        }
        PeerQuery::Tenants => serde_json::to_vec(&TenantList::of(router)).ok(),
    }
}

/// Writes as many of the newest as fit into an answer.
fn fitting(all: &[Explained]) -> Vec<u8> {
    let mut text = b"[".to_vec();
    for it in all {
        let Ok(one) = serde_json::to_vec(it) else { continue };
        if ANSWER_BYTES_MAX < text.len() + one.len() + 2 {
            break;
        }
        if 1 < text.len() {
            text.push(b',');
        }
        text.extend_from_slice(&one);
    }
    text.push(b']');
    text
}

/// Asks all other routers; nothing for one that does not answer.
pub(super) async fn ask<T: DeserializeOwned>(
    router: &Router,
    query: &PeerQuery,
) -> Vec<(RouterId, Option<T>)> {
    let (Some(sharing), Ok(question)) = (router.sharing(), serde_json::to_vec(query)) else {
        return Vec::new();
    };
    let answers = sharing.desk.ask(&question).await.into_iter();
    let read = |it: Vec<u8>| serde_json::from_slice(&it).ok();
    answers.map(|(id, it)| (id, it.and_then(read))).collect()
}
