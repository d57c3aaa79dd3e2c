//! The socket on which requests come in, whatever serves them. It is bound before anything is served, and can be
//! handed on to a process that takes over.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

const BACKLOG: i32 = 4096;

/// A bound listener that serves nothing yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    /// Connections taken at once; later ones wait to be accepted.
    pub(crate) connections_max: usize,
}

/// Why the listener cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}")]
pub struct BindError {
    pub address: SocketAddr,
    pub error: io::Error,
}

impl Listener {
    /// Binds a listener, or takes the `given` one, which another process has bound, if it is for the same
    /// address.
    pub fn bind(
        address: SocketAddr,
        connections_max: usize,
        given: Option<OwnedFd>,
    ) -> Result<Self, BindError> {
        let given = given.map(TcpListener::from).filter(|it| is_for(it, address));
        let socket = given.map_or_else(|| listen(address), Ok);
        let socket = socket.map_err(|error| BindError { address, error })?;
        Ok(Self { socket, connections_max })
    }

    /// Makes another handle of the socket, for a process that takes over.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Makes the handle by which connections are accepted; the runtime must be there.
    pub(crate) fn accepting(&self) -> io::Result<tokio::net::TcpListener> {
        tokio::net::TcpListener::from_std(self.socket.try_clone()?)
    }

    /// Takes no more connections. Dropping it would not do: other handles of the socket may be open in this
    /// process. If this fails, newcomers wait until the process ends.
    pub(crate) fn close(&self) {
        _ = socket2::SockRef::from(&self.socket).shutdown(Shutdown::Both);
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn is_for(listener: &TcpListener, address: SocketAddr) -> bool {
    listener
        .local_addr()
        .is_ok_and(|own| own.ip() == address.ip() && [0, own.port()].contains(&address.port()))
}
