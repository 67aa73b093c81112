//! The bytes under the protocol: a Unix socket, TCP, or TLS on TCP.

use crate::tls;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// The bytes under the protocol.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<tls::TlsSocket>),
}

macro_rules! forward {
    ($self:ident, $method:ident, $($argument:expr),*) => {
        match $self.get_mut() {
            Stream::Unix(s) => Pin::new(s).$method($($argument),*),
            Stream::Tcp(s) => Pin::new(s).$method($($argument),*),
            Stream::Tls(s) => Pin::new(s.as_mut()).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        forward!(self, poll_read, cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        forward!(self, poll_write, cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A server that has already gone is no failure of ours to say goodbye.
        match ready!(forward!(self, poll_shutdown, cx)) {
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            other => Poll::Ready(other),
        }
    }
}

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        match self {
            Stream::Tls(s) => match tls::server_end_point(s) {
                Some(hash) => ChannelBinding::tls_server_end_point(hash),
                None => ChannelBinding::none(),
            },
            Stream::Unix(_) | Stream::Tcp(_) => ChannelBinding::none(),
        }
    }
}

/// Tells the driver that a stream's TLS is already there.
pub(super) struct Ready;

impl TlsConnect<Stream> for Ready {
    type Stream = Stream;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Stream>>;

    fn connect(self, stream: Stream) -> Self::Future {
        std::future::ready(Ok(stream))
    }
}
