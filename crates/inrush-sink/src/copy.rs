//! One `COPY ... FROM STDIN` in progress.

use crate::connect::{Connected, Socket};
use bytes::Bytes;
use futures_util::SinkExt;
use inrush_core::quote_ident;
use std::pin::Pin;
use std::sync::Arc;
use tokio_postgres::{CopyInSink, Error, Statement};

/// What the server is told to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WireFormat {
    /// `FORMAT text`, with the default delimiter and NULL marker.
    Text,
    /// `FORMAT binary`.
    Binary,
    /// `FORMAT inrush`: the server's extension reads it.
    Direct,
}

/// The statement that loads `columns` of `table`, which is a name as SQL reads it. `encoding` is the encoding of text fields where it is not
/// the session's (UTF8). `freeze` writes the rows frozen, which the server allows only in the (sub)transaction that
/// created or truncated the table.
pub fn statement(
    table: &str,
    columns: &[&str],
    format: WireFormat,
    encoding: Option<&str>,
    freeze: bool,
) -> String {
    let names: Vec<String> = columns.iter().map(|name| quote_ident(name)).collect();
    let mut options = match format {
        WireFormat::Text => String::from("FORMAT text"),
        WireFormat::Binary => String::from("FORMAT binary"),
        WireFormat::Direct => String::from("FORMAT inrush"),
    };
    if let Some(encoding) = encoding {
        options.push_str(&format!(", ENCODING '{}'", encoding.replace('\'', "''")));
    }
    if freeze {
        options.push_str(", FREEZE");
    }
    // A table without columns to send is given as it is: `COPY t () FROM` is not valid SQL.
    let list = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    format!("COPY {table}{list} FROM STDIN ({options})")
}

/// A COPY that takes bytes. Message borders carry no meaning: bytes may be cut anywhere.
///
/// Dropping it without [`CopyStream::finish`] sends CopyFail: the statement fails and nothing is stored.
pub struct CopyStream {
    sink: Pin<Box<CopyInSink<Bytes>>>,
    /// Where bytes go past the driver.
    socket: Option<Arc<Socket>>,
    /// Messages that wait for a larger one, as they are sent.
    small: Vec<u8>,
}

/// Bytes of a message that is not worth a system call of its own.
const SMALL: usize = 4 << 10;

impl CopyStream {
    /// Bytes of one CopyData message. The server holds a whole message in memory while it parses it: larger
    /// ones fall out of its caches, smaller ones cost a header and a turn of its read loop each.
    pub const MESSAGE: usize = 64 << 10;

    /// Starts the COPY. The statement has been prepared on the same connection.
    pub async fn start(connected: &Connected, statement: &Statement) -> Result<CopyStream, Error> {
        let sink = Box::pin(connected.client.copy_in(statement).await?);
        Ok(CopyStream { sink, socket: connected.socket.clone(), small: Vec::new() })
    }

    /// Sends bytes in messages of at most [`CopyStream::MESSAGE`] (the last one may be up to a quarter
    /// larger). Waits while the server is slower than we are: this is where back-pressure comes from.
    pub async fn send(&mut self, mut bytes: Bytes) -> Result<(), Error> {
        while bytes.len() > Self::MESSAGE + Self::MESSAGE / 4 {
            let part = bytes.split_to(Self::MESSAGE);
            self.send_whole(part).await?;
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.send_whole(bytes).await
    }

    /// Sends bytes in one message, however long: the extension reads a block best where it lies in one.
    pub async fn send_whole(&mut self, bytes: Bytes) -> Result<(), Error> {
        // The length counts itself, and is an Int32: no message is longer.
        let length = u32::try_from(bytes.len() + 4).ok().filter(|length| i32::try_from(*length).is_ok());
        let (Some(socket), Some(length)) = (&self.socket, length) else { return self.sink.send(bytes).await };
        self.small.push(b'd');
        self.small.extend_from_slice(&length.to_be_bytes());
        if bytes.len() < SMALL && self.small.len() < SMALL {
            self.small.extend_from_slice(&bytes);
            return Ok(());
        }
        let written = socket.write(&self.small, &bytes).await;
        self.small.clear();
        match written {
            Ok(()) => Ok(()),
            // The connection has ended; why, the driver knows.
            Err(_) => self.sink.as_mut().finish().await.map(|_| ()),
        }
    }

    /// Ends the COPY and gives the number of rows the server stored.
    pub async fn finish(mut self) -> Result<u64, Error> {
        if let Some(socket) = self.socket.as_ref().filter(|_| !self.small.is_empty()) {
            // If that fails the connection has ended, and the driver says so.
            let _ = socket.write(&self.small, &[]).await;
        }
        self.sink.as_mut().finish().await
    }
}
