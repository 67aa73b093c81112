//! The ledger's tables: made, checked, upgraded.

use super::Ledger;
use crate::failure::server_error;
use inrush_core::{Code, Error, Result, quote_ident};
use tokio_postgres::Client;

/// Version of the tables this program writes. Raise it together with an upgrade step.
const VERSION: i32 = 4;

/// The tables of version 1. `$schema` is replaced. Column by column:
/// `loads.key` hash of what makes two commands the same load; `incarnation` `oid:filenode` of the target's
/// storage; `units.xids` the transactions (and subtransactions) that stored the rows, for undo.
const TABLES: &str = r"
CREATE TABLE $schema.version (version int NOT NULL);
INSERT INTO $schema.version VALUES (1);
CREATE TABLE $schema.loads (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text UNIQUE,
  key text NOT NULL,
  target oid NOT NULL,
  target_name text NOT NULL,
  incarnation text[] NOT NULL,
  inputs jsonb NOT NULL,
  meaning jsonb NOT NULL,
  unlogged boolean NOT NULL,
  command text[] NOT NULL,
  epoch int NOT NULL DEFAULT 1,
  state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'undone')),
  started_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
  finished_at timestamptz,
  rows bigint NOT NULL DEFAULT 0,
  rejects bigint NOT NULL DEFAULT 0,
  units bigint NOT NULL DEFAULT 0
);
CREATE INDEX loads_key ON $schema.loads (key);
CREATE TABLE $schema.backends (
  load_id bigint NOT NULL,
  epoch int NOT NULL,
  pid int NOT NULL,
  backend_start timestamptz NOT NULL
);
CREATE INDEX backends_load ON $schema.backends (load_id);
CREATE TABLE $schema.units (
  load_id bigint NOT NULL,
  input int NOT NULL,
  first_byte bigint NOT NULL,
  end_byte bigint NOT NULL CHECK (end_byte > first_byte),
  target oid NOT NULL,
  rows bigint NOT NULL,
  rejects bigint NOT NULL,
  records bigint NOT NULL,
  lines bigint NOT NULL,
  xids bigint[] NOT NULL,
  committed_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
  PRIMARY KEY (load_id, input, target, first_byte)
);
CREATE UNLOGGED TABLE $schema.units_unlogged (LIKE $schema.units INCLUDING ALL);
CREATE TABLE $schema.rejects (
  load_id bigint NOT NULL,
  input int NOT NULL,
  byte bigint NOT NULL,
  line bigint,
  record bigint,
  column_name text,
  sqlstate text NOT NULL,
  reason text NOT NULL,
  from_server boolean NOT NULL,
  raw bytea NOT NULL,
  full_len bigint,
  PRIMARY KEY (load_id, input, byte)
);
CREATE UNLOGGED TABLE $schema.rejects_unlogged (LIKE $schema.rejects INCLUDING ALL);
";

/// What makes version n + 2 from version n + 1: a new ledger goes the same way. A step may only add what programs
/// of the version before pass over: one of their loads may be running.
const UPGRADES: [&str; 3] = [
    // `levers`: changes that a load has made to its table and that have to be taken back, in the order they were
    // made; `settings`: what `inrush advise --apply` has set, and what was set before (null: nothing).
    r"
CREATE TABLE $schema.levers (
  load_id bigint NOT NULL,
  step int NOT NULL,
  lever text NOT NULL,
  target oid NOT NULL,
  detail jsonb NOT NULL,
  state text NOT NULL DEFAULT 'applied' CHECK (state IN ('applied', 'undone', 'kept')),
  applied_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
  undone_at timestamptz,
  PRIMARY KEY (load_id, step)
);
CREATE TABLE $schema.settings (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  value text NOT NULL,
  previous text,
  applied_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
  undone_at timestamptz
);
",
    // Time-windowed tables: `windowed`, their windows: `windows`. Instants (`start`, `retired_to`, `up_to`) are in the
    // binary form of the time column: microseconds since 2000-01-01, days for a date, the number itself for bigint.
    // `summarized_to`: blocks of the file `summarized_of`, from the first on; TRUNCATE gives a leaf another file.
    // Streams: `partitions`, one row for each partition of a source that can be read again, with the number of lanes its
    // rows are spread over; `offsets`, for each of its lanes what it reads next; `requests`, the same for the bodies of
    // requests that have a key; `progress`, the largest event time that a lane has committed of a source into a table;
    // `dead_letters`, rows that were refused. What has a twin `_unlogged` goes there where the rows do.
    r"
CREATE TABLE $schema.windowed (
  relid oid PRIMARY KEY,
  name text NOT NULL,
  time_column text NOT NULL,
  unit text CHECK (unit IN ('s', 'ms', 'us', 'ns')),
  width bigint NOT NULL CHECK (width > 0),
  keep bigint CHECK (keep > 0),
  max_size bigint CHECK (max_size > 0),
  min_free bigint CHECK (min_free > 0),
  ahead int NOT NULL CHECK (ahead > 0),
  lanes int NOT NULL DEFAULT 1 CHECK (lanes > 0),
  key_column text,
  tablespaces text[] NOT NULL DEFAULT '{}',
  unlogged boolean NOT NULL,
  index_kind text NOT NULL CHECK (index_kind IN ('brin', 'brin-at-close', 'none')),
  pages_per_range int NOT NULL DEFAULT 128,
  late text NOT NULL CHECK (late IN ('reject', 'overflow', 'drop')),
  overflow oid,
  idle bigint NOT NULL DEFAULT 10000000 CHECK (idle > 0),
  retired_to bigint,
  created_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);
CREATE TABLE $schema.windows (
  relid oid NOT NULL,
  start bigint NOT NULL,
  stop bigint NOT NULL CHECK (stop > start),
  top oid NOT NULL,
  top_name text NOT NULL,
  leaf oid NOT NULL,
  leaf_name text NOT NULL,
  lane int NOT NULL,
  state text NOT NULL CHECK (state IN ('open', 'closed', 'retiring')),
  summarized_to bigint NOT NULL DEFAULT 0,
  summarized_of oid,
  PRIMARY KEY (relid, start, lane)
);
CREATE TABLE $schema.partitions (
  source text NOT NULL,
  partition text NOT NULL,
  first bigint NOT NULL,
  lanes int NOT NULL,
  epoch int NOT NULL DEFAULT 1,
  claimed_by text NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
  PRIMARY KEY (source, partition)
);
CREATE TABLE $schema.offsets (
  source text NOT NULL,
  partition text NOT NULL,
  lane int NOT NULL,
  epoch int NOT NULL,
  next bigint NOT NULL,
  PRIMARY KEY (source, partition, lane)
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE $schema.offsets_unlogged (LIKE $schema.offsets INCLUDING ALL);
CREATE TABLE $schema.requests (
  source text NOT NULL,
  key text NOT NULL,
  lane int NOT NULL,
  lanes int NOT NULL,
  head bytea NOT NULL,
  next bigint NOT NULL,
  at timestamptz NOT NULL DEFAULT pg_catalog.now(),
  PRIMARY KEY (source, key, lane)
);
CREATE INDEX requests_at ON $schema.requests (at);
CREATE UNLOGGED TABLE $schema.requests_unlogged (LIKE $schema.requests INCLUDING ALL);
CREATE TABLE $schema.progress (
  relid oid NOT NULL,
  source text NOT NULL,
  lane int NOT NULL,
  up_to bigint NOT NULL,
  rows bigint NOT NULL,
  at timestamptz NOT NULL DEFAULT pg_catalog.now(),
  PRIMARY KEY (relid, source, lane)
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE $schema.progress_unlogged (LIKE $schema.progress INCLUDING ALL);
CREATE TABLE $schema.dead_letters (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT pg_catalog.now(),
  source text NOT NULL,
  partition text NOT NULL,
  position bigint NOT NULL,
  line bigint,
  target text NOT NULL,
  column_name text,
  sqlstate text NOT NULL,
  reason text NOT NULL,
  from_server boolean NOT NULL,
  raw bytea NOT NULL
);
CREATE INDEX dead_letters_at ON $schema.dead_letters (at);
CREATE INDEX dead_letters_from ON $schema.dead_letters (source, partition);
CREATE UNLOGGED TABLE $schema.dead_letters_unlogged (LIKE $schema.dead_letters INCLUDING ALL);
",
    // Units on several servers. `origin`: tells what this ledger has prepared on a node from what others have. `prepared`:
    // units that are committed, with the nodes that have to be told; a row goes when all have been. `ranges`: where
    // nodes prepare nothing, what has to be read again for a node without a mark. `marks`: in the ledger of such a node, the
    // units whose rows it has; a mark is of the same transaction as the rows.
    r"
CREATE TABLE $schema.origin (id text NOT NULL);
INSERT INTO $schema.origin
  VALUES (pg_catalog.left(pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', ''), 16));
CREATE TABLE $schema.prepared (
  gid text PRIMARY KEY,
  load_id bigint NOT NULL,
  nodes text[] NOT NULL,
  ranges jsonb,
  at timestamptz NOT NULL DEFAULT pg_catalog.now()
);
CREATE TABLE $schema.marks (
  gid text PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT pg_catalog.now()
);
",
];
const _: () = assert!(UPGRADES.len() as i32 == VERSION - 1);

impl Ledger {
    /// Finds the ledger in `schema`, makes it where `create` allows and it is missing, and checks that it
    /// can be trusted. `None` if it is missing and `create` is false.
    pub async fn open(client: &mut Client, schema: &str, create: bool) -> Result<Option<Ledger>> {
        let ledger = Ledger::of(schema);
        let owner_checks = "
            SELECT n.oid,
                   n.nspowner = r.oid
                     OR n.nspowner = (SELECT datdba FROM pg_catalog.pg_database
                                       WHERE datname = pg_catalog.current_database())
                     OR (SELECT rolsuper FROM pg_catalog.pg_roles WHERE oid = n.nspowner),
                   pg_catalog.pg_get_userbyid(n.nspowner)::text
              FROM pg_catalog.pg_namespace n, pg_catalog.pg_roles r
             WHERE n.nspname = $1 AND r.rolname = current_user";
        let mut found = client.query_opt(owner_checks, &[&schema]).await.map_err(server_error)?;
        let empty = match &found {
            Some(row) => {
                let oid: u32 = row.get(0);
                client
                    .query_opt("SELECT 1 FROM pg_catalog.pg_class WHERE relnamespace = $1 LIMIT 1", &[&oid])
                    .await
                    .map_err(server_error)?
                    .is_none()
            }
            None => true,
        };
        if empty {
            if !create {
                return Ok(None);
            }
            ledger.create(client, found.is_some()).await?;
            found = client.query_opt(owner_checks, &[&schema]).await.map_err(server_error)?;
        }
        let Some(row) = found else {
            return Err(Error::new(Code::Ledger, format!("the ledger schema {} has vanished", ledger.sql)));
        };
        if !row.get::<_, bool>(1) {
            return Err(Error::new(
                Code::Ledger,
                format!("the ledger schema {} belongs to role {:?}", ledger.sql, row.get::<_, &str>(2)),
            )
            .hint(
                "It must belong to you, to the owner of the database or to a superuser. Name another one \
                 with --ledger SCHEMA, or load in one transaction with --no-ledger.",
            ));
        }
        ledger.check_tables(client, row.get(0)).await?;
        Ok(Some(ledger))
    }

    async fn create(&self, client: &mut Client, schema_exists: bool) -> Result<()> {
        let tx = client.transaction().await.map_err(server_error)?;
        // Two first loads at once: the second waits here and then finds the tables.
        tx.batch_execute("SELECT pg_catalog.pg_advisory_xact_lock(7117, 1)").await.map_err(server_error)?;
        let there = tx
            .query_opt(
                "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                  WHERE n.nspname = $1 AND c.relname = 'loads'",
                &[&self.schema],
            )
            .await
            .map_err(server_error)?;
        if there.is_some() {
            return tx.commit().await.map_err(server_error);
        }
        let mut sql = TABLES.replace("$schema", &self.sql);
        sql += &self.upgrade_sql(1);
        if !schema_exists {
            sql = format!("CREATE SCHEMA IF NOT EXISTS {}; {sql}", self.sql);
        }
        if let Err(error) = tx.batch_execute(&sql).await {
            let denied = error.code() == Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE);
            let mut error = server_error(error);
            if denied {
                error = Error::new(
                    Code::Ledger,
                    format!("this role may not create the ledger schema {}", self.sql),
                )
                .hint(
                    "Name a schema you own with --ledger SCHEMA, ask for CREATE on the database, or load in \
                     one transaction with --no-ledger.",
                );
            }
            return Err(error);
        }
        tx.commit().await.map_err(server_error)
    }

    /// The statements that make the tables of [`VERSION`] from those of an older one.
    fn upgrade_sql(&self, from: i32) -> String {
        let done = usize::try_from(from - 1).unwrap_or_default();
        let steps = UPGRADES.iter().skip(done).map(|step| step.replace("$schema", &self.sql));
        steps.collect::<String>() + &format!("UPDATE {}.version SET version = {VERSION};", self.sql)
    }

    /// Brings older tables to [`VERSION`].
    async fn upgrade(&self, client: &mut Client) -> Result<()> {
        let tx = client.transaction().await.map_err(server_error)?;
        // Two programs at once: the second waits here and then finds nothing to do.
        tx.batch_execute("SELECT pg_catalog.pg_advisory_xact_lock(7117, 1)").await.map_err(server_error)?;
        let version: i32 = tx
            .query_one(&format!("SELECT version FROM {}.version", self.sql), &[])
            .await
            .map_err(server_error)?
            .get(0);
        if version < VERSION {
            tx.batch_execute(&self.upgrade_sql(version)).await.map_err(|error| {
                let denied = error.code() == Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE);
                let error = server_error(error);
                if !denied {
                    return error;
                }
                Error::new(
                    Code::Ledger,
                    format!("the ledger {} has version {version}, this program uses {VERSION}", self.sql),
                )
                .hint("Its owner brings it up to date: `inrush loads list` as that role will do.")
            })?;
        }
        tx.commit().await.map_err(server_error)
    }

    /// Refuses tables that are not plain, or not the schema owner's, or not of a known version.
    async fn check_tables(&self, client: &mut Client, schema: u32) -> Result<()> {
        let odd = client
            .query_opt(
                "SELECT c.relname::text,
                        CASE WHEN c.relkind NOT IN ('r', 'i', 'S', 't') THEN 'is not a table'
                             WHEN c.relrowsecurity THEN 'has row security'
                             WHEN c.relhasrules THEN 'has rules'
                             WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_trigger t
                                           WHERE t.tgrelid = c.oid AND NOT t.tgisinternal)
                               THEN 'has triggers'
                             ELSE 'belongs to another role than its schema' END
                   FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                  WHERE n.oid = $1
                    AND (c.relkind NOT IN ('r', 'i', 'S', 't') OR c.relrowsecurity OR c.relhasrules
                         OR c.relowner <> n.nspowner
                         OR EXISTS (SELECT 1 FROM pg_catalog.pg_trigger t
                                     WHERE t.tgrelid = c.oid AND NOT t.tgisinternal))
                  LIMIT 1",
                &[&schema],
            )
            .await
            .map_err(server_error)?;
        if let Some(row) = odd {
            return Err(Error::new(
                Code::Ledger,
                format!("{}.{} {}", self.sql, quote_ident(row.get::<_, &str>(0)), row.get::<_, &str>(1)),
            )
            .hint("The schema holds something that Inrush did not make; name another one with --ledger."));
        }
        let version =
            client.query_opt(&format!("SELECT version FROM {}.version", self.sql), &[]).await.map_err(|e| {
                if e.code() == Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE) {
                    Error::new(Code::Ledger, format!("this role may not use the ledger schema {}", self.sql))
                        .hint(format!(
                            "Its owner can grant it: GRANT USAGE ON SCHEMA {0} TO you; GRANT ALL ON ALL TABLES \
                             IN SCHEMA {0} TO you. Or name another one with --ledger SCHEMA.",
                            self.sql
                        ))
                } else {
                    server_error(e)
                }
            })?;
        match version.map(|row| row.get::<_, i32>(0)) {
            Some(VERSION) => Ok(()),
            Some(older) if (1..VERSION).contains(&older) => self.upgrade(client).await,
            Some(other) => Err(Error::new(
                Code::Ledger,
                format!("the ledger {} has version {other}, this program knows {VERSION}", self.sql),
            )
            .hint("Use the newer program, or name another schema with --ledger.")),
            None => Err(Error::new(Code::Ledger, format!("the ledger {} has no version", self.sql))),
        }
    }
}
