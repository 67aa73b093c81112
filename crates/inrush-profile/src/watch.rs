//! Whoever loads on a server, and where the time of these sessions goes: COPY, INSERT and what else fills tables
//! and indexes, started by anybody.
//!
//! # From the server to the picture
//!
//! [`Watch::run`] holds one connection. Twice a second it looks which sessions are at work ([`session`] has the
//! rules, [`statement`] reads their texts), many times a second what these wait for, and once a second how large
//! their tables are and what the server has counted. [`Figures`] adds it up without knowing of connections, and
//! [`Watch::picture`] gives what there is to show.

pub mod figures;
pub mod picture;
mod server;
pub mod session;
pub mod statement;
mod tally;

pub use figures::{Figures, Wanted};
pub use picture::{BackendFigures, Hidden, Picture, TableFigures, Together, share_of, split_in_words};
pub use statement::Kind;

use inrush_core::{Code, Error, Result};
use inrush_sink::connect::connect;
use inrush_sink::conninfo::ConnInfo;
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Between two attempts to connect again.
const AGAIN: Duration = Duration::from_secs(1);

/// How to watch.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchOptions {
    /// Looks per second at what the sessions wait for.
    pub hz: u32,
    /// Seconds that pictures may be had of.
    pub keep: f64,
    /// Whom to watch.
    pub wanted: Wanted,
}

impl WatchOptions {
    /// Looks per second unless somebody says otherwise.
    pub const DEFAULT_HZ: u32 = 20;
}

/// The server that is watched.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WatchedServer {
    /// Host and port, or the directory of the socket.
    pub host: String,
    /// server_version: `15.18 (Debian 15.18-1)`.
    pub version: String,
    /// The database connected to: tables of others have no names but those in statements.
    pub database: String,
    /// Seconds that the clock of the session is ahead of UTC.
    #[serde(skip)]
    pub utc_offset: i32,
    /// Processor seconds that watching has taken on the server, where that can be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
}

/// Watches a server. Shared: a thread runs it, displays read it.
#[derive(Debug)]
pub struct Watch {
    options: WatchOptions,
    started: Instant,
    figures: Mutex<Figures>,
    server: Mutex<Option<WatchedServer>>,
    ended: Notify,
}

impl Watch {
    /// Nothing seen yet.
    pub fn new(options: WatchOptions) -> Watch {
        Watch {
            figures: Mutex::new(Figures::new(options.wanted.clone(), options.keep)),
            options,
            started: Instant::now(),
            server: Mutex::new(None),
            ended: Notify::new(),
        }
    }

    /// Watches until [`Watch::end`]. Blocks: meant for a thread of its own.
    ///
    /// # Errors
    /// If the first connection fails, or the server does not answer what is asked. A connection that is lost later
    /// is opened again, however long that takes.
    pub fn run(&self, conninfo: &ConnInfo) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
            Error::new(Code::Internal, format!("cannot start the runtime of the connection: {e}"))
        })?;
        runtime.block_on(async {
            tokio::select! {
                () = self.ended.notified() => Ok(()),
                result = self.connect_and_work(conninfo) => result,
            }
        })
    }

    async fn connect_and_work(&self, conninfo: &ConnInfo) -> Result<()> {
        let mut connected = connect(conninfo, "inrush watch").await?;
        loop {
            let error = server::work(self, connected).await;
            // What did not work from the start will not.
            if self.server().is_none() {
                return Err(error);
            }
            self.figures().trouble(Some(error.fact().to_owned()));
            connected = loop {
                tokio::time::sleep(AGAIN).await;
                match connect(conninfo, "inrush watch").await {
                    Ok(connected) => break connected,
                    Err(error) => self.figures().trouble(Some(error.fact().to_owned())),
                }
            };
        }
    }

    /// Ends [`Watch::run`].
    pub fn end(&self) {
        self.ended.notify_one();
    }

    /// What has been seen in the last `seconds`; `None`: since the beginning.
    pub fn picture(&self, seconds: Option<f64>) -> Picture {
        let now = self.now();
        self.figures().picture(now, seconds)
    }

    /// Begins all figures anew.
    pub fn reset(&self) {
        let now = self.now();
        self.figures().reset(now);
    }

    /// The server, once it has been reached.
    pub fn server(&self) -> Option<WatchedServer> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_server(&self, change: impl FnOnce(&mut Option<WatchedServer>)) {
        change(&mut self.server.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since the beginning.
    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}
