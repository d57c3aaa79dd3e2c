//! Qwen-Bailian request lines: `chat_id`, `parent_chat_id` (-1 for the first of a chat), `timestamp` in
//! seconds, `input_length`, `output_length`, `type`, `turn`, `hash_ids` of 16-token blocks. The chain
//! of parents is the session. Its page says that each block is hashed, not that prefixes are, so
//! blocks are chained here. Written from the published description, not from a full file.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use cleave_core::domain::Moment;
use serde::Deserialize;

use super::super::draw;
use super::super::lines::{Lines, TraceError};
use super::super::prompt::{Prompt, mix};
use super::super::request::Request;
use super::chain::Chain;
use super::iterate_reader;
use super::requests::lone_request;

const BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(16).expect("not zero");

#[derive(Deserialize)]
struct BailianLine {
    chat_id: i64,
    #[serde(default = "no_parent")]
    parent_chat_id: i64,
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

fn no_parent() -> i64 {
    -1
}

pub(in super::super) struct Bailian {
    lines: Lines,
    chain: Chain,
    /// First chat of the session of each chat.
    roots: BTreeMap<i64, i64>,
}

impl Bailian {
    pub(in super::super) fn new(lines: Lines) -> Self {
        Self { lines, chain: Chain::default(), roots: BTreeMap::new() }
    }

    fn read(&mut self) -> Result<Option<Request>, TraceError> {
        let Some(line) = self.lines.next_json::<BailianLine>()? else { return Ok(None) };
        let root = *self.roots.get(&line.parent_chat_id).unwrap_or(&line.chat_id);
        self.roots.insert(line.chat_id, root);
        let session = u64::from_le_bytes(root.to_le_bytes());
        let prompt = if line.hash_ids.is_empty() {
            let alone = mix(session, u64::from_le_bytes(line.chat_id.to_le_bytes()));
            Prompt::unshared(alone, line.input_length, BLOCK_TOKENS)
        } else {
            let runs = self.chain.runs(line.hash_ids.iter().copied());
            let runs =
                runs.ok_or_else(|| self.lines.complain("more blocks than can be numbered"))?;
            runs.prompt(line.input_length, BLOCK_TOKENS)
        };
        let arrival = self.lines.in_order(Moment::ZERO + draw::seconds(line.timestamp))?;
        Ok(Some(lone_request(arrival, session, prompt, line.output_length)))
    }
}

iterate_reader!(Bailian => Request);
