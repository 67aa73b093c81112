//! The socket under the driver, for the bytes of a COPY.
//!
//! The driver copies every message into a buffer of its own, and is a task to be woken for it. While a COPY takes rows
//! it has nothing else to send: from the server's CopyInResponse to our CopyDone (protocol.sgml, "COPY Operations")
//! CopyData may go to the socket past it. What the server says meanwhile the driver reads as always.

use super::stream::Stream;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use tokio::net::{TcpStream, UnixStream};

/// The same socket as the driver's, under a descriptor of its own.
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// None where bytes are encrypted on their way, or there is no descriptor left.
    pub(super) fn of(stream: &Stream) -> Option<Socket> {
        match stream {
            Stream::Unix(socket) => {
                let socket: OwnedFd = socket.as_fd().try_clone_to_owned().ok()?;
                UnixStream::from_std(socket.into()).ok().map(Socket::Unix)
            }
            Stream::Tcp(socket) => {
                let socket: OwnedFd = socket.as_fd().try_clone_to_owned().ok()?;
                TcpStream::from_std(socket.into()).ok().map(Socket::Tcp)
            }
            Stream::Tls(_) => None,
        }
    }

    /// Writes all of both. If that fails, or is given up half way, the connection ends: nobody else could know where in
    /// a message the server is.
    pub(crate) async fn write(&self, head: &[u8], body: &[u8]) -> io::Result<()> {
        let whole = EndUnless { socket: self, done: false };
        let (mut head, mut body) = (head, body);
        while !head.is_empty() || !body.is_empty() {
            match self.try_write(&[IoSlice::new(head), IoSlice::new(body)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    let of_head = written.min(head.len());
                    head = &head[of_head..];
                    body = &body[written - of_head..];
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        whole.done();
        Ok(())
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.try_write_vectored(slices),
            Socket::Tcp(socket) => socket.try_write_vectored(slices),
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Socket::Unix(socket) => socket.writable().await,
            Socket::Tcp(socket) => socket.writable().await,
        }
    }

    /// Ends the connection, for the driver as well.
    fn end(&self) {
        let socket = match self {
            Socket::Unix(socket) => socket2::SockRef::from(socket),
            Socket::Tcp(socket) => socket2::SockRef::from(socket),
        };
        // It may have ended already.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// Ends the connection when it is dropped, unless all was done.
struct EndUnless<'s> {
    socket: &'s Socket,
    done: bool,
}

impl EndUnless<'_> {
    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for EndUnless<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.socket.end();
        }
    }
}
