//! The locks on the coordinator that keep the rows of a table where they are.
//!
//! They are those of a plain `COPY`: on Citus a COPY without a row, which locks the table (RowExclusiveLock) and the metadata
//! of all its shards (ShareLock), and needs no more than INSERT. Moves, splits, rewrites (alter_distributed_table,
//! undistribute_table) and changes of the table wait for it, and it for them. Elsewhere LOCK TABLE, which takes the
//! partitions too: nobody detaches one, or makes it a table of another server.
//!
//! PREPARE TRANSACTION keeps locks without a session, over a crash of the server. A prepared guard is what makes it safe to
//! tell the nodes one after another, whoever dies. Citus refuses to prepare what its own COPY was part of, unless in a
//! session that it takes for one of its own, by the name of the application
//! (transaction_management.c, EnsurePrepareTransactionIsAllowed; backend_data.c, DetermineCitusBackendType): the
//! guard takes that name for this one statement. There is nothing of Citus in the transaction but locks.

use crate::find::{Found, find_again};
use crate::node::set;
use crate::raw::Raw;
use crate::scatter::{Fill, fills};
use crate::topology::Kind;
use futures_util::SinkExt;
use inrush_core::{Code, Column, Error, Result, Table, quote_ident, quote_literal};
use inrush_sink::connect::{Backend, Connected, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::{Failure, server_error};
use std::pin::pin;
use std::time::{Duration, Instant};

/// How long one attempt waits for a lock.
const WAIT: Duration = Duration::from_secs(2);

/// How often in a row shards may go while a guard waits for them.
const SPLITS: u32 = 20;

/// A table that is to be guarded.
#[derive(Debug, Clone, Copy)]
pub struct Guarded<'a> {
    /// The table.
    pub table: &'a Table,
    /// A column of it that the role may fill.
    pub column: &'a str,
    /// What spreads it.
    pub kind: Kind,
}

/// A session of the coordinator that holds the locks.
#[derive(Debug)]
pub struct Guard {
    connected: Connected,
    backend: Backend,
    /// Once it has been asked for: the name of one of Citus' own sessions, with this one's number.
    internal: Option<String>,
    /// Whether there is a table of Citus among those that are guarded.
    citus: bool,
    /// Whether the server takes prepared transactions at all.
    prepares: bool,
}

impl Guard {
    /// Connects.
    pub async fn connect(coordinator: &ConnInfo, application: &str) -> Result<Guard> {
        let connected = connect(coordinator, application).await?;
        let client = &connected.client;
        let backend = Backend::own(client).await?;
        set(client, application, &[]).await?;
        let most = "SELECT pg_catalog.current_setting('max_prepared_transactions') <> '0'";
        let prepares = client.query_one(most, &[]).await.map_err(server_error)?.get(0);
        Ok(Guard { backend, prepares, connected, internal: None, citus: false })
    }

    /// Its server process.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Whether it outlives its session once it is prepared. If not, a crash of the coordinator between the ledger's
    /// commit and the nodes' lets go of it.
    pub fn prepares(&self) -> bool {
        self.prepares
    }

    /// Takes the locks of all these tables, and reads behind them where the rows of each belong. While somebody else
    /// holds one of them, `waits` is asked from time to time, with how long it has been, whether to go on waiting.
    ///
    /// Whoever guards several tables names them in the same order as others do: nobody then waits for each other.
    pub async fn take(
        &mut self,
        tables: &[Guarded<'_>],
        waits: &(dyn Fn(Duration) -> bool + Sync),
    ) -> Result<Vec<Found>, Failure> {
        self.citus = tables.iter().any(|guarded| guarded.kind == Kind::Citus);
        if self.citus && self.internal.is_none() {
            let number = "SELECT 'citus_internal gpid=' || pg_catalog.citus_backend_gpid()::text";
            let row = self.connected.client.query_one(number, &[]).await;
            self.internal = Some(row.map_err(|e| self.connected.failure(&e))?.get(0));
        }
        let started = Instant::now();
        let mut split = 0;
        loop {
            match self.lock(tables).await {
                Ok(()) => break,
                Err(error) if error.code().is_some_and(|state| state.code() == "55P03") => {
                    self.roll_back().await?;
                    if !waits(started.elapsed()) {
                        return Err(Failure::Fatal(Error::new(Code::Interrupted, "it was stopped")));
                    }
                }
                // While Citus waited for the shards that it had read of, they were split (metadata_cache.c,
                // LookupShardIdCacheEntry); it reads anew.
                Err(error)
                    if self.citus
                        && split < SPLITS
                        && error.code().is_some_and(|state| state.code() == "XX000") =>
                {
                    split += 1;
                    self.roll_back().await?;
                }
                Err(error) => return Err(self.connected.failure(&error)),
            }
        }
        let mut found = Vec::new();
        for guarded in tables {
            // A statement of its own, begun behind the locks.
            let read = find_again(&self.connected.client, guarded.table, guarded.kind).await;
            found.push(read.map_err(|error| self.failure(error))?);
        }
        Ok(found)
    }

    async fn lock(&self, tables: &[Guarded<'_>]) -> Result<(), tokio_postgres::Error> {
        let client = &self.connected.client;
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path = pg_catalog, pg_temp;
             SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = {}",
            WAIT.as_millis()
        );
        client.batch_execute(&begin).await?;
        for Guarded { table, column, kind } in tables {
            let table = table.qualified();
            match kind {
                Kind::Citus => {
                    let copy = format!("COPY {table} ({}) FROM STDIN", quote_ident(column));
                    let mut sink = pin!(client.copy_in::<_, bytes::Bytes>(&copy).await?);
                    sink.close().await?;
                }
                Kind::Partitions => {
                    client.batch_execute(&format!("LOCK TABLE {table} IN ROW EXCLUSIVE MODE")).await?;
                }
            }
        }
        Ok(())
    }

    /// Makes the locks outlive the session. An error says that they were not held all along, or may not be held now.
    pub async fn prepare(&mut self, gid: &str) -> Result<(), Failure> {
        let name =
            self.internal.as_ref().filter(|_| self.citus).map_or(String::new(), |name| {
                format!("SET LOCAL application_name = {}; ", quote_literal(name))
            });
        self.execute(&format!("{name}PREPARE TRANSACTION {}", quote_literal(gid))).await
    }

    /// Whether the locks are held, of a guard that is not prepared.
    pub async fn is_held(&mut self) -> Result<(), Failure> {
        // In the same session, and not after an error: so in the same transaction.
        self.execute("SAVEPOINT inrush_held; RELEASE inrush_held").await
    }

    /// Lets go of the locks. If it was prepared, by its name.
    pub async fn end(&mut self, prepared: Option<&str>) -> Result<(), Failure> {
        match prepared {
            Some(gid) => self.execute(&format!("COMMIT PREPARED {}", quote_literal(gid))).await,
            None => self.execute("COMMIT").await,
        }
    }

    /// Lets go of the locks, whatever has become of the transaction.
    pub async fn roll_back(&mut self) -> Result<(), Failure> {
        self.execute("ROLLBACK").await
    }

    /// What the server makes of a text, as the type's send function gives it. The inner error is about the text:
    /// SQLSTATE and message.
    pub async fn value(
        &mut self,
        cast: &str,
        text: &str,
    ) -> Result<std::result::Result<Option<Vec<u8>>, (String, String)>, Failure> {
        let client = &self.connected.client;
        self.execute("SAVEPOINT inrush_value").await?;
        match client.query_one(&format!("SELECT ($1::text)::{cast}"), &[&text]).await {
            Ok(row) => {
                self.execute("RELEASE inrush_value").await?;
                Ok(Ok(row.get::<_, Option<Raw>>(0).map(|raw| raw.0)))
            }
            Err(error) => {
                let Some(said) = error.as_db_error() else { return Err(self.connected.failure(&error)) };
                let said = (said.code().code().to_owned(), said.message().to_owned());
                self.execute("ROLLBACK TO inrush_value; RELEASE inrush_value").await?;
                Ok(Err(said))
            }
        }
    }

    /// The columns that the coordinator fills in rows that have values for `sent`. In this session: whoever waits for the
    /// table waits for the guard, and another session would wait behind him.
    pub async fn fills(&self, table: &Table, sent: &[Column], kind: Kind) -> Result<Vec<Fill>, Failure> {
        let asked = fills(&self.connected.client, table, sent, kind).await;
        asked.map_err(|error| self.failure(error))
    }

    /// Whether the table of this name is still the one that was looked at.
    pub async fn is_same(&self, table: &Table) -> Result<bool, Failure> {
        let sql = "SELECT pg_catalog.to_regclass($1)::pg_catalog.oid IS NOT DISTINCT FROM $2";
        let asked = self.connected.client.query_one(sql, &[&table.qualified(), &table.oid]).await;
        Ok(asked.map_err(|e| self.connected.failure(&e))?.get(0))
    }

    fn failure(&self, error: Error) -> Failure {
        match self.connected.ended() {
            Some(ended) => self.connected.failure(ended),
            None => Failure::Fatal(error),
        }
    }

    /// Values of `columns` defaults for some rows, by a query that gives them first as they are and then as text: each row
    /// as COPY binary has them, and as COPY text has them behind other columns.
    pub async fn defaults(
        &mut self,
        sql: &str,
        rows: i64,
        columns: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Failure> {
        // Functions of the user's find what they find in a session of his.
        self.execute("SET LOCAL search_path TO DEFAULT").await?;
        let given = self.connected.client.query(sql, &[&rows]).await;
        let given = given.map_err(|error| self.connected.failure(&error))?;
        Ok(given
            .iter()
            .map(|row| {
                let (mut binary, mut text) = (Vec::new(), Vec::new());
                for column in 0..columns {
                    match row.get::<_, Option<Raw>>(column) {
                        None => binary.extend_from_slice(&(-1_i32).to_be_bytes()),
                        Some(Raw(value)) => {
                            let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
                            binary.extend_from_slice(&length.to_be_bytes());
                            binary.extend_from_slice(&value);
                        }
                    }
                    text.push(b'\t');
                    match row.get::<_, Option<&str>>(columns + column) {
                        None => text.extend_from_slice(b"\\N"),
                        Some(value) => escape(value, &mut text),
                    }
                }
                (binary, text)
            })
            .collect())
    }

    async fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.connected.client.batch_execute(sql).await.map_err(|e| self.connected.failure(&e))
    }
}

/// As COPY text has a value (copyfromparse.c, CopyReadAttributesText).
fn escape(value: &str, out: &mut Vec<u8>) {
    for byte in value.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => out.push(byte),
        }
    }
}
