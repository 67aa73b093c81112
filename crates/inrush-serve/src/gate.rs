//! Answers wait here until what they speak of is on disk.
//!
//! With `synchronous_commit = off` COMMIT is answered before its WAL record is flushed. The gate asks where the flush has
//! come to, and lets the answers of all commits before it pass. It asks nothing while nobody waits. An answer is let pass
//! only if the server has not restarted since the commit: a crash may have undone it.
//!
//! The same for standbys: where a failover must not lose what was acknowledged, answers wait until one of them has flushed
//! the WAL. As with synchronous replication, they wait as long as no standby is connected.

use crate::ack::Share;
use crate::config::Acknowledge;
use crate::session::connect_control;
use inrush_core::{Code, Error};
use inrush_sink::connect::Connected;
use inrush_sink::conninfo::ConnInfo;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often the server is asked. The WAL writer flushes every 200 ms (wal_writer_delay) at the latest.
const EVERY: Duration = Duration::from_millis(10);

/// A commit whose answers wait.
pub(crate) struct Waiting {
    /// A position of the WAL behind its commit record.
    pub lsn: u64,
    /// COMMIT was answered before its WAL was flushed.
    pub asynchronous: bool,
    /// When the server was started, as it says: positions of another life mean nothing.
    pub server_start: String,
    /// The answers, with the rows of each.
    pub answers: Vec<(Share, u64)>,
}

/// Whether answers wait for a standby; where it is not said, that is found out when the server is first asked.
pub(crate) fn standby_wanted(acknowledge: Option<Acknowledge>, conninfo: &ConnInfo) -> Option<bool> {
    match acknowledge {
        Some(Acknowledge::Standby) => Some(true),
        Some(Acknowledge::Local) => Some(false),
        None if conninfo.hosts.len() > 1 => None,
        None => Some(false),
    }
}

/// Works until the channel is closed and nobody waits.
pub(crate) async fn run(
    conninfo: ConnInfo,
    mut standby: Option<bool>,
    mut commits: mpsc::UnboundedReceiver<Waiting>,
) {
    let mut waiting: VecDeque<Waiting> = VecDeque::new();
    let mut connection: Option<Connected> = None;
    let mut open = true;
    while open || !waiting.is_empty() {
        if waiting.is_empty() {
            match commits.recv().await {
                Some(commit) => waiting.push_back(commit),
                None => break,
            }
        }
        tokio::time::sleep(EVERY).await;
        loop {
            match commits.try_recv() {
                Ok(commit) => waiting.push_back(commit),
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    open = false;
                    break;
                }
            }
        }
        if connection.as_ref().is_none_or(|c| c.client.is_closed()) {
            connection = connect_control(&conninfo).await.ok();
        }
        let Some(connected) = &connection else {
            tokio::time::sleep(EVERY * 10).await;
            continue;
        };
        match flushed(connected).await {
            Ok(flushed) => {
                let standby = *standby.get_or_insert_with(|| see_standby(&flushed));
                waiting = pass(waiting, &flushed, standby);
            }
            Err(_) => connection = None,
        }
    }
}

/// Lets pass what is on disk; what a restart has put in doubt is a failure, and may be sent again.
fn pass(waiting: VecDeque<Waiting>, flushed: &Flushed, standby: bool) -> VecDeque<Waiting> {
    let mut rest = VecDeque::new();
    for commit in waiting {
        let local = !commit.asynchronous || commit.lsn <= flushed.local;
        let there = !standby || flushed.standby.is_some_and(|lsn| commit.lsn <= lsn);
        if commit.server_start != flushed.server_start {
            let lost = Error::new(Code::ConnectionLost, "the server restarted before the rows were on disk");
            commit.answers.into_iter().for_each(|(share, _)| share.fail(&lost));
        } else if local && there {
            commit.answers.into_iter().for_each(|(share, rows)| share.settle(rows));
        } else {
            rest.push_back(commit);
        }
    }
    rest
}

/// What is on disk.
struct Flushed {
    server_start: String,
    local: u64,
    /// On that of the standby that is farthest, if one can be seen.
    standby: Option<u64>,
}

/// Whether there is a standby to wait for; says what may be lost if not.
fn see_standby(flushed: &Flushed) -> bool {
    if flushed.standby.is_none() {
        tracing::warn!(
            "several servers are named, and no standby can be seen: after a failover, rows that the standby had not \
             received are lost, acknowledged or not (grant pg_read_all_stats, or say server.acknowledge)"
        );
    } else {
        tracing::info!("rows are acknowledged when a standby has them on disk, too");
    }
    flushed.standby.is_some()
}

async fn flushed(connected: &Connected) -> Result<Flushed, tokio_postgres::Error> {
    let row = connected.client.query_one(FLUSHED, &[]).await?;
    let standby = row.get::<_, Option<i64>>(2).map(lsn);
    Ok(Flushed { server_start: row.get(0), local: lsn(row.get(1)), standby })
}

const FLUSHED: &str = "SELECT pg_catalog.pg_postmaster_start_time()::text,
                              (pg_catalog.pg_current_wal_flush_lsn() - '0/0')::bigint,
                              (SELECT (max(flush_lsn) - '0/0')::bigint FROM pg_catalog.pg_stat_replication
                                WHERE state = 'streaming')";

/// Where the WAL of a session's commits ends at most, and the life of the server: to be asked after COMMIT.
pub(crate) const INSERTED: &str = "SELECT pg_catalog.pg_postmaster_start_time()::text,
                                          (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint";

/// A position of the WAL as a number.
pub(crate) fn lsn(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_pass_when_their_wal_is_flushed() {
        let commit = |lsn, start: &str| {
            let (share, told) = Share::new();
            (Waiting { lsn, asynchronous: true, server_start: start.into(), answers: vec![(share, 1)] }, told)
        };
        let (first, mut told_first) = commit(10, "a");
        let (second, mut told_second) = commit(11, "a");
        let (old, mut told_old) = commit(5, "before");
        let flushed = |local, standby| Flushed { server_start: "a".into(), local, standby };
        let waiting = pass([first, second, old].into(), &flushed(20, None), true);
        assert_eq!(waiting.len(), 2, "no standby has them");
        let waiting = pass(waiting, &flushed(20, Some(9)), true);
        assert_eq!(waiting.len(), 2, "the standby has less");
        let rest = pass(waiting, &flushed(10, None), false);
        assert_eq!(rest.len(), 1);
        assert!(told_first.try_recv().expect("told").failed.is_none());
        assert!(told_second.try_recv().is_err(), "its WAL is not flushed");
        assert!(told_old.try_recv().expect("told").failed.is_some(), "a restart came between");
    }
}
