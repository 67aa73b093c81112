//! Keeps the server's WAL writer at work while rows are sent.
//!
//! COPY writes through a ring of 16 MB of shared buffers (bufmgr, BAS_BULKWRITE). To use a buffer of the ring
//! again, the backend must write its page, and before that flush the WAL up to the page's last change
//! (FlushBuffer, XLogFlush). The WAL writer would have done that long ago, but it looks only every
//! `wal_writer_delay` (200 ms), in which a fast load fills the ring several times: so the backends write and
//! sync the WAL themselves, one at a time, while the others wait for WALWriteLock and processors are idle.
//!
//! Who commits asynchronously wakes the WAL writer (xlog.c, XLogSetAsyncXactLSN). So the control connection,
//! idle while the lanes work, commits an empty transaction after each few megabytes if much WAL is unflushed.
//! It costs a transaction id and about 40 bytes of WAL each time; logical decoding does not see it, and
//! nothing depends on it: a lane's commit is as durable as it was. Measured on case C1 with two lanes: 0.89 of
//! the time on PostgreSQL 15, 0.88 on 18.

use crate::job::Job;
use inrush_sink::nudge::NUDGE;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::Notify;
use tokio_postgres::Client;

/// Bytes sent between two looks at the WAL. The unflushed WAL must stay well below the ring (16 MB for each
/// lane) and `wal_buffers` (16 MB at most by default); narrow rows make two to three bytes of WAL from one sent.
const EVERY: u64 = 2 << 20;

/// Tells the nudging task that there is something to do.
#[derive(Default)]
pub(crate) struct Nudges {
    sent: Notify,
    over: Notify,
}

impl Job {
    /// Counts bytes that go to the server.
    pub fn count_sent(&self, bytes: u64) {
        let before = self.progress.bytes_out.fetch_add(bytes, Relaxed);
        if before / EVERY != (before + bytes) / EVERY {
            self.nudges.sent.notify_one();
        }
    }

    /// Ends [`nudge`].
    pub fn end_nudges(&self) {
        self.nudges.over.notify_one();
    }
}

/// Nudges the WAL writer until [`Job::end_nudges`]. Ends early if the server does not answer as it should: the
/// load is only slower without.
pub(crate) async fn nudge(client: &Client, job: &Job) {
    let work = async {
        let statement = client.prepare(NUDGE).await?;
        loop {
            job.nudges.sent.notified().await;
            let nudged = !client.query(&statement, &[]).await?.is_empty();
            job.progress.wal_nudges.fetch_add(nudged.into(), Relaxed);
        }
    };
    tokio::select! {
        () = job.nudges.over.notified() => {}
        ended = work => {
            let ended: Result<std::convert::Infallible, tokio_postgres::Error> = ended;
            tracing::debug!(error = ?ended.err(), "the WAL writer is not nudged any more");
        }
    }
}
