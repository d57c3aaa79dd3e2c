//! One decision as it was made, for people who ask why: who could have taken the request, how the
//! rule weighed them, who took it, and what plainer rules would have done. Noted only when somebody
//! asked for it before, because it allocates; kept by whoever asked, not here.

use crate::domain::{Moment, ReplicaId, RequestId, SliceKey};
use crate::policy::{PolicyName, Terms};

/// A decision and its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub request: RequestId,
    pub key: SliceKey,
    pub at: Moment,
    pub policy: PolicyName,
    pub prompt_tokens: u32,
    /// How long the answer was expected to be, where that was known.
    pub output_tokens: Option<u32>,
    /// Where it had been before, in vain.
    pub tried: Vec<ReplicaId>,
    pub candidates: Vec<ReplicaId>,
    /// How the rule weighed them, in the same order; empty from a rule that does not weigh in time.
    pub terms: Vec<Terms>,
    /// Who takes it; `None` when nobody could, or not yet.
    pub chosen: Option<ReplicaId>,
    /// The time to its first token, as predicted for the chosen one.
    pub ttft_ms: Option<f64>,
    /// What other rules would have done.
    pub shadows: Vec<Shadow>,
}

/// What another rule would have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    pub policy: PolicyName,
    pub replica: ReplicaId,
}

impl Decision {
    /// Finds how the rule weighed a replica.
    pub fn terms_of(&self, replica: ReplicaId) -> Option<&Terms> {
        self.terms.iter().find(|it| it.replica == replica)
    }
}
