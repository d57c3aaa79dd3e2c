//! The fields and headers by which a client could steer the engine behind the router: where it
//! fetches KV from, on which rank it runs, with which priority it is scheduled, whose cache it
//! finds. One table for each; what is not in it passes. An operator can let single ones pass.

/// What becomes of a field in a client's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// The request means nothing without it, or engines connect to what it names.
    Refuse,
    /// A hint: the request means the same without it.
    TakeOut,
    /// It keeps the client's prompts apart in a cache, and goes into the salt that the router writes.
    Replace,
}

/// A field of a body, at its top or in one of `NESTS`.
#[derive(Clone, Copy, Debug)]
pub struct EngineField {
    pub name: &'static str,
    pub care: Care,
}

/// Most engines read these at the top of a body. vLLM passes `vllm_xargs` on to where it looks for
/// `kv_transfer_params`, and `/inference/v1/generate` has `sampling_params.extra_args` for that. No
/// engine reads `extra_body`, but another router behind may unfold it.
pub(super) const NESTS: &[&str] = &["extra_args", "extra_body", "sampling_params", "vllm_xargs"];

const fn field(name: &'static str, care: Care) -> EngineField {
    EngineField { name, care }
}

pub const ENGINE_FIELDS: &[EngineField] = &[
    // vLLM and TensorRT-LLM: where KV is fetched from and sent to.
    field("kv_transfer_params", Care::Refuse),
    field("ec_transfer_params", Care::Refuse),
    field("disaggregated_params", Care::Refuse),
    // SGLang: the same.
    field("bootstrap_host", Care::Refuse),
    field("bootstrap_port", Care::Refuse),
    field("bootstrap_room", Care::Refuse),
    field("bootstrap_pair_key", Care::Refuse),
    // SGLang: goes on from a session that the engine keeps, even one that another client began.
    field("session_params", Care::Refuse),
    // On which rank it runs.
    field("data_parallel_rank", Care::TakeOut),
    field("routed_dp_rank", Care::TakeOut),
    field("disagg_prefill_dp_rank", Care::TakeOut),
    // llama.cpp: in which slot, and so with whose KV.
    field("id_slot", Care::TakeOut),
    // The router reads it for the class. vLLM refuses any but 0 unless it schedules by priority.
    field("priority", Care::TakeOut),
    // SGLang: by which name the request can be aborted.
    field("rid", Care::TakeOut),
    field("cache_salt", Care::Replace),
    field("extra_key", Care::Replace),
];

/// Headers that are not passed on; `*` at the end stands for anything.
pub const ENGINE_HEADERS: &[&str] = &[
    // SGLang: rid, bootstrap host, port and room, ranks, priority.
    "x-override-*",
    // vLLM and SGLang.
    "x-data-parallel-rank",
    "x-vllm-priority",
    // llm-d's sidecar connects to the hosts they name.
    "x-prefiller-host-port",
    "x-prefiller-url",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    // Dynamo: which instance.
    "x-worker-instance-id",
    "x-prefill-instance-id",
    "x-dp-rank",
    // llama.cpp: makes a stream go on after its client left.
    "x-conversation-id",
    // vLLM: shows the load of the engine in the answer.
    "endpoint-load-metrics-format",
];

/// Headers that carry a client's secrets.
const CREDENTIAL_HEADERS: &[&str] =
    &["authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"];

/// Some entries of one of the tables, by their place in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed(u64);

impl Allowed {
    /// Adds an entry.
    #[must_use]
    pub const fn with(self, place: usize) -> Self {
        Self(self.0 | 1 << place)
    }

    pub const fn has(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }
}

/// Finds a field in the table.
pub fn engine_field(name: &str) -> Option<usize> {
    if !may_be(FIELD_LENGTHS, name.len()) {
        return None;
    }
    ENGINE_FIELDS.iter().position(|it| it.name == name)
}

/// Finds a header, written in lower case, in the table.
pub fn engine_header(name: &str) -> Option<usize> {
    // Asked first, because nearly no header begins like one of these.
    if !name.starts_with("x-") && !name.starts_with("endpoint-") {
        return None;
    }
    ENGINE_HEADERS.iter().position(|it| match it.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => *it == name,
    })
}

/// Tells whether a header, written in lower case, carries a secret of the client's.
pub fn is_credential(name: &str) -> bool {
    may_be(CREDENTIAL_LENGTHS, name.len()) && CREDENTIAL_HEADERS.contains(&name)
}

pub(super) fn is_nest(name: &str) -> bool {
    NESTS.contains(&name)
}

/// The lengths of the names, a bit for each: most names of other things are told by that.
const FIELD_LENGTHS: u64 = {
    let (mut lengths, mut at) = (0, 0);
    while at < ENGINE_FIELDS.len() {
        lengths |= 1 << ENGINE_FIELDS[at].name.len();
        at += 1;
    }
    lengths
};

const CREDENTIAL_LENGTHS: u64 = {
    let (mut lengths, mut at) = (0, 0);
    while at < CREDENTIAL_HEADERS.len() {
        lengths |= 1 << CREDENTIAL_HEADERS[at].len();
        at += 1;
    }
    lengths
};

const fn may_be(lengths: u64, length: usize) -> bool {
    length < 64 && lengths >> length & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_by_its_name_and_fits_a_set() {
        assert!(ENGINE_FIELDS.len() <= 64 && ENGINE_HEADERS.len() <= 64);
        for (place, field) in ENGINE_FIELDS.iter().enumerate() {
            assert_eq!(engine_field(field.name), Some(place));
            assert_eq!(engine_field(&format!("{}_", field.name)), None);
        }
        for (place, name) in ENGINE_HEADERS.iter().enumerate() {
            assert_eq!(engine_header(&name.replace('*', "x")), Some(place));
            assert_eq!(*name, name.to_lowercase());
        }
        for name in CREDENTIAL_HEADERS {
            assert!(is_credential(name) && engine_header(name).is_none());
        }
        for other in ["", "model", "x-request-id", "x-override", "host", "x-session-id"] {
            assert_eq!((engine_field(other), engine_header(other)), (None, None), "{other}");
            assert!(!is_credential(other));
        }
        assert_eq!(engine_field(&"x".repeat(200)), None);
    }

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let some = Allowed::default().with(0).with(63);
        assert!(some.has(0) && some.has(63) && !some.has(1));
    }
}
