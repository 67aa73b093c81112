//! Taking the pages of relations out of shared buffers.
//!
//! PostgreSQL 17 and newer have functions for it, in the extension pg_buffercache and for superusers. Without
//! them all that helps is to need the buffers for something else: a scratch table is read until the clock
//! hand has gone round often enough that no page can have stayed. That takes everybody's pages, not only
//! those of the relations.

use crate::explain::plan::Explained;
use crate::explain::session::{Session, get};
use inrush_core::{Code, Error, Result, quote_ident};
use serde_json::Value;
use std::time::Duration;
use tokio_postgres::types::Type;

/// The schema of the scratch tables. Gone when the run is over; after a crash the next run removes it.
pub(in crate::explain) const SCRATCH: &str = "inrush_explain_scratch";

/// How one knows that it is ours: nothing else of that name is ever dropped.
const MARK: &str = "scratch tables of inrush explain, removed by its next run";

/// Key of the advisory lock that whoever uses the schema holds: "inrushxp".
const LOCK: i64 = 0x696e_7275_7368_7870;

/// shared_buffers beyond which nothing is pushed out: each cold run would read several times as much.
pub(in crate::explain) const MOST_PUSHED: u64 = 1 << 30;

/// Scratch tables. Each is smaller than a quarter of shared_buffers, or a scan would get a small ring of
/// buffers of its own (heapam.c, initscan); together they are larger than shared_buffers.
const PIECES: u64 = 7;

/// How often the hand has to go round: a buffer's usage count is at most 5 (BM_MAX_USAGE_COUNT), each pass
/// takes one, and a pass more takes the buffer; before that come those on the free list.
const ROUNDS: u64 = 7;

/// How pages are taken out of shared buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::explain) enum Way {
    /// pg_buffercache_evict_relation() of PostgreSQL 18.
    Relations(Extension),
    /// pg_buffercache_evict() of PostgreSQL 17, page by page.
    Pages(Extension),
    /// By reading so many buffers' worth of something else.
    Push {
        /// Buffers of the server.
        buffers: u64,
    },
    /// Not at all.
    None,
}

/// Where the functions of pg_buffercache are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::explain) enum Extension {
    /// Installed in this schema.
    In(String),
    /// Not installed, but could be: then it is, in a transaction that is rolled back. What it evicts stays
    /// evicted.
    Borrowed,
}

/// The relations whose pages are to go.
#[derive(Debug, Clone, Default)]
pub(in crate::explain) struct Relations {
    pub(in crate::explain) oids: Vec<u32>,
    pub(in crate::explain) filenodes: Vec<u32>,
}

/// Where pg_buffercache is, if this role can use it for looking: the view needs pg_monitor, borrowing a
/// superuser.
pub(in crate::explain) async fn extension(session: &Session, superuser: bool) -> Result<Option<Extension>> {
    let installed = session
        .rows(
            "SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_extension e \
               JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace \
              WHERE e.extname OPERATOR(pg_catalog.=) 'pg_buffercache' \
                AND pg_catalog.has_table_privilege( \
                      pg_catalog.format('%I.pg_buffercache', n.nspname), 'SELECT') \
                AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')",
            &[],
        )
        .await?;
    if let Some(row) = installed.first() {
        return Ok(Some(Extension::In(get(row, 0)?)));
    }
    let row = session
        .row(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_available_extensions a \
                             WHERE a.name OPERATOR(pg_catalog.=) 'pg_buffercache' \
                               AND a.installed_version IS NULL) \
                    AND NOT pg_catalog.pg_is_in_recovery()",
            &[],
        )
        .await?;
    Ok((superuser && get::<bool>(&row, 0)?).then_some(Extension::Borrowed))
}

impl Extension {
    /// Begins a transaction in which its functions are there, and says in which schema.
    async fn begin(&self, session: &Session) -> Result<String> {
        match self {
            Extension::In(schema) => {
                session.run("BEGIN").await?;
                Ok(quote_ident(schema))
            }
            Extension::Borrowed => {
                session
                    .run(
                        "BEGIN READ WRITE; SET LOCAL client_min_messages = warning; \
                         CREATE SCHEMA inrush_explain_borrowed; \
                         CREATE EXTENSION pg_buffercache SCHEMA inrush_explain_borrowed",
                    )
                    .await?;
                Ok("inrush_explain_borrowed".to_owned())
            }
        }
    }

    /// Runs a query with the functions there. `{}` in it stands for their schema.
    async fn ask(&self, session: &Session, sql: &str, relations: &Relations) -> Result<i64> {
        let answer = async {
            let schema = self.begin(session).await?;
            let sql = sql.replace("{}", &schema);
            let row = session
                .row(&sql, &[(&relations.oids, Type::OID_ARRAY), (&relations.filenodes, Type::OID_ARRAY)])
                .await?;
            get(&row, 0)
        }
        .await;
        // What was evicted stays so.
        let back = session.client().batch_execute("ROLLBACK").await;
        let answer = answer?;
        back.map_err(inrush_sink::failure::server_error)?;
        Ok(answer)
    }

    /// Pages of relations that are in shared buffers.
    pub(in crate::explain) async fn left(&self, session: &Session, relations: &Relations) -> Result<u64> {
        let sql = "SELECT pg_catalog.count(*) FROM {}.pg_buffercache b \
                    WHERE b.relfilenode OPERATOR(pg_catalog.=) ANY ($2) \
                      AND b.reldatabase OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d \
                            WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) \
                      AND pg_catalog.cardinality($1::pg_catalog.oid[]) OPERATOR(pg_catalog.>=) 0";
        Ok(self.ask(session, sql, relations).await?.unsigned_abs())
    }
}

impl Way {
    /// The best way that this role has.
    pub(in crate::explain) async fn find(
        session: &Session,
        version_num: u32,
        superuser: bool,
        extension: Option<&Extension>,
        buffers: Option<(u64, u64)>,
    ) -> Result<Way> {
        if let Some(extension) = extension.filter(|_| superuser && version_num >= 170_000) {
            // An extension that was never updated has the functions of the version it comes from.
            let has = |function: &'static str| async move {
                match extension {
                    Extension::Borrowed => Ok(function != RELATION || version_num >= 180_000),
                    Extension::In(schema) => {
                        let name = format!("{}.{function}", quote_ident(schema));
                        let sql = "SELECT pg_catalog.to_regprocedure($1) IS NOT NULL";
                        get::<bool>(&session.row(sql, &[(&name, Type::TEXT)]).await?, 0)
                    }
                }
            };
            const RELATION: &str = "pg_buffercache_evict_relation(pg_catalog.regclass)";
            if has(RELATION).await? {
                return Ok(Way::Relations(extension.clone()));
            }
            // With the extension of 17, that of 18 gives up on calling it.
            if version_num < 180_000 && has("pg_buffercache_evict(pg_catalog.int4)").await? {
                return Ok(Way::Pages(extension.clone()));
            }
        }
        let row = session
            .row(
                "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') \
                    AND NOT pg_catalog.pg_is_in_recovery()",
                &[],
            )
            .await?;
        match buffers {
            Some((bytes, page)) if bytes <= MOST_PUSHED && get::<bool>(&row, 0)? => {
                Ok(Way::Push { buffers: bytes / page.max(1) })
            }
            _ => Ok(Way::None),
        }
    }

    /// Bytes of the disk that it needs meanwhile.
    pub(in crate::explain) fn scratch_bytes(&self, page_bytes: u64) -> u64 {
        match self {
            Way::Push { buffers } => PIECES * piece(*buffers) * page_bytes,
            Way::Relations(_) | Way::Pages(_) | Way::None => 0,
        }
    }

    /// Bytes that it reads through shared buffers before each cold run.
    pub(in crate::explain) fn pushed_bytes(&self, page_bytes: u64) -> u64 {
        match self {
            Way::Push { buffers } => ROUNDS * buffers * page_bytes,
            Way::Relations(_) | Way::Pages(_) | Way::None => 0,
        }
    }

    /// Makes what it needs. The session has the [`lock`].
    ///
    /// # Errors
    /// `server`, also where the scratch schema is somebody else's.
    pub(in crate::explain) async fn prepare(&self, session: &Session) -> Result<()> {
        let Way::Push { buffers } = self else { return Ok(()) };
        let found = clear(session, true).await?;
        if found == Scratch::Foreign {
            return Err(foreign());
        }
        session
            .run(&format!(
                "BEGIN READ WRITE; CREATE SCHEMA {SCRATCH}; COMMENT ON SCHEMA {SCRATCH} IS '{MARK}'; COMMIT"
            ))
            .await?;
        let rows = piece(*buffers);
        for n in 0..PIECES {
            // A row of more than a tenth of a page, the share of it that may be filled: a page each. Not
            // logged, and nobody vacuums it.
            session
                .run(&format!(
                    "BEGIN READ WRITE; \
                     CREATE UNLOGGED TABLE {SCRATCH}.piece_{n} (filler pg_catalog.bpchar) \
                       WITH (fillfactor = 10, autovacuum_enabled = off) TABLESPACE pg_default; \
                     ALTER TABLE {SCRATCH}.piece_{n} ALTER filler SET STORAGE PLAIN; \
                     INSERT INTO {SCRATCH}.piece_{n} SELECT pg_catalog.repeat('x', 820) \
                       FROM pg_catalog.generate_series(1, {rows}); \
                     COMMIT"
                ))
                .await?;
        }
        Ok(())
    }

    /// Takes the pages of relations out of shared buffers.
    ///
    /// # Errors
    /// `server`.
    pub(in crate::explain) async fn evict(
        &self,
        session: &Session,
        relations: &Relations,
        look: Option<&Extension>,
    ) -> Result<()> {
        match self {
            Way::Relations(extension) => {
                let sql = "SELECT pg_catalog.sum(e.buffers_evicted)::pg_catalog.int8 \
                             FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) u(r, f), \
                                  {}.pg_buffercache_evict_relation(u.r::pg_catalog.regclass) e";
                extension.ask(session, sql, relations).await.map(drop)
            }
            Way::Pages(extension) => {
                let sql = "SELECT pg_catalog.count({}.pg_buffercache_evict(b.bufferid)) \
                             FROM {}.pg_buffercache b \
                            WHERE b.relfilenode OPERATOR(pg_catalog.=) ANY ($2) \
                              AND b.reldatabase OPERATOR(pg_catalog.=) (SELECT d.oid FROM \
                              pg_catalog.pg_database d \
                                    WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) \
                              AND pg_catalog.cardinality($1::pg_catalog.oid[]) OPERATOR(pg_catalog.>=) 0";
                extension.ask(session, sql, relations).await.map(drop)
            }
            Way::Push { buffers } => push(session, *buffers, relations, look).await,
            Way::None => Ok(()),
        }
    }
}

/// Pages of a scratch table.
fn piece(buffers: u64) -> u64 {
    // A little less than a quarter, and 7 of them are 1.6 times shared_buffers.
    (buffers * 23 / 100).max(1)
}

/// Reads the scratch tables until each buffer must have been taken, or none is left of the relations.
async fn push(
    session: &Session,
    buffers: u64,
    relations: &Relations,
    look: Option<&Extension>,
) -> Result<()> {
    let mut taken = 0;
    // Every page that has to be read takes a buffer, and moves the hand on by one at least (freelist.c,
    // StrategyGetBuffer).
    for _ in 0..(4 * ROUNDS) {
        for n in 0..PIECES {
            taken += read_piece(session, n).await?;
        }
        if taken >= ROUNDS * buffers {
            return Ok(());
        }
        if let Some(look) = look
            && look.left(session, relations).await? == 0
        {
            return Ok(());
        }
    }
    Err(Error::new(Code::Server, "the pages of the table could not be pushed out of shared buffers"))
}

/// Reads a scratch table; how many pages were not in shared buffers.
async fn read_piece(session: &Session, n: u64) -> Result<u64> {
    session.run("BEGIN READ ONLY; SET LOCAL max_parallel_workers_per_gather = 0").await?;
    let sql = format!(
        "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT pg_catalog.count(*) FROM \
         {SCRATCH}.piece_{n}"
    );
    let row = session.row(&sql, &[]).await;
    let back = session.client().batch_execute("ROLLBACK").await;
    let explained = Explained::read(get::<Value>(&row?, 0)?, Duration::ZERO)?;
    back.map_err(inrush_sink::failure::server_error)?;
    Ok(explained.top.shared().1)
}

/// The files of the scratch tables under the data directory.
pub(in crate::explain) async fn scratch_files(session: &Session) -> Result<Vec<String>> {
    let sql = "SELECT pg_catalog.pg_relation_filepath(c.oid::pg_catalog.regclass) FROM pg_catalog.pg_class c \
                 JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
                WHERE n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) $1 \
                  AND c.relkind OPERATOR(pg_catalog.=) 'r'";
    session.rows(sql, &[(&SCRATCH, Type::TEXT)]).await?.iter().map(|row| get(row, 0)).collect()
}

/// What there is of the scratch schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::explain) enum Scratch {
    /// Nothing.
    Absent,
    /// Ours, and it has been dropped.
    Dropped,
    /// Ours, and another run uses it.
    InUse,
    /// Somebody else's schema of that name, or one that this role may not drop: left alone.
    Foreign,
}

/// Takes the lock of the schema, which is held until the session ends; whether nobody else has it. Without it
/// nothing of the schema may be made or dropped: it is another run's.
///
/// # Errors
/// `server`.
pub(in crate::explain) async fn lock(session: &Session) -> Result<bool> {
    let row = session.row("SELECT pg_catalog.pg_try_advisory_lock($1)", &[(&LOCK, Type::INT8)]).await?;
    get(&row, 0)
}

/// Removes what an earlier run has left. `locked`: this session has the lock already.
pub(in crate::explain) async fn clear(session: &Session, locked: bool) -> Result<Scratch> {
    let rows = session
        .rows(
            "SELECT coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace') OPERATOR(pg_catalog.=) $2, \
             false) \
                    AND pg_catalog.pg_has_role(n.nspowner, 'USAGE') AND NOT pg_catalog.pg_is_in_recovery() \
               FROM pg_catalog.pg_namespace n WHERE n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) $1",
            &[(&SCRATCH, Type::TEXT), (&MARK, Type::TEXT)],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(Scratch::Absent) };
    if !get::<bool>(row, 0)? {
        return Ok(Scratch::Foreign);
    }
    if !locked {
        let row = session.row("SELECT pg_catalog.pg_try_advisory_lock($1)", &[(&LOCK, Type::INT8)]).await?;
        if !get::<bool>(&row, 0)? {
            return Ok(Scratch::InUse);
        }
    }
    let dropped = session
        .client()
        .batch_execute(&format!(
            "BEGIN READ WRITE; SET LOCAL lock_timeout = 5000; SET LOCAL client_min_messages = warning; \
             DROP SCHEMA {SCRATCH} CASCADE; COMMIT"
        ))
        .await
        .map_err(inrush_sink::failure::server_error);
    if dropped.is_err() {
        let _ = session.client().batch_execute("ROLLBACK").await;
    }
    if !locked {
        session.row("SELECT pg_catalog.pg_advisory_unlock($1)", &[(&LOCK, Type::INT8)]).await?;
    }
    dropped.map(|()| Scratch::Dropped)
}

fn foreign() -> Error {
    Error::new(Code::Server, format!("a schema {SCRATCH} exists and is not this tool's or not this role's"))
        .hint("Rename it, or give --warm-only.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_get_no_ring_and_exceed_the_buffers() {
        for buffers in [16, 16_384, 131_072] {
            assert!(piece(buffers) < buffers / 4 || buffers == 16, "{buffers}");
            assert!(piece(buffers) * PIECES > buffers, "{buffers}");
            let bytes = Way::Push { buffers }.scratch_bytes(8192);
            assert!(bytes > buffers * 8192 && bytes < buffers * 8192 * 2, "{bytes}");
        }
    }
}
