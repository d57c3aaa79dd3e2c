//! What was learned of one model or workload, as it is told to a router that knows nothing. What is told may be anything,
//! so it is bounded like what is learned here, and takes the place of nothing that is known.

use super::answers::Answers;
use super::{Lengths, ModelLengths, Workload};

/// What was learned of lengths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LengthsEntry {
    /// The model, or the workload and the model.
    pub name: u64,
    pub is_model: bool,
    /// Bytes of text and the tokens that they came to, older ones faded.
    pub bytes: f64,
    pub tokens: f64,
    /// Of each length that was seen: which bucket it is, how many answers, and their tokens.
    pub answers: Vec<(u8, f32, f32)>,
}

impl Lengths {
    /// Lists what was learned of models and workloads.
    pub fn entries(&self) -> impl Iterator<Item = LengthsEntry> + '_ {
        let models = self.models.iter().map(|(name, it)| {
            let (bytes, tokens) = it.weight.sums();
            LengthsEntry { name, is_model: true, bytes, tokens, answers: it.answers.buckets() }
        });
        let workloads = self.workloads.iter().map(|(name, it)| {
            let (bytes, tokens) = it.weight.sums();
            LengthsEntry { name, is_model: false, bytes, tokens, answers: it.answers.buckets() }
        });
        models.chain(workloads)
    }

    /// Takes on what another router learned of something of which nothing is known here.
    pub fn take_on(&mut self, entry: &LengthsEntry) {
        let LengthsEntry { name, is_model, bytes, tokens, answers } = entry;
        let answers = Answers::of(answers);
        if *is_model && self.models.get(*name).is_none() {
            let it: &mut ModelLengths = self.models.get_or_insert(*name);
            it.weight.set_sums(*bytes, *tokens);
            it.answers = answers;
        } else if !*is_model && self.workloads.get(*name).is_none() {
            let it: &mut Workload = self.workloads.get_or_insert(*name);
            it.weight.set_sums(*bytes, *tokens);
            it.answers = answers;
        }
    }
}
