//! What a request waits for.

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Every replica that may take it is past its knee, as far as its class may fill a replica.
    Knee,
    /// Every replica of its workload's subset is, while others of the pool have room.
    Subset,
    /// Its prompt is long, and enough replicas must stay free for classes that matter more.
    Door,
    /// It begins a session, and the KV of all replicas is full.
    Sessions,
    /// There is room, and others go before it.
    Turn,
    /// It is beyond its tenant's contract, which is hard, or no capacity is idle. It is refused rather than held.
    Contract,
}

impl Cause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Knee => "knee",
            Self::Subset => "subset",
            Self::Door => "door",
            Self::Sessions => "sessions",
            Self::Turn => "turn",
            Self::Contract => "contract",
        }
    }

    /// Says it in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Knee => "every replica was as full as its class may fill it",
            Self::Subset => "every replica of its workload's subset was full, others were not",
            Self::Door => {
                "its prompt is long, and replicas are kept free for classes that matter more"
            }
            Self::Sessions => "it begins a session, and the KV of all replicas was full",
            Self::Turn => "others went before it",
            Self::Contract => "it was beyond its tenant's contract",
        }
    }
}
