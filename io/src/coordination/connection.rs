//! One connection to another router, from the handshake to its end. One task reads, writes and keeps time, so that a peer
//! that does not read never keeps this router from reading, and the other way round.

use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use cleave_core::cluster::{Hello, Link, LinkEvent};
use cleave_core::domain::{Moment, RouterId};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::{info, warn};

use super::Cluster;
use super::handshake::{Refused, Session, Side};
use super::members::Admitted;
use super::questions::Questions;
use super::waking::Waking;
use crate::proxy::{NewsReader, PeerView, PoolNews, Sharing};

/// What is written at once.
const WRITE_BYTES: usize = 256 << 10;
/// Room for what is read at once: most of what comes is shorter.
const READ_BYTES: usize = 16 << 10;
/// How often operators are shown how the connection is doing.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct PeerConnection {
    session: Session,
    side: Side,
    incoming: BytesMut,
    outgoing: BytesMut,
    /// Whether something that was written may still be in the buffer of TLS.
    is_unflushed: bool,
    questions: Questions,
}

/// Why a connection ended.
enum End {
    /// The peer said goodbye.
    Goodbye,
    /// It was lost.
    Lost(String),
    /// This router leaves, or another connection took its place.
    Ours,
}

impl PeerConnection {
    pub(super) fn new(session: Session, side: Side) -> Self {
        let (incoming, outgoing) = (BytesMut::with_capacity(2 * READ_BYTES), BytesMut::new());
        let questions = Questions::default();
        Self { session, side, incoming, outgoing, is_unflushed: false, questions }
    }

    /// Talks until the end of the connection; returns the router that was there.
    pub(super) async fn talk(mut self, cluster: &Arc<Cluster>) -> Option<RouterId> {
        let mut link = Link::new(cluster.router.now(), cluster.hello.clone());
        let mut admitted = None;
        let end = self.carry(cluster, &mut link, &mut admitted).await;
        let peer = link.peer()?.clone();
        let Some(Admitted { number, .. }) = admitted else { return Some(peer.router) };
        if !cluster.members.part(peer.router, number) {
            return Some(peer.router);
        }
        cluster.sharing.forget(peer.router);
        let is_lost = !matches!(end, End::Goodbye);
        cluster.elect(|it| it.on_parted(peer.router, !is_lost));
        match end {
            End::Goodbye => info!(router = %peer.router, address = peer.address, "router left"),
            End::Lost(why) => {
                warn!(router = %peer.router, address = peer.address, why, "router lost");
            }
            End::Ours => {}
        }
        for pool in cluster.router.pools().iter() {
            pool.on_parted(peer.router, is_lost);
        }
        Some(peer.router)
    }

    async fn carry(
        &mut self,
        cluster: &Arc<Cluster>,
        link: &mut Link,
        admitted: &mut Option<Admitted>,
    ) -> End {
        let news = cluster.sharing.subscribe();
        let (mut told, mut events) = (Vec::new(), Vec::new());
        let mut views = cluster.views.subscribe();
        let mut waking = Waking::new();
        let mut leave = pin!(cluster.leave.cancelled());
        let mut replaced = None;
        let mut shown_at = cluster.router.now();
        loop {
            let now = cluster.router.now();
            tell_all(now, link, &news, &mut told);
            if self.outgoing.is_empty() {
                if waking.is_look_due(now) {
                    link.hurry();
                }
                let told = link.told();
                self.fill(now, link);
                if told < link.told() {
                    waking.on_sent(now);
                }
            }
            let is_idle = self.outgoing.is_empty() && !self.is_unflushed;
            waking.set(now, link, is_idle);
            news.will_sleep(waking.until().since(now));
            self.incoming.reserve(READ_BYTES);
            let Session { reading, writing, .. } = &mut self.session;
            tokio::select! {
                read = reading.read_buf(&mut self.incoming) => match read {
                    Ok(0) => return End::Lost("it closed the connection".to_owned()),
                    Ok(_) => {
                        if let Err(error) = self.on_bytes(cluster, link, &mut events) {
                            return End::Lost(error.to_string());
                        }
                    }
                    Err(error) => return End::Lost(error.to_string()),
                },
                written = write(writing, &mut self.outgoing, &mut self.is_unflushed), if !is_idle => {
                    if let Err(error) = written {
                        return End::Lost(error.to_string());
                    }
                }
                () = news.woken() => {}
                Some(asked) = self.questions.next() => self.questions.ask(link, asked),
                Ok(()) = views.changed() => link.tell_view(views.borrow_and_update().clone()),
                () = waking.fired() => {}
                () = until(&mut replaced) => return End::Ours,
                () = &mut leave => {
                    tell_all(cluster.router.now(), link, &news, &mut told);
                    self.say_goodbye(cluster, link).await;
                    return End::Ours;
                }
            }
            let now = cluster.router.now();
            link.on_time(now, &mut events);
            for event in events.drain(..) {
                if let Some(end) = self.act(cluster, link, admitted, event) {
                    return end;
                }
            }
            let Some(it) = &*admitted else { continue };
            if replaced.is_none() {
                replaced = Some(Box::pin(it.end.clone().cancelled_owned()));
            }
            if let Some(peer) = link.peer().filter(|_| SHOWN_EVERY <= now.since(shown_at)) {
                show(&cluster.sharing, peer, link, now);
                shown_at = now;
            }
        }
    }

    fn on_bytes(
        &mut self,
        cluster: &Cluster,
        link: &mut Link,
        events: &mut Vec<LinkEvent>,
    ) -> Result<(), Refused> {
        while let Some(frame) = self.session.open.read(&mut self.incoming)? {
            let now = cluster.router.now();
            link.on_frame(now, &frame, events).map_err(|_| Refused::Stranger)?;
        }
        Ok(())
    }

    /// Writes what the link has to send, up to a bound.
    fn fill(&mut self, now: Moment, link: &mut Link) {
        while self.outgoing.len() < WRITE_BYTES
            && let Some(frame) = link.take(now)
        {
            self.session.seal.write(&frame, &mut self.outgoing);
        }
    }

    /// Does what a link asks for; returns why the connection ends, if it does.
    fn act(
        &mut self,
        cluster: &Arc<Cluster>,
        link: &mut Link,
        admitted: &mut Option<Admitted>,
        event: LinkEvent,
    ) -> Option<End> {
        match event {
            LinkEvent::Met(hello) => {
                if hello.router == cluster.hello.router {
                    return Some(End::Ours);
                }
                let has_dialled = self.side == Side::Dialled;
                let Some(it) = cluster.members.admit(cluster.hello.router, &hello, has_dialled)
                else {
                    return Some(End::Ours);
                };
                info!(router = %hello.router, address = hello.address, "router found");
                *admitted = Some(it);
                self.questions.begin(&cluster.sharing.desk, hello.router);
                link.tell_members(cluster.members.list());
                cluster.elect(|it| it.on_met(hello.router));
                link.tell_view(cluster.views.borrow().clone());
            }
            LinkEvent::Unfit(hello) => {
                let (version, min) = (hello.version, hello.version_min);
                return Some(End::Lost(format!("it speaks versions {min} to {version}")));
            }
            LinkEvent::Members(members) => cluster.on_members(members),
            LinkEvent::View(view) => {
                let router = link.peer()?.router;
                cluster.elect(|it| it.on_view(router, view));
            }
            // What is left of a connection that another has replaced, on which everything is told anew: a request that has
            // ended since would stand in the books for good.
            LinkEvent::Heard { .. }
                if admitted.as_ref().is_some_and(|it| it.end.is_cancelled()) =>
            {
                return Some(End::Ours);
            }
            LinkEvent::Heard { pool, news, is_whole } => {
                let router = link.peer()?.router;
                cluster.router.on_heard(router, pool, news, is_whole);
                if is_whole {
                    cluster.sharing.set_joining(false);
                }
            }
            LinkEvent::Lacks => link.tell_whole(&cluster.router.whole()),
            LinkEvent::Asked { number, question } => {
                link.answer(number, cluster.sharing.desk.answer(&question));
            }
            LinkEvent::Answered { number, answer } => self.questions.on_answer(number, answer),
            LinkEvent::Left => return Some(End::Goodbye),
            LinkEvent::Silent => return Some(End::Lost("it has fallen silent".to_owned())),
        }
        None
    }

    /// Sends what is left to tell, and that this router leaves.
    async fn say_goodbye(&mut self, cluster: &Cluster, link: &mut Link) {
        link.say_goodbye();
        loop {
            self.fill(cluster.router.now(), link);
            if !self.outgoing.has_remaining() {
                break;
            }
            if self.session.writing.write_all_buf(&mut self.outgoing).await.is_err() {
                return;
            }
        }
        _ = self.session.writing.flush().await;
        _ = self.session.writing.shutdown().await;
    }
}

/// Writes all of it and has TLS send what it holds back, as far as the peer takes it now. Each piece is done or not begun,
/// so that another branch may go first.
async fn write(
    writing: &mut (impl AsyncWrite + Unpin),
    outgoing: &mut BytesMut,
    is_unflushed: &mut bool,
) -> io::Result<()> {
    while !outgoing.is_empty() {
        writing.write_buf(outgoing).await?;
        *is_unflushed = true;
    }
    writing.flush().await?;
    *is_unflushed = false;
    Ok(())
}

/// Waits until another connection has taken the place of this one.
async fn until(replaced: &mut Option<Pin<Box<WaitForCancellationFutureOwned>>>) {
    match replaced {
        Some(it) => it.await,
        None => pending().await,
    }
}

/// Tells a peer what this router has told since the last time and what concerns it.
fn tell_all(now: Moment, link: &mut Link, news: &NewsReader, told: &mut Vec<Arc<PoolNews>>) {
    if news.take(told) {
        link.miss();
    }
    let peer = link.peer().map(|it| it.router);
    for it in told.drain(..) {
        let concerned = it.tellings.iter().filter(|it| it.to.is_none() || it.to == peer);
        for telling in concerned {
            link.tell(now, it.pool, std::slice::from_ref(&telling.news));
        }
    }
}

/// Shows operators how the connection is doing.
fn show(sharing: &Sharing, peer: &Hello, link: &Link, now: Moment) {
    sharing.show(
        peer.router,
        PeerView { address: peer.address.clone(), lag: link.lag(now), totals: link.totals() },
    );
}
