//! Messages as they are on the wire (protocol 3.0): the simple protocol, which tokio-postgres cannot COPY in, and the
//! orders of Sync that other drivers have.

use crate::session::{Refused, Session};
use std::io::{Read, Write};
use std::net::TcpStream;

/// How a statement is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// One Query message, as psql's.
    Simple,
    /// Sync behind Execute and another behind the end of COPY, as libpq's `PQsendQueryParams`.
    EarlySync,
    /// Flush behind Execute, Sync only behind the end of COPY.
    LateSync,
}

pub struct Wire {
    stream: TcpStream,
    port: u16,
    protocol: Protocol,
    /// Process and secret of the backend, as a cancel request has them.
    key: Vec<u8>,
}

/// A message of the server.
struct Message(u8, Vec<u8>);

fn gone(error: &std::io::Error) -> Refused {
    Refused { sqlstate: String::new(), message: error.to_string() }
}

/// The zero-terminated strings in it.
fn strings(bytes: &[u8]) -> impl Iterator<Item = String> {
    bytes.split(|b| *b == 0).map(|s| String::from_utf8_lossy(s).into_owned())
}

fn refused(body: &[u8]) -> Refused {
    let field = |kind: char| {
        strings(body).find(|s| s.starts_with(kind)).map(|s| s[1..].to_owned()).unwrap_or_default()
    };
    Refused { sqlstate: field('C'), message: field('M') }
}

impl Wire {
    pub fn connect(port: u16, database: &str, protocol: Protocol) -> Wire {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        let mut wire = Wire { stream, port, protocol, key: Vec::new() };
        let mut startup = 196_608_u32.to_be_bytes().to_vec();
        startup.extend_from_slice(format!("user\0postgres\0database\0{database}\0\0").as_bytes());
        wire.bytes(&[&(startup.len() as u32 + 4).to_be_bytes(), startup.as_slice()].concat());
        loop {
            match wire.read().expect("an answer") {
                Message(b'Z', _) => return wire,
                Message(b'K', key) => wire.key = key,
                Message(b'E', body) => panic!("no session: {:?}", refused(&body)),
                _ => {}
            }
        }
    }

    /// Where the server has gone, the next read says so.
    fn bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    fn message(&mut self, kind: u8, body: &[u8]) {
        let length = u32::try_from(body.len()).expect("a short message") + 4;
        self.bytes(&[&[kind], &length.to_be_bytes()[..], body].concat());
    }

    fn read(&mut self) -> std::io::Result<Message> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body)?;
        Ok(Message(head[0], body))
    }

    fn statement(&mut self, sql: &str) {
        if self.protocol == Protocol::Simple {
            self.message(b'Q', format!("{sql}\0").as_bytes());
            return;
        }
        // Unnamed statement and portal, no parameters, all rows.
        self.message(b'P', format!("\0{sql}\0\0\0").as_bytes());
        self.message(b'B', &[0, 0, 0, 0, 0, 0, 0, 0]);
        self.message(b'E', &[0, 0, 0, 0, 0]);
        self.message(if self.protocol == Protocol::EarlySync { b'S' } else { b'H' }, &[]);
    }

    /// Everything up to ReadyForQuery: the last error, the first column, the last command tag.
    fn finish(&mut self) -> Result<(Vec<String>, String), Refused> {
        let (mut rows, mut tag, mut error) = (Vec::new(), String::new(), None);
        loop {
            match self.read().map_err(|e| error.take().unwrap_or_else(|| gone(&e)))? {
                Message(b'Z', _) => return error.map_or(Ok((rows, tag)), Err),
                Message(b'E', body) => error = Some(refused(&body)),
                Message(b'C', body) => tag = strings(&body).next().unwrap_or_default(),
                Message(b'D', body) => {
                    // Columns, then the first one's length.
                    let length = u32::from_be_bytes([body[2], body[3], body[4], body[5]]) as usize;
                    rows.push(String::from_utf8_lossy(&body[6..6 + length]).into_owned());
                }
                _ => {}
            }
        }
    }

    fn sync(&mut self) {
        if self.protocol != Protocol::Simple {
            self.message(b'S', &[]);
        }
    }
}

impl Session for Wire {
    fn query(&mut self, sql: &str) -> Result<Vec<String>, Refused> {
        self.statement(sql);
        if self.protocol == Protocol::LateSync {
            self.sync();
        }
        self.finish().map(|(rows, _)| rows)
    }

    fn begin(&mut self, copy: &str) -> Result<(), Refused> {
        self.statement(copy);
        loop {
            match self.read().map_err(|e| gone(&e))? {
                Message(b'G', body) => {
                    assert_eq!(body[0], 1, "the format is binary");
                    return Ok(());
                }
                Message(b'E', body) => {
                    if self.protocol == Protocol::LateSync {
                        self.sync();
                    }
                    let _ = self.finish();
                    return Err(refused(&body));
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, data: &[u8]) {
        self.message(b'd', data);
    }

    fn end(&mut self) -> Result<u64, Refused> {
        self.message(b'c', &[]);
        self.sync();
        let (_, tag) = self.finish()?;
        Ok(tag.strip_prefix("COPY ").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("tag {tag:?}")))
    }

    fn give_up(&mut self) {
        self.message(b'f', b"no more\0");
        self.sync();
        let refused = self.finish().expect_err("a COPY that fails");
        assert_eq!(refused.sqlstate, "57014", "{refused:?}");
        assert_eq!(refused.message, "COPY from stdin failed: no more");
    }

    fn cancel(&self) {
        let mut other = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        let request = [&16_u32.to_be_bytes()[..], &80_877_102_u32.to_be_bytes(), &self.key].concat();
        other.write_all(&request).expect("a cancel request");
        // The server closes it when it has signalled.
        let _ = other.read(&mut [0]);
    }
}
