//! Batches of rows that go to their shards and are stored on all nodes or on none, as `inrush load` has it.
//!
//! The guard takes its locks on the coordinator, and where the rows belong is read behind them. Every node has its rows in one
//! transaction, and prepares it. The guard is prepared, too: so it was held all along. The record of the batch commits on the
//! coordinator: this decides. Every node commits, and the guard ends last.
//!
//! What a crash leaves prepared is not settled here: whoever reads the records can do so. The bench rolls it back.

use crate::c4::cluster::{APPLICATION, PREPARED, SCHEMA};
use crate::c4::send::Work;
use crate::c4::sessions::{open, place_of, prepare_inserts, simple_on_each};
use crate::random::Random;
use inrush_cluster::{Found, Guard, Guarded, Kind};
use inrush_core::{Code, Error, Result};
use inrush_sink::connect::Connected;
use inrush_sink::failure::{Failure, server_error};
use tokio_postgres::Statement;
use tokio_postgres::types::Type;

/// Where the record of a batch is: a local table of the coordinator.
pub fn records() -> String {
    format!("{SCHEMA}.batches")
}

/// The sessions of a client that sends batches.
#[derive(Debug)]
pub struct Batches {
    guard: Guard,
    recorder: Connected,
    record: Statement,
    /// In the order of the topology's nodes.
    nodes: Vec<Connected>,
    thread: u32,
    number: u64,
}

impl Batches {
    /// Connects and prepares.
    pub async fn open(work: &Work, thread: u32) -> Result<Batches> {
        let guard = Guard::connect(&work.coordinator, APPLICATION).await?;
        let recorder = open(&work.coordinator).await?;
        let sql = format!("INSERT INTO {} VALUES ($1)", records());
        let record = recorder.client.prepare_typed(&sql, &[Type::TEXT]).await.map_err(server_error)?;
        let mut nodes = Vec::new();
        for (number, info) in work.endpoints(thread).into_iter().enumerate() {
            let session = open(info).await?;
            prepare_inserts(&session.client, &work.topology, number).await?;
            nodes.push(session);
        }
        Ok(Batches { guard, recorder, record, nodes, thread, number: 0 })
    }

    /// Sends one.
    pub async fn one(&mut self, work: &Work, random: &mut Random) -> Result<()> {
        self.number += 1;
        let gid = format!("{PREPARED}{}_{}_{}", std::process::id(), self.thread, self.number);
        let guard_gid = format!("{gid}_guard");
        let table = Guarded { table: &work.spread, column: "id", kind: Kind::Citus };
        let found = self.guard.take(&[table], &|_| !work.stopped()).await.map_err(Failure::into_error)?;
        // Statements are prepared for the shards as they were.
        if !matches!(&found[..], [Found::Direct(topology)] if **topology == work.topology) {
            return Err(Error::new(Code::Internal, "shards were moved meanwhile"));
        }
        let mut texts = vec![String::new(); self.nodes.len()];
        for _ in 0..work.contender.transaction {
            let op = work.next(random);
            let at = place_of(&work.topology, op.id)?;
            let place = &work.topology.places[at];
            let text = &mut texts[place.node];
            text.push_str(if text.is_empty() { "BEGIN;" } else { ";" });
            text.push_str(&op.execute(&format!("i{at}"), &place.qualified()));
        }
        let mut prepare = Vec::new();
        let mut commit = Vec::new();
        for (number, (session, text)) in self.nodes.iter().zip(texts).enumerate() {
            if !text.is_empty() {
                prepare.push((&session.client, format!("{text};PREPARE TRANSACTION '{gid}_n{number}'")));
                commit.push((&session.client, format!("COMMIT PREPARED '{gid}_n{number}'")));
            }
        }
        simple_on_each(prepare).await?;
        self.guard.prepare(&guard_gid).await.map_err(Failure::into_error)?;
        self.recorder.client.execute(&self.record, &[&gid]).await.map_err(server_error)?;
        simple_on_each(commit).await?;
        self.guard.end(Some(&guard_gid)).await.map_err(Failure::into_error)
    }
}
