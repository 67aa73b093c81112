//! A sender of requests that has no opinion: what it is told to send goes over the wire.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// Sends one request over a connection of its own.
pub fn post(port: u16, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Reply> {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "Connection: close\r\n\r\n";
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    socket.write_all(head.as_bytes())?;
    // It may be refused before it is read.
    let sent = socket.write_all(body);
    reply(socket).map_err(|e| sent.err().unwrap_or(e))
}

/// NDJSON into a table.
pub fn rows(port: u16, table: &str, headers: &[(&str, &str)], body: &str) -> Result<Reply> {
    let headers = [&[("Content-Type", "application/x-ndjson")], headers].concat();
    post(port, &format!("/ingest/{table}"), &headers, body.as_bytes())
}

/// Sends bytes as they are.
pub fn raw(port: u16, bytes: &[u8]) -> Result<Reply> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    socket.write_all(bytes)?;
    reply(socket)
}

pub fn get(port: u16, path: &str) -> Result<Reply> {
    raw(port, format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").as_bytes())
}

fn reply(mut socket: TcpStream) -> Result<Reply> {
    let mut bytes = Vec::new();
    // A connection that is reset behind an answer has answered.
    let read = socket.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Err(read.err().unwrap_or_else(|| Error::new(ErrorKind::UnexpectedEof, "no answer")));
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| Error::new(ErrorKind::InvalidData, head.to_owned()))?;
    Ok(Reply { status, head: head.to_owned(), body: body.to_owned() })
}
