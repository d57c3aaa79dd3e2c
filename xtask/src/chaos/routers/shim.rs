//! The network between two routers, as a process in the middle that can be cut: while it is, connections stay open and
//! carry nothing, as behind a switch that drops packets; when it heals, old connections are gone.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(20);

/// One direction of dialling between two routers.
pub(super) struct Shim {
    pub(super) address: SocketAddr,
    state: Arc<ShimState>,
}

struct ShimState {
    to: SocketAddr,
    is_cut: AtomicBool,
    is_over: AtomicBool,
    bytes: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Shim {
    pub(super) fn start(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let [is_cut, is_over] = [(); 2].map(|()| AtomicBool::new(false));
        let (bytes, open) = (AtomicU64::new(0), Mutex::default());
        let state = Arc::new(ShimState { to, is_cut, is_over, bytes, open });
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.is_over.load(Relaxed) {
                    return;
                }
                let Ok(from) = stream else { continue };
                let state = Arc::clone(&accepting);
                thread::spawn(move || state.carry(from));
            }
        });
        Ok(Self { address, state })
    }

    pub(super) fn cut(&self) {
        self.state.is_cut.store(true, Relaxed);
    }

    pub(super) fn heal(&self) {
        self.state.hang_up();
        self.state.is_cut.store(false, Relaxed);
    }

    /// Bytes that went through, both ways.
    pub(super) fn bytes(&self) -> u64 {
        self.state.bytes.load(Relaxed)
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        self.state.is_over.store(true, Relaxed);
        self.state.hang_up();
        // Wakes the one that accepts.
        _ = TcpStream::connect(self.address);
    }
}

impl ShimState {
    fn hang_up(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for it in open.drain(..) {
            _ = it.shutdown(Shutdown::Both);
        }
    }

    fn carry(self: Arc<Self>, from: TcpStream) {
        self.wait();
        let Ok(to) = TcpStream::connect(self.to) else { return };
        let pairs = [(from.try_clone(), to.try_clone()), (to.try_clone(), from.try_clone())];
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.extend([from, to]);
        }
        for (read, write) in pairs {
            let (Ok(read), Ok(write)) = (read, write) else { return };
            let state = Arc::clone(&self);
            thread::spawn(move || state.pump(read, write));
        }
    }

    fn pump(&self, mut read: TcpStream, mut write: TcpStream) {
        _ = write.set_nodelay(true);
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = read.read(&mut bytes) {
            self.wait();
            self.bytes.fetch_add(u64::try_from(count).unwrap_or(0), Relaxed);
            if write.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        _ = read.shutdown(Shutdown::Both);
        _ = write.shutdown(Shutdown::Both);
    }

    /// Holds back what comes while it is cut.
    fn wait(&self) {
        while self.is_cut.load(Relaxed) && !self.is_over.load(Relaxed) {
            thread::sleep(POLL);
        }
    }
}
