//! The sessions of one client, and how a statement goes through them.

use crate::c4::cluster::APPLICATION;
use crate::c4::rows::{Op, insert};
use crate::c4::send::Work;
use crate::c4::{Form, Hold, Job, To};
use futures_util::future::try_join_all;
use inrush_cluster::Topology;
use inrush_core::{Code, Error, Result};
use inrush_route::HashKind;
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage, Statement};

/// The lock that moves and splits wait for, in ShareLock (lockdefs.h), as Citus takes it for a statement of its own.
const LOCK: &str = "PREPARE inrush_lock(bigint) AS SELECT pg_catalog.lock_shard_metadata(5, ARRAY[$1])";
/// An error if the shard is not on this node, which the message shows as the number that it is not. A statement of its own: its
/// snapshot is taken behind the lock.
const HERE: &str = "PREPARE inrush_here(bigint) AS \
    SELECT (CASE pg_catalog.count(*) WHEN 0 THEN 'the shard is not here any more' ELSE '1' END)::int \
    FROM pg_catalog.pg_dist_placement \
    WHERE shardid = $1 AND groupid = (SELECT groupid FROM pg_catalog.pg_dist_local_group)";

/// The sessions of a client that sends statements one at a time.
#[derive(Debug)]
pub struct Sessions {
    /// One, or one for each node of the topology.
    sessions: Vec<Connected>,
    /// One, or one for each place.
    statements: Vec<Statement>,
}

/// Opens a session that reads what others have committed, whatever the role's default is.
pub async fn open(info: &ConnInfo) -> Result<Connected> {
    let connected = connect(info, APPLICATION).await?;
    let set = "SET default_transaction_isolation = 'read committed'";
    connected.client.batch_execute(set).await.map_err(server_error)?;
    Ok(connected)
}

/// The place of a key.
pub fn place_of(topology: &Topology, id: i32) -> Result<usize> {
    let hash = topology.map.hash(&[(HashKind::Int4, Some(&id.to_be_bytes()))]);
    hash.and_then(|hash| topology.map.at_hash(hash))
        .ok_or_else(|| Error::new(Code::Internal, format!("key {id} has no shard")))
}

/// Prepares INSERTs into the shards of a node, for EXECUTE.
pub async fn prepare_inserts(client: &Client, topology: &Topology, node: usize) -> Result<()> {
    let of_node = topology.places.iter().enumerate().filter(|(_, place)| place.node == node);
    let statements: Vec<String> = of_node
        .map(|(at, place)| {
            format!("PREPARE i{at}(int, int, bpchar, bpchar) AS {}", insert(&place.qualified()))
        })
        .collect();
    client.batch_execute(&statements.join(";")).await.map_err(server_error)
}

impl Sessions {
    /// Connects and prepares.
    pub async fn open(work: &Work, thread: u32) -> Result<Sessions> {
        let mut sessions = Vec::new();
        for info in work.endpoints(thread) {
            sessions.push(open(info).await?);
        }
        let mut this = Sessions { sessions, statements: Vec::new() };
        this.prepare(work).await?;
        Ok(this)
    }

    async fn prepare(&mut self, work: &Work) -> Result<()> {
        const TYPES: [Type; 4] = [Type::INT4, Type::INT4, Type::BPCHAR, Type::BPCHAR];
        let contender = &work.contender;
        if contender.form == Some(Form::Function) {
            let sql = format!("SELECT inrush.distribute_dml('{}'::regclass, $1::int, $2::text)", work.table);
            self.statements.push(self.sessions[0].client.prepare(&sql).await.map_err(server_error)?);
            return Ok(());
        }
        if contender.to != Some(To::Shard) {
            if contender.together {
                let sql =
                    format!("PREPARE inrush_insert(int, int, bpchar, bpchar) AS {}", insert(&work.table));
                return self.say(&sql).await;
            }
            if contender.form == Some(Form::Prepared) && work.job == Job::Insert {
                let sql = insert(&work.table);
                let statement = self.sessions[0].client.prepare_typed(&sql, &TYPES).await;
                self.statements.push(statement.map_err(server_error)?);
            }
            return Ok(());
        }
        match contender.guard {
            Hold::None if contender.form == Some(Form::Prepared) && work.job == Job::Insert => {
                for place in &work.topology.places {
                    let client = &self.sessions[place.node].client;
                    let statement = client.prepare_typed(&insert(&place.qualified()), &TYPES).await;
                    self.statements.push(statement.map_err(server_error)?);
                }
            }
            Hold::None | Hold::Coordinator => {}
            Hold::Row | Hold::Function => {
                for (node, session) in self.sessions.iter().enumerate() {
                    let before = match contender.guard {
                        Hold::Row => format!("{LOCK};{HERE}"),
                        _ => format!(
                            "PREPARE inrush_guard(bigint) AS SELECT inrush.dml_guard('{}'::regclass, $1)",
                            work.table
                        ),
                    };
                    session.client.batch_execute(&before).await.map_err(server_error)?;
                    if work.job == Job::Insert {
                        prepare_inserts(&session.client, &work.topology, node).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins or ends a transaction in the first session.
    pub async fn say(&self, what: &str) -> Result<()> {
        self.sessions[0].client.batch_execute(what).await.map_err(server_error)
    }

    /// A transaction in one message.
    pub async fn together(&self, work: &Work, ops: &[Op]) -> Result<()> {
        let statements: Vec<String> = ops.iter().map(|op| op.execute("inrush_insert", &work.table)).collect();
        self.say(&format!("BEGIN;{};COMMIT", statements.join(";"))).await
    }

    /// One statement: it must affect one row.
    pub async fn one(&self, work: &Work, op: &Op) -> Result<()> {
        let rows = match (work.contender.to, work.contender.form) {
            (_, Some(Form::Function)) => {
                let text = op.text("%s");
                let row = self.sessions[0].client.query_one(&self.statements[0], &[&op.id, &text]).await;
                u64::try_from(row.map_err(server_error)?.get::<_, i64>(0)).unwrap_or(0)
            }
            (Some(To::Shard), form) => self.direct(work, form, op).await?,
            (_, form) => self.statement(0, 0, form, op, &work.table).await?,
        };
        if rows == 1 {
            return Ok(());
        }
        Err(Error::new(Code::Internal, format!("the statement for key {} affected {rows} rows", op.id)))
    }

    /// To the shard.
    async fn direct(&self, work: &Work, form: Option<Form>, op: &Op) -> Result<u64> {
        let at = place_of(&work.topology, op.id)?;
        let place = &work.topology.places[at];
        let guard = match work.contender.guard {
            Hold::None | Hold::Coordinator => {
                let name = if self.statements.is_empty() { place.qualified() } else { String::new() };
                return self.statement(place.node, at, form, op, &name).await;
            }
            Hold::Row => format!("EXECUTE inrush_lock({0});EXECUTE inrush_here({0});", place.id),
            Hold::Function => format!("EXECUTE inrush_guard({});", place.id),
        };
        // Several statements in one message are one transaction: it commits at the end, or nothing of it has happened.
        let text = guard + &op.execute(&format!("i{at}"), &place.qualified());
        simple(&self.sessions[place.node].client, &text).await
    }

    async fn statement(
        &self,
        session: usize,
        at: usize,
        form: Option<Form>,
        op: &Op,
        table: &str,
    ) -> Result<u64> {
        let client = &self.sessions[session].client;
        match (form, op.parameters()) {
            (Some(Form::Prepared), Some((k, c, pad))) => {
                let parameters: [&(dyn ToSql + Sync); 4] = [&op.id, &k, &c, &pad];
                client.execute(&self.statements[at], &parameters).await.map_err(server_error)
            }
            _ => simple(client, &op.text(table)).await,
        }
    }
}

/// Sends a text, and gives the rows that its last statement affected.
pub async fn simple(client: &Client, text: &str) -> Result<u64> {
    let messages = client.simple_query(text).await.map_err(server_error)?;
    let last = messages.iter().rev().find_map(|message| match message {
        SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
        _ => None,
    });
    Ok(last.unwrap_or(0))
}

/// The same on several sessions at once.
pub async fn simple_on_each(texts: Vec<(&Client, String)>) -> Result<()> {
    try_join_all(texts.into_iter().map(|(client, text)| async move { simple(client, &text).await })).await?;
    Ok(())
}
