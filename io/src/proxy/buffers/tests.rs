use std::future::Future;

use super::*;

const MIB: usize = 1 << 20;

fn soon() -> Duration {
    Duration::from_secs(30)
}

struct Rig {
    buffers: Arc<Buffers>,
    callers: Vec<Arc<Caller>>,
}

impl Rig {
    fn new(mib: usize, callers: usize) -> Self {
        let callers = (0..callers).map(|_| Arc::default()).collect();
        Self { buffers: Buffers::new(mib * MIB), callers }
    }

    fn open(&self, caller: usize) -> Share {
        self.buffers.open(&self.callers[caller])
    }

    /// Has a caller take bodies of 1 MiB until there is no more room for it.
    fn fill(&self, caller: usize) -> Vec<Share> {
        let mut held = Vec::new();
        loop {
            let mut body = self.open(caller);
            if body.try_grow(MIB).is_err() {
                return held;
            }
            held.push(body);
        }
    }

    fn used(&self) -> usize {
        self.buffers.lock().used
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!((self.used(), self.buffers.lock().waiting.len()), (0, 0));
            assert!(self.callers.iter().all(|it| it.held_bytes.load(Relaxed) == 0));
        }
    }
}

/// Polls once.
async fn is_ready(future: impl Future) -> bool {
    tokio::select! {
        biased;
        _ = future => true,
        () = std::future::ready(()) => false,
    }
}

#[test]
fn a_caller_holds_half_and_each_further_one_half_of_the_rest() {
    let rig = Rig::new(256, 3);
    let held: Vec<_> = (0..3).map(|it| rig.fill(it)).collect();
    assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [128, 64, 32]);
    drop(held);
}

#[test]
fn a_lone_body_may_fill_the_room() {
    let rig = Rig::new(32, 1);
    let mut body = rig.open(0);
    (1..=32).for_each(|it| body.try_grow(it * MIB).unwrap());
    assert_eq!(rig.open(0).try_grow(1), Err(Full));
    drop(body);
}

#[test]
fn bytes_are_charged_as_they_come_in_whole_units() {
    let rig = Rig::new(1, 1);
    let mut body = rig.open(0);
    assert_eq!(rig.used(), 0);
    body.try_grow(1).unwrap();
    assert_eq!(rig.used(), UNIT_BYTES);
    body.try_grow(UNIT_BYTES).unwrap();
    assert_eq!(rig.used(), UNIT_BYTES);
    body.try_grow(UNIT_BYTES + 1).unwrap();
    assert_eq!(rig.used(), 2 * UNIT_BYTES);
    drop(body);
}

#[tokio::test(start_paused = true)]
async fn a_body_waits_for_room_and_not_for_ever() {
    let rig = Rig::new(16, 1);
    let mut held = rig.fill(0);
    let (mut first, mut second) = (rig.open(0), rig.open(0));
    // The oldest that waits has some more room; the next one waits behind it.
    first.grow(4 * MIB, &mut soon()).await.unwrap();
    let mut third = rig.open(0);
    let mut left = soon();
    let mut waits = Box::pin(second.grow(2 * MIB, &mut left));
    assert!(!is_ready(waits.as_mut()).await);
    assert_eq!(third.grow(MIB, &mut soon()).await, Err(Full), "it is not the oldest that waits");
    held.truncate(4);
    drop(first);
    waits.await.unwrap();
    drop((held, second, third));
}

#[tokio::test(start_paused = true)]
async fn bodies_that_all_wait_with_bytes_in_hand_go_on_one_by_one() {
    let rig = Rig::new(64, 1);
    let mut bodies: Vec<_> = (0..8).map(|_| rig.open(0)).collect();
    for body in &mut bodies {
        body.try_grow(4 * MIB).unwrap();
    }
    let reads = bodies.into_iter().map(|mut body| async move {
        for mib in 5..=12 {
            body.grow(mib * MIB, &mut soon()).await?;
        }
        Ok::<_, Full>(())
    });
    let read = futures_util::future::join_all(reads).await;
    assert!(read.iter().all(Result::is_ok), "{read:?}");
}

#[tokio::test]
async fn what_is_granted_to_a_body_that_has_just_left_is_given_back() {
    let rig = Rig::new(16, 1);
    let (held, mut body, mut other) = (rig.fill(0), rig.open(0), rig.open(0));
    body.grow(4 * MIB, &mut soon()).await.unwrap();
    let mut left = soon();
    let mut waits = Box::pin(other.grow(4 * MIB, &mut left));
    assert!(!is_ready(waits.as_mut()).await);
    drop((held, body));
    // Granted by now, and never taken.
    drop(waits);
    assert_eq!(rig.used(), 0);
    drop(other);
}

#[test]
fn what_stays_for_long_leaves_room_for_what_is_on_its_way() {
    let rig = Rig::new(64, 2);
    let (first, second) = (rig.open(0), rig.open(1));
    assert!(first.may_stay());
    let held = rig.fill(0);
    assert!(!first.may_stay() && second.may_stay());
    let more = rig.fill(1);
    assert!(!second.may_stay());
    drop((held, more));
}
