//! Responses that are kept, as vLLM keeps them with `VLLM_ENABLE_RESPONSES_API_STORE`: in the memory of this replica
//! and of no other, so that a later turn can name one in place of all that was said. The oldest make room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

const BYTES_MAX: usize = 64 << 20;

/// What is kept of one response.
#[derive(Clone, Debug)]
pub(super) struct StoredResponse {
    /// All that was said, the answer included.
    pub(super) said: Vec<u8>,
    /// The response as it was answered.
    pub(super) reply: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Store(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    responses: BTreeMap<String, StoredResponse>,
    /// In the order in which they came; some may be deleted by now.
    order: VecDeque<String>,
    bytes: usize,
}

impl StoredResponse {
    fn bytes(&self) -> usize {
        self.said.len() + self.reply.len()
    }
}

impl Store {
    pub(super) fn put(&self, id: &str, response: StoredResponse) {
        let mut kept = self.lock();
        kept.bytes += response.bytes();
        kept.responses.insert(id.to_owned(), response);
        kept.order.push_back(id.to_owned());
        while BYTES_MAX < kept.bytes {
            let Some(oldest) = kept.order.pop_front() else { break };
            kept.remove(&oldest);
        }
    }

    pub(super) fn get(&self, id: &str) -> Option<StoredResponse> {
        self.lock().responses.get(id).cloned()
    }

    /// Forgets a response; tells whether it was there.
    pub(super) fn delete(&self, id: &str) -> bool {
        self.lock().remove(id)
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn remove(&mut self, id: &str) -> bool {
        let removed = self.responses.remove(id);
        self.bytes -= removed.as_ref().map_or(0, StoredResponse::bytes);
        removed.is_some()
    }
}
