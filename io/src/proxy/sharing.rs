//! What pools tell other routers goes out here, in the order in which it happened: it is handed over while the lock of its
//! pool is held, and never waits. Those that carry it to the others read it at their own pace (`news_board`); one that is
//! too slow tells everything anew. A router that is alone has none of this.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use cleave_core::brain::Telling;
use cleave_core::cluster::{ClusterStanding, FoundOut, LinkTotals, News};
use cleave_core::domain::{Moment, RouterId};
use uuid::Uuid;

use super::news_board::{NewsBoard, NewsReader};
use super::peer_desk::PeerDesk;
use crate::tls::PeerTls;

/// Names what concerns no pool, in the place of a pool.
pub(super) const ALL_POOLS: u64 = 0;

/// Another router, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    pub address: String,
    /// How long the oldest news have been under way that it is not known to have heard.
    pub lag: Duration,
    pub totals: LinkTotals,
}

/// A store that several routers share, as operators see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStanding {
    /// When it answered last, if it ever did.
    pub answered_at: Option<Moment>,
    /// Whether what it said last still counts.
    pub is_answering: bool,
    /// Why it does not.
    pub trouble: Option<String>,
    pub failures: u64,
    /// Orders and plans that this router wrote there.
    pub writes: u64,
    /// Times that a write was refused because another router leads.
    pub fenced: u64,
}

/// Where a router's pools tell what they do.
#[derive(Debug)]
pub struct Sharing {
    router: RouterId,
    news: NewsBoard,
    is_joining: AtomicBool,
    standing: Mutex<ClusterStanding>,
    peers: Mutex<BTreeMap<RouterId, PeerView>>,
    /// Nothing where there is no store.
    store: Mutex<Option<StoreStanding>>,
    /// Certificates by which routers know each other, taken up anew when their files change.
    tls: ArcSwapOption<PeerTls>,
    /// Questions between routers.
    pub desk: PeerDesk,
}

impl Sharing {
    /// Gives the router an id that no other process has.
    pub fn new() -> Arc<Self> {
        let (id, _) = Uuid::new_v4().as_u64_pair();
        Arc::new(Self {
            router: RouterId(id),
            news: NewsBoard::default(),
            is_joining: AtomicBool::new(false),
            standing: Mutex::default(),
            peers: Mutex::default(),
            store: Mutex::default(),
            tls: ArcSwapOption::default(),
            desk: PeerDesk::default(),
        })
    }

    pub const fn router(&self) -> RouterId {
        self.router
    }

    /// Tells whether the router still waits to be told what others know.
    pub fn is_joining(&self) -> bool {
        self.is_joining.load(Relaxed)
    }

    pub fn set_joining(&self, is_joining: bool) {
        self.is_joining.store(is_joining, Relaxed);
    }

    /// Where this router stands among the others.
    pub fn standing(&self) -> ClusterStanding {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_standing(&self, standing: ClusterStanding) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    /// Tells whether this router plans for all. One that joins does not yet: it would plan without knowing theirs.
    pub fn leads(&self) -> bool {
        self.standing().leader == Some(self.router) && !self.is_joining()
    }

    /// The store that is shared, if there is one.
    pub fn store(&self) -> Option<StoreStanding> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_store(&self, store: StoreStanding) {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(store);
    }

    /// Certificates by which routers know each other, if they do.
    pub fn tls(&self) -> Option<Arc<PeerTls>> {
        self.tls.load_full()
    }

    pub fn set_tls(&self, tls: Option<PeerTls>) {
        self.tls.store(tls.map(Arc::new));
    }

    /// Takes up certificates that were read again. Whether there are any is settled at the start.
    pub fn renew_tls(&self, new: Option<&PeerTls>) {
        if self.tls.load().is_some() && new.is_some() {
            self.set_tls(new.cloned());
        }
    }

    /// Reads what pools tell from now on.
    pub fn subscribe(&self) -> NewsReader {
        self.news.subscribe()
    }

    pub(super) fn tell(&self, pool: u64, tellings: Vec<Telling>) {
        self.news.tell(pool, tellings);
    }

    /// Tells what was found out beside all pools.
    pub(super) fn tell_found(&self, found: FoundOut) {
        self.tell_found_in(ALL_POOLS, found);
    }

    /// Tells all others what concerns one pool and was not found out by its brain.
    pub(super) fn tell_found_in(&self, pool: u64, found: FoundOut) {
        self.tell(pool, vec![Telling { to: None, news: News::Found(found) }]);
    }

    pub fn show(&self, router: RouterId, view: PeerView) {
        self.lock().insert(router, view);
    }

    pub fn forget(&self, router: RouterId) {
        self.lock().remove(&router);
    }

    /// Lists the routers that are talked to.
    pub fn peers(&self) -> BTreeMap<RouterId, PeerView> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RouterId, PeerView>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
