//! What the router ended because of what its client did, or did not do.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug)]
pub struct Clients {
    cut: Family<ReasonLabel, Counter>,
    /// Answers that were not taken.
    pub stuck: Counter,
    /// Connections on which nothing could be written.
    pub unread: Counter,
    /// Connections with too many frames that carry nothing.
    pub flood: Counter,
}

impl Default for Clients {
    fn default() -> Self {
        let cut = Family::<ReasonLabel, Counter>::default();
        let of = |reason| cut.get_or_create_owned(&ReasonLabel { reason });
        Self { stuck: of("stuck"), unread: of("unread"), flood: of("flood"), cut }
    }
}

impl Clients {
    pub(super) fn register(&self, it: &mut Registry) {
        let help = "Answers and connections that were ended because of their client, by reason";
        it.register("cleave_clients_cut", help, self.cut.clone());
    }
}
