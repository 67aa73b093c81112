//! A connection as the scenarios see it, and the driver that Inrush uses as one.

use bytes::Bytes;
use futures_util::SinkExt;
use std::pin::Pin;
use tokio_postgres::{CopyInSink, NoTls, SimpleQueryMessage};

/// What the server said. Without a code where the connection was simply gone.
#[derive(Debug)]
pub struct Refused {
    pub sqlstate: String,
    pub message: String,
}

/// One connection; a COPY in it is begun, fed and ended in steps.
pub trait Session {
    /// The first column of the answer.
    fn query(&mut self, sql: &str) -> Result<Vec<String>, Refused>;
    /// Until the server waits for data.
    fn begin(&mut self, copy: &str) -> Result<(), Refused>;
    /// Goes on whatever the server has said meanwhile.
    fn send(&mut self, data: &[u8]);
    /// CopyDone; the rows.
    fn end(&mut self) -> Result<u64, Refused>;
    /// CopyFail.
    fn give_up(&mut self);
    fn cancel(&self);

    fn one(&mut self, sql: &str) -> String {
        let mut rows = self.query(sql).unwrap_or_else(|refused| panic!("{sql}: {refused:?}"));
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows.remove(0)
    }

    fn run(&mut self, sql: &str) {
        self.query(sql).unwrap_or_else(|refused| panic!("{sql}: {refused:?}"));
    }
}

/// tokio-postgres; its COPY takes the extended protocol.
pub struct Driver {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
    sink: Option<Pin<Box<CopyInSink<Bytes>>>>,
}

impl From<tokio_postgres::Error> for Refused {
    fn from(error: tokio_postgres::Error) -> Refused {
        let sqlstate = error.code().map(|code| code.code().to_owned()).unwrap_or_default();
        let message = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
        Refused { sqlstate, message }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

impl Driver {
    pub fn connect(url: &str) -> Driver {
        let url = url.to_owned();
        let (give, take) = std::sync::mpsc::channel();
        // A thread of its own moves the messages, also while a test waits for something else.
        std::thread::spawn(move || {
            runtime().block_on(async move {
                let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
                give.send(client).expect("somebody waits");
                // It ends with an error where the server ends the session: the client hears of it.
                let _ = connection.await;
            });
        });
        Driver { runtime: runtime(), client: take.recv().expect("a client"), sink: None }
    }
}

impl Session for Driver {
    fn query(&mut self, sql: &str) -> Result<Vec<String>, Refused> {
        let answer = self.runtime.block_on(self.client.simple_query(sql))?;
        let first = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        };
        Ok(answer.iter().filter_map(first).collect())
    }

    fn begin(&mut self, copy: &str) -> Result<(), Refused> {
        self.sink = Some(Box::pin(self.runtime.block_on(self.client.copy_in(copy))?));
        Ok(())
    }

    fn send(&mut self, data: &[u8]) {
        let sink = self.sink.as_mut().expect("a COPY");
        // What the server thinks of it is heard at the end.
        let _ = self.runtime.block_on(sink.send(Bytes::copy_from_slice(data)));
    }

    fn end(&mut self) -> Result<u64, Refused> {
        let mut sink = self.sink.take().expect("a COPY");
        Ok(self.runtime.block_on(sink.as_mut().finish())?)
    }

    fn give_up(&mut self) {
        // Its receiver sends CopyFail; nobody hears the answer.
        drop(self.sink.take().expect("a COPY"));
    }

    fn cancel(&self) {
        self.runtime.block_on(self.client.cancel_token().cancel_query(NoTls)).expect("a cancel request");
    }
}
