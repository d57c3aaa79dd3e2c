//! The room for request bodies, which all requests share. Bytes are charged as they arrive, never as
//! they are announced. A caller may hold no more than what it leaves free beside all others: alone that
//! is half of the room, and each further caller takes half of the rest, so that there is always room
//! for one more. What finds no room waits, the oldest first and not for ever. The oldest that waits of
//! each caller may take four times as much, so that bodies which wait with bytes in hand do not all wait
//! for one another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::callers::Caller;

/// Bodies are charged in units of this many bytes: a small one takes a buffer too.
const UNIT_BYTES: usize = 4 << 10;
/// How many times what is left free a caller may hold, and its oldest body that waits.
const SHARE: usize = 1;
const SHARE_OLDEST: usize = 4;
/// No head is charged more.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// Bodies that may wait for room.
const WAITING_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Buffers {
    bytes_max: usize,
    room: Mutex<Room>,
}

#[derive(Debug, Default)]
struct Room {
    used: usize,
    bodies: u64,
    /// By age of the body.
    waiting: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    caller: Arc<Caller>,
    have: usize,
    more: usize,
    granted: oneshot::Sender<()>,
}

/// There is no room for the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Buffers {
    /// Makes room for bodies, and for the head of one that takes all of it.
    pub(super) fn for_bodies(bytes_max: usize) -> Arc<Self> {
        Self::new(bytes_max.saturating_add(HEAD_BYTES_MAX))
    }

    fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes_max: bytes_max.next_multiple_of(UNIT_BYTES), room: Mutex::default() })
    }

    /// Opens the account of one body.
    pub(super) fn open(self: &Arc<Self>, caller: &Arc<Caller>) -> Share {
        let mut room = self.lock();
        room.bodies += 1;
        let age = room.bodies;
        Share { buffers: Arc::clone(self), caller: Arc::clone(caller), age, bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        // Sums are changed in one step each; a panic elsewhere cannot leave them half changed.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether a body that has `have` bytes may have `more`.
    fn fits(&self, room: &Room, caller: &Caller, have: usize, more: usize, share: usize) -> bool {
        let Some(used) = room.used.checked_add(more).filter(|it| *it <= self.bytes_max) else {
            return false;
        };
        let held = caller.held_bytes.load(Relaxed) + more;
        // Where there is no other body at all, the room is there to be used.
        held <= (self.bytes_max - used).saturating_mul(share) || room.used == have
    }

    fn charge(room: &mut Room, caller: &Caller, more: usize) {
        room.used += more;
        caller.held_bytes.fetch_add(more, Relaxed);
    }

    fn release(&self, room: &mut Room, caller: &Caller, bytes: usize) {
        room.used -= bytes;
        caller.held_bytes.fetch_sub(bytes, Relaxed);
        if !room.waiting.is_empty() {
            self.grant(room);
        }
    }

    /// Gives room to those that wait, the oldest first.
    fn grant(&self, room: &mut Room) {
        let mut granted = Vec::new();
        let mut seen = BTreeSet::new();
        let waiting = std::mem::take(&mut room.waiting);
        for (age, it) in &waiting {
            if room.used == self.bytes_max {
                break;
            }
            let is_oldest = seen.insert(Arc::as_ptr(&it.caller).addr());
            let share = if is_oldest { SHARE_OLDEST } else { SHARE };
            if self.fits(room, &it.caller, it.have, it.more, share) {
                Self::charge(room, &it.caller, it.more);
                granted.push(*age);
            }
        }
        room.waiting = waiting;
        for age in granted {
            if let Some(waiter) = room.waiting.remove(&age) {
                // If it has just left, it gives back what it was given.
                _ = waiter.granted.send(());
            }
        }
    }
}

/// The bytes of one body, given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    buffers: Arc<Buffers>,
    caller: Arc<Caller>,
    age: u64,
    bytes: usize,
}

impl Share {
    /// Enlarges the share to `bytes`, waiting for room no longer than `left`, from which that is taken.
    pub(super) async fn grow(&mut self, bytes: usize, left: &mut Duration) -> Result<(), Full> {
        let Some(mut waiting) = self.ask(bytes)? else { return Ok(()) };
        let granted = waiting.granted.as_mut().ok_or(Full)?;
        let asked = Instant::now();
        if !matches!(timeout(*left, granted).await, Ok(Ok(()))) {
            return Err(Full);
        }
        *left = left.saturating_sub(asked.elapsed());
        waiting.granted = None;
        self.bytes += waiting.more;
        Ok(())
    }

    /// Enlarges the share to `bytes` if there is room now.
    pub(super) fn try_grow(&mut self, bytes: usize) -> Result<(), Full> {
        let Some(more) = self.more(bytes) else { return Ok(()) };
        let mut room = self.buffers.lock();
        if !self.buffers.fits(&room, &self.caller, self.bytes, more, SHARE) {
            return Err(Full);
        }
        Buffers::charge(&mut room, &self.caller, more);
        self.bytes += more;
        Ok(())
    }

    /// How many bytes it has.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Tells whether there is room to keep it for as long as a stream lasts: half of all room, and of
    /// the caller's, stays for bodies that are on their way.
    pub(super) fn may_stay(&self) -> bool {
        let room = self.buffers.lock();
        let free = self.buffers.bytes_max - room.used;
        let held = self.caller.held_bytes.load(Relaxed);
        self.buffers.bytes_max <= 2 * free && 2 * held <= free
    }

    fn more(&self, bytes: usize) -> Option<usize> {
        let more = bytes.next_multiple_of(UNIT_BYTES).saturating_sub(self.bytes);
        (0 < more).then_some(more)
    }

    /// Takes room if there is any, else a place among those that wait.
    fn ask(&mut self, bytes: usize) -> Result<Option<BufferWait>, Full> {
        let Some(more) = self.more(bytes) else { return Ok(None) };
        let mut room = self.buffers.lock();
        if self.buffers.fits(&room, &self.caller, self.bytes, more, SHARE) {
            Buffers::charge(&mut room, &self.caller, more);
            self.bytes += more;
            return Ok(None);
        }
        if WAITING_MAX <= room.waiting.len() {
            return Err(Full);
        }
        let (granted, receiver) = oneshot::channel();
        let caller = Arc::clone(&self.caller);
        room.waiting.insert(self.age, Waiter { caller, have: self.bytes, more, granted });
        // It may be the oldest of its caller, which has more.
        self.buffers.grant(&mut room);
        drop(room);
        let (buffers, caller) = (Arc::clone(&self.buffers), Arc::clone(&self.caller));
        Ok(Some(BufferWait { buffers, caller, age: self.age, more, granted: Some(receiver) }))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if 0 < self.bytes {
            let mut room = self.buffers.lock();
            self.buffers.release(&mut room, &self.caller, self.bytes);
        }
    }
}

/// A place among those that wait for room.
struct BufferWait {
    buffers: Arc<Buffers>,
    caller: Arc<Caller>,
    age: u64,
    more: usize,
    /// `None` once what was granted is taken.
    granted: Option<oneshot::Receiver<()>>,
}

impl Drop for BufferWait {
    fn drop(&mut self) {
        if self.granted.is_none() {
            return;
        }
        let mut room = self.buffers.lock();
        if room.waiting.remove(&self.age).is_none() {
            // Granted just as it left.
            self.buffers.release(&mut room, &self.caller, self.more);
        }
    }
}

#[cfg(test)]
mod tests;
