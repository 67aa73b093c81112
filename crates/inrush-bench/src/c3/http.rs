//! As much HTTP as a sender needs.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// `Inrush-Rows`
    pub rows: u64,
    pub body: String,
}

/// A connection that is kept.
#[derive(Debug)]
pub struct Connection<S> {
    socket: S,
}

impl Connection<UnixStream> {
    /// Through a Unix socket.
    pub fn open(path: &Path) -> io::Result<Connection<UnixStream>> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Connection { socket })
    }
}

/// What a page of the admin address says.
pub fn get(port: u16, path: &str) -> io::Result<Answer> {
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut connection = Connection { socket };
    write!(connection.socket, "GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    connection.answer()
}

impl<S: Read + Write> Connection<S> {
    /// Sends a body of CSV.
    pub fn post(&mut self, table: &str, body: &[u8]) -> io::Result<Answer> {
        let head = format!(
            "POST /ingest/{table} HTTP/1.1\r\nHost: bench\r\nContent-Type: text/csv\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.socket.write_all(head.as_bytes())?;
        self.socket.write_all(body)?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.more(&mut bytes)?;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let rows = field("inrush-rows:").and_then(|rows| rows.parse().ok()).unwrap_or(0);
        let length = field("content-length:").and_then(|length| length.parse::<usize>().ok());
        if status != 204 {
            while length.is_none_or(|length| bytes.len() < end + length) {
                match self.more(&mut bytes) {
                    // Without a length it ends with the connection.
                    Err(_) if length.is_none() => break,
                    read => read?,
                }
            }
        }
        Ok(Answer { status, rows, body: String::from_utf8_lossy(&bytes[end..]).into_owned() })
    }

    fn more(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let mut some = [0; 4096];
        let read = self.socket.read(&mut some)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&some[..read]);
        Ok(())
    }
}
