use std::io::{Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

/// One end of a proxied connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Another handle of this stream and of `other`.
    pub(super) fn pair(&self, other: &Stream) -> Option<(Stream, Stream)> {
        Some((self.again()?, other.again()?))
    }

    fn again(&self) -> Option<Stream> {
        match self {
            Stream::Tcp(stream) => stream.try_clone().ok().map(Stream::Tcp),
            Stream::Unix(stream) => stream.try_clone().ok().map(Stream::Unix),
        }
    }

    /// Ends it at once; whoever reads or writes on any handle wakes up. A TCP peer sees a reset: connecting
    /// to no address sends one (connect(2), `AF_UNSPEC`), where `shutdown` would end it in good order.
    pub(super) fn reset(&self) {
        if let Stream::Tcp(stream) = self {
            let _ = rustix::net::connect_unspec(stream);
        }
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Says that nothing more comes.
    pub(super) fn finish(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(buffer),
            Stream::Unix(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write(bytes),
            Stream::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
